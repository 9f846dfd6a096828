"""Which tensors the reference computes, in which order and of which shapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from comparison.align.fingerprint import fingerprint
from comparison.align.structure import Placed
from comparison.align.token_rows import Wanted
from comparison.numerics.dtypes import Array
from diagnosis.replay.module_watch import watched
from diagnosis.replay.reference_calls import ReferenceCall
from diagnosis.side_errors import side_errors

if TYPE_CHECKING:
    import torch


@dataclass(slots=True, kw_only=True)
class TracedTensor:
    """One tensor of the reference.

    Attributes:
        name: full tensor name.
        owner: the call whose code computes it.
        shapes: its shape in each call of the model, by number of the call.
        dtype: torch's name of its dtype.
        token_axis: the axis that counts tokens; None where no axis does.
    """

    name: str
    owner: str
    dtype: str
    shapes: dict[int, tuple[int, ...]] = field(default_factory=dict)
    token_axis: int | None = None

    @property
    def is_mask(self) -> bool:
        """Whether two axes count tokens, as in an attention mask."""
        shape = self.shapes[min(self.shapes)]
        return "mask" in self.name and len(shape) == 4 and shape[-1] == shape[-2]

    @property
    def is_regular(self) -> bool:
        """Whether one token's value has the same shape in every row, unlike attention weights."""
        axis = self.token_axis
        if axis is None:
            return len(set(self.shapes.values())) == 1
        rest = {shape[:axis] + shape[axis + 1 :] for shape in self.shapes.values()}
        return len(rest) == 1

    @property
    def wanted(self) -> Wanted:
        """What one token's value looks like."""
        shape = list(self.shapes[min(self.shapes)])
        if self.is_mask:
            return Wanted(trailing=(), square=True)
        if self.token_axis is None:
            return Wanted(trailing=tuple(shape[1:] if shape and shape[0] == 1 else shape))
        trailing = [size for axis, size in enumerate(shape) if axis != self.token_axis]
        return Wanted(trailing=tuple(trailing[1:] if self.token_axis > 0 else trailing))


def trace_reference(
    model: torch.nn.Module, calls: Sequence[ReferenceCall]
) -> dict[str, TracedTensor]:
    """Run the reference once and note its tensors by name, in order of execution."""
    traced: dict[str, TracedTensor] = {}
    for number, call in enumerate(calls):
        tracer = _Tracer(traced, number)
        with side_errors("the replay of the reference"), watched(model, tracer):
            call.run(model)
    for tensor in traced.values():
        tensor.token_axis = _token_axis(tensor, calls)
    return traced


class _Tracer:
    def __init__(self, traced: dict[str, TracedTensor], number: int) -> None:
        self._traced, self._number = traced, number

    def see(self, name: str, tensor: torch.Tensor, *, owner: str, caller: str) -> torch.Tensor:
        del caller
        dtype = str(tensor.dtype).removeprefix("torch.")
        known = self._traced.setdefault(name, TracedTensor(name=name, owner=owner, dtype=dtype))
        known.shapes[self._number] = tuple(tensor.shape)
        return tensor


def _token_axis(tensor: TracedTensor, calls: Sequence[ReferenceCall]) -> int | None:
    """Find the axis whose size is the number of tokens in every call."""
    ranks = {len(shape) for shape in tensor.shapes.values()}
    if len(ranks) != 1 or any(calls[number].tokens is None for number in tensor.shapes):
        return None
    (rank,) = ranks
    fits = [
        axis
        for axis in range(rank)
        if all(shape[axis] == calls[number].tokens for number, shape in tensor.shapes.items())
    ]
    batched = all(shape[0] == 1 for shape in tensor.shapes.values()) if rank else False
    order = (1, 2, 0) if batched else (0,)
    return next((axis for axis in order if axis in fits), None)


def fingerprints_of(
    model: torch.nn.Module, call: ReferenceCall, traced: Mapping[str, TracedTensor]
) -> list[Placed]:
    """Run one row and give what is known of each tensor's place and values.

    Args:
        model: the reference.
        call: the row.
        traced: its tensors.
    """
    observer = _Fingerprinting(traced)
    with watched(model, observer):
        call.run(model)
    return observer.placed


class _Fingerprinting:
    def __init__(self, traced: Mapping[str, TracedTensor]) -> None:
        self.placed: list[Placed] = []
        self._traced = traced

    def see(self, name: str, tensor: torch.Tensor, *, owner: str, caller: str) -> torch.Tensor:
        del owner, caller
        traced = self._traced[name]
        if tensor.numel() and not traced.is_mask:
            values = as_array(tokens_first(tensor, traced))
            size = int(np.prod(values.shape[1:]))
            known = fingerprint(np.arange(values.shape[0]), values)
            exact = values.dtype.kind in "biu"
            self.placed.append(
                Placed(name=name, order=len(self.placed), sizes={size: known}, is_integer=exact)
            )
        return tensor


def tokens_first(tensor: torch.Tensor, traced: TracedTensor) -> torch.Tensor:
    """View a tensor as [T, ...], or as [1, ...] where no axis counts tokens."""
    if traced.is_mask:
        return tensor[0, 0]  # [T, T]
    axis = traced.token_axis
    if axis is None:
        whole = tensor.shape[:1] == (1,)
        return tensor if whole else tensor.unsqueeze(0)
    moved = tensor.movedim(axis, 0)
    return moved.squeeze(1) if axis > 0 else moved


def as_array(tensor: torch.Tensor) -> Array:
    """Return a numpy array; small floats are widened, which is exact."""
    import torch

    plain = tensor.detach().cpu()
    if plain.is_floating_point() and plain.dtype not in (torch.float32, torch.float64):
        plain = plain.float()
    return np.asarray(plain.resolve_conj().resolve_neg().numpy())
