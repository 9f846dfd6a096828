"""The reference, run on what the candidate really computed.

The whole reference runs once a row. Wherever the candidate's dump holds a tensor, the reference's
own value is taken down first and then replaced by the candidate's, before the model goes on. So
each value taken down rests on the candidate's nearest values before it, and its difference from
the candidate's is the candidate's local error there; an error made earlier is in both.

A value is replaced in place where that is possible, so that whoever else holds the same tensor
(the residual stream, say) goes on with the candidate's value too.

Legend: T tokens of a row, n positions of these that the dump holds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from comparison.align.token_rows import TokenRow
from comparison.numerics.dtypes import Array
from diagnosis.module_watch import watched
from diagnosis.reference_calls import ReferenceCall
from diagnosis.reference_trace import TracedTensor, as_array, tokens_first

if TYPE_CHECKING:
    import torch

PinOf = Callable[[str, int], TokenRow | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """One value of the reference, taken down where the candidate's is known.

    Attributes:
        name: the tensor's name.
        owner: the call whose code computed it.
        row: number of the call of the model.
        order: position in the order of execution.
        since: the tensors with the candidate's values that went before it within the same
            owner, the last one last.
        reference: computed by the reference from the candidate's values, [n, ...].
        positions: token positions, [n].
    """

    name: str
    owner: str
    row: int
    order: int
    since: tuple[str, ...]
    reference: Array
    positions: Array


def replay(
    model: torch.nn.Module,
    calls: Collection[ReferenceCall],
    traced: Mapping[str, TracedTensor],
    pin_of: PinOf,
    *,
    unpinned: Collection[str] = (),
    on_taken: Callable[[], None] = lambda: None,
) -> Iterator[Taken]:
    """Run every row and give each value that the candidate has a counterpart of.

    Args:
        model: the reference, of any float dtype.
        calls: one a row.
        traced: the reference's tensors.
        pin_of: gives the candidate's values of a tensor in a row, if there are any.
        unpinned: tensors that are taken down but not replaced.
        on_taken: called after each value.
    """
    for row, call in enumerate(calls):
        pinning = _Pinning(model, traced, pin_of, row, frozenset(unpinned), on_taken)
        with watched(model, pinning):
            call.run(model)
        yield from pinning.taken


class _Pinning:
    def __init__(
        self,
        model: torch.nn.Module,
        traced: Mapping[str, TracedTensor],
        pin_of: PinOf,
        row: int,
        unpinned: frozenset[str],
        on_taken: Callable[[], None],
    ) -> None:
        self.taken: list[Taken] = []
        self._traced, self._pin_of, self._row = traced, pin_of, row
        self._unpinned, self._on_taken = unpinned, on_taken
        self._kept = _storages_of(model)
        self._since: dict[str, list[str]] = {}

    def see(self, name: str, tensor: torch.Tensor, *, owner: str, caller: str) -> torch.Tensor:
        pin = self._pin_of(name, self._row)
        traced = self._traced.get(name)
        if pin is None or traced is None or pin.positions.size == 0:
            return tensor
        by_token = tokens_first(tensor, traced)
        if int(pin.positions[-1]) >= by_token.shape[0]:
            return tensor
        self._take(name, owner, by_token, pin, traced)
        self._on_taken()
        if name in self._unpinned:
            return tensor
        for call in {caller, name.rpartition("-")[0]}:
            self._since.setdefault(call, []).append(name)
        return self._pinned(tensor, traced, pin)

    def _take(
        self, name: str, owner: str, by_token: torch.Tensor, pin: TokenRow, traced: TracedTensor
    ) -> None:
        values = by_token[_index(pin.positions)]
        if traced.is_mask:
            values = values[..., : pin.values.shape[-1]]
        self.taken.append(
            Taken(
                name=name,
                owner=owner,
                row=self._row,
                order=len(self.taken),
                since=tuple(self._since.get(owner, ())),
                reference=as_array(values).copy(),
                positions=pin.positions,
            )
        )

    def _pinned(self, tensor: torch.Tensor, traced: TracedTensor, pin: TokenRow) -> torch.Tensor:
        target = tensor if self._may_write(tensor) else tensor.clone()
        by_token = tokens_first(target, traced)
        place = by_token[_index(pin.positions)]
        if traced.is_mask:
            if pin.values.shape[-1] != by_token.shape[-1]:
                return tensor
            values = _as_mask(pin.values, place)
        else:
            values = _as_tensor(pin.values, place)
        by_token[_index(pin.positions)] = values
        return target

    def _may_write(self, tensor: torch.Tensor) -> bool:
        """Tell whether writing into a tensor reaches those only who should see the new value."""
        import torch

        overlaps = torch._debug_has_internal_overlap(tensor) != 0
        return not overlaps and tensor.untyped_storage().data_ptr() not in self._kept


def _index(positions: Array) -> Any:
    first, last = int(positions[0]), int(positions[-1])
    if last - first + 1 == positions.size:
        return slice(first, last + 1)
    return positions.tolist()


def _as_tensor(values: Array, like: torch.Tensor) -> torch.Tensor:
    import torch

    plain = np.asarray(values)
    if plain.dtype.kind not in "biufc":  # ml_dtypes' small floats
        plain = plain.astype(np.float32)
    if plain.dtype.kind == "u":
        plain = plain.astype(np.int64)
    tensor = torch.from_numpy(np.array(plain)).to(like.device, like.dtype)  # files are read-only
    return tensor.reshape(like.shape)


def _as_mask(values: Array, like: torch.Tensor) -> torch.Tensor:
    """Spell a mask in the reference's own numbers: 0, and the most negative float."""
    import torch

    if like.dtype == torch.bool:
        return torch.from_numpy(allowed(values)).to(like.device)
    blocked = torch.finfo(like.dtype).min
    return torch.where(
        torch.from_numpy(allowed(values)).to(like.device),
        torch.zeros((), dtype=like.dtype),
        torch.full((), blocked, dtype=like.dtype),
    )


def allowed(mask: Array) -> Array:
    """Return which keys a mask lets through, as booleans; additive masks block by -inf or -min."""
    plain = np.asarray(mask)
    if plain.dtype == bool:
        return plain
    return np.asarray(plain.astype(np.float64) > -1e4)


def _storages_of(model: torch.nn.Module) -> frozenset[int]:
    """Return the memory that outlives a call: weights, buffers, and tensors kept as attributes."""
    import torch

    held = [*model.parameters(), *model.buffers()]
    for module in model.modules():
        held += [value for value in vars(module).values() if isinstance(value, torch.Tensor)]
    return frozenset(tensor.untyped_storage().data_ptr() for tensor in held)
