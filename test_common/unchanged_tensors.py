"""What is known of tensors for as long as they have not changed."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    import torch

Fact = TypeVar("Fact")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known(Generic[Fact]):
    """A fact, and what it was found of.

    Attributes:
        tensor: the tensor.
        state: its shape and strides, and the count of what changed it in place.
        evidence: numbers that a change is likely to change.
        fact: what is known.
    """

    tensor: weakref.ref[torch.Tensor]
    state: tuple[object, ...]
    evidence: tuple[float, ...]
    fact: Fact


class UnchangedTensors(Generic[Fact]):
    """Keeps a fact for a tensor, not the tensor, and gives it back while nothing has changed.

    Half of all tensors that a model's modules take and return have been seen before. Changes
    through `.data`, or by kernels that tell torch nothing, are not counted, so evidence is asked
    for too. NaN is evidence of nothing: it never is the same again.
    """

    def __init__(self) -> None:
        """Know nothing."""
        self._known: dict[int, _Known[Fact]] = {}

    def get(self, tensor: torch.Tensor, evidence: tuple[float, ...]) -> Fact | None:
        """Return what is known of this very tensor, None after a change."""
        known = self._known.get(id(tensor))
        if known is None or known.tensor() is not tensor:
            return None
        same = known.state == _state(tensor) and _equal(known.evidence, evidence)
        return known.fact if same else None

    def put(self, tensor: torch.Tensor, evidence: tuple[float, ...], fact: Fact) -> None:
        """Keep a fact, unless the tensor counts no changes, as those of inference mode."""
        if tensor.is_inference():
            return
        key, known = id(tensor), self._known
        # The fact goes with the tensor: it may hold a copy.
        freed = weakref.ref(tensor, lambda _: known.pop(key, None))
        known[key] = _Known(tensor=freed, state=_state(tensor), evidence=evidence, fact=fact)


def _state(tensor: torch.Tensor) -> tuple[object, ...]:
    return tensor.shape, tensor.stride(), tensor._version


def _equal(first: tuple[float, ...], second: tuple[float, ...]) -> bool:
    """Compare number by number: tuples take the same NaN object as equal to itself."""
    return len(first) == len(second) and all(a == b for a, b in zip(first, second, strict=True))
