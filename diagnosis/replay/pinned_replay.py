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

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from comparison.align.token_rows import TokenRow
from comparison.numerics.dtypes import Array
from diagnosis.expert_choices import (
    TopkLog,
    any_choice,
    in_order_of,
    is_choice,
    noting_topk,
    weights_of,
)
from diagnosis.replay.module_watch import watched
from diagnosis.replay.reference_calls import ReferenceCall
from diagnosis.replay.reference_trace import TracedTensor, as_array, tokens_first
from diagnosis.side_errors import side_errors

if TYPE_CHECKING:
    import torch

_REMEMBERED = 32  # tensors with the candidate's values; who gets one of them runs soon after

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
        scores: for what top-k chose, what it chose from, [n, E].
    """

    name: str
    owner: str
    row: int
    order: int
    since: tuple[str, ...]
    reference: Array
    positions: Array
    scores: Array | None = None


def replay(
    model: torch.nn.Module,
    calls: Collection[ReferenceCall],
    traced: Mapping[str, TracedTensor],
    pin_of: PinOf,
    *,
    unpinned: Collection[str] = (),
    on_taken: Callable[[], None] = lambda: None,
) -> Iterator[Taken]:
    """Yield each value that the candidate has a counterpart of, row by row.

    Args:
        model: the reference, of any float dtype.
        calls: one a row.
        traced: the reference's tensors.
        pin_of: gives the candidate's values of a tensor in a row, if there are any.
        unpinned: tensors that are taken down but not replaced.
        on_taken: called after each value.
    """
    kept = lasting_storages(model)
    chooses = any_choice(traced.values())
    for row, call in enumerate(calls):
        pinning = Pinning(kept, traced, pin_of, row, frozenset(unpinned), on_taken)
        noting = noting_topk(pinning.topk) if chooses else nullcontext()
        with side_errors("the replay of the reference"), watched(model, pinning), noting:
            call.run(model)
        yield from pinning.taken


class Pinning:
    """Takes values of one row down, and puts the candidate's in their place."""

    def __init__(
        self,
        kept: frozenset[int],
        traced: Mapping[str, TracedTensor],
        pin_of: PinOf,
        row: int,
        unpinned: frozenset[str] = frozenset(),
        on_taken: Callable[[], None] = lambda: None,
        wanted: frozenset[str] | None = None,
    ) -> None:
        """Begin a row.

        Args:
            kept: memory that no value may be written into.
            traced: the reference's tensors.
            pin_of: as for `replay`.
            row: number of the row.
            unpinned: as for `replay`.
            on_taken: as for `replay`.
            wanted: the tensors to take down; None for all that are known.
        """
        self.taken: list[Taken] = []
        self.topk = TopkLog()
        self._traced, self._pin_of, self._row = traced, pin_of, row
        self._unpinned, self._on_taken, self._wanted = unpinned, on_taken, wanted
        self._kept = kept
        self._since: dict[str, list[str]] = {}
        self._written: deque[tuple[str, torch.Tensor, int]] = deque(maxlen=_REMEMBERED)

    def see(self, name: str, tensor: torch.Tensor, *, owner: str, caller: str) -> torch.Tensor:
        """As `module_watch.Observer` has it."""
        pin = self._pin_of(name, self._row)
        traced = self._traced.get(name)
        if pin is None or traced is None or pin.positions.size == 0:
            self._know(name, tensor)
            return tensor
        by_token = tokens_first(tensor, traced)
        if int(pin.positions[-1]) >= by_token.shape[0] or not _fits(by_token, pin, traced):
            return tensor  # an expert was given other tokens
        if self._wanted is None or name in self._wanted:
            self._take(name, owner, by_token, pin, traced)
        self._on_taken()
        if name in self._unpinned:
            return tensor
        for call in {caller, name.rpartition("-")[0]}:
            self._since.setdefault(call, []).append(name)
        target = self._pinned(tensor, traced, pin)
        if target is tensor:
            self._written.append((name, target, target._version))
        return target

    def holds(self, name: str) -> bool:
        """Tell whether a tensor is replaced in this row."""
        pin = self._pin_of(name, self._row)
        known = pin is not None and pin.positions.size > 0 and name in self._traced
        return known and name not in self._unpinned

    def _know(self, name: str, tensor: torch.Tensor) -> None:
        """Note an input without values of its own that is a tensor which has the candidate's."""
        module, _, side = name.rpartition("-")
        if not side.startswith("input"):
            return
        where = tensor.data_ptr(), tensor.numel(), tensor._version
        for known, written, version in reversed(self._written):
            if (written.data_ptr(), written.numel(), version) == where:
                self._since.setdefault(module, []).append(known)
                return

    def _take(
        self, name: str, owner: str, by_token: torch.Tensor, pin: TokenRow, traced: TracedTensor
    ) -> None:
        index = _index(pin.positions)
        values = by_token[index]
        if traced.is_mask:
            values = values[..., : pin.values.shape[-1]]
        scores = self.topk.scores_of(by_token) if is_choice(traced) else None
        self.taken.append(
            Taken(
                name=name,
                owner=owner,
                row=self._row,
                order=len(self.taken),
                since=tuple(self._since.get(owner, ())),
                reference=as_array(values).copy(),
                positions=pin.positions,
                scores=None
                if scores is None
                else as_array(scores.reshape(by_token.shape[0], -1)[index]).copy(),
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
            values = _as_tensor(self._in_order(pin, place, traced), place)
        by_token[_index(pin.positions)] = values
        return target

    def _in_order(self, pin: TokenRow, place: torch.Tensor, traced: TracedTensor) -> Array:
        """Order what was chosen as the reference's weights are, where it goes on with these."""
        if not is_choice(traced):
            return pin.values
        weights = weights_of(traced.name, self._traced)
        if weights is None or (
            self._pin_of(weights, self._row) is not None and weights not in self._unpinned
        ):
            return pin.values
        return in_order_of(np.asarray(pin.values).reshape(place.shape), as_array(place))

    def _may_write(self, tensor: torch.Tensor) -> bool:
        """Tell whether writing into a tensor reaches those only who should see the new value."""
        import torch

        overlaps = torch._debug_has_internal_overlap(tensor) != 0
        return not overlaps and tensor.untyped_storage().data_ptr() not in self._kept


def _fits(by_token: torch.Tensor, pin: TokenRow, traced: TracedTensor) -> bool:
    """Tell whether one token's value has one size on both sides; a mask is cut to fit."""
    return traced.is_mask or by_token.shape[1:].numel() == pin.values[:1].size


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


def lasting_storages(model: torch.nn.Module) -> frozenset[int]:
    """Return the memory that outlives a call: weights, buffers, and tensors kept as attributes."""
    import torch

    held = [*model.parameters(), *model.buffers()]
    for module in model.modules():
        held += [value for value in vars(module).values() if isinstance(value, torch.Tensor)]
    return frozenset(tensor.untyped_storage().data_ptr() for tensor in held)
