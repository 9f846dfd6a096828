"""Finds the layer that only one side has, by replaying what would fit if it were left out."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from comparison.align.layer_shift import shifted_from, unmatched_layers
from comparison.align.structure import indices_of
from diagnosis.candidate_tensors import CandidateTensors
from diagnosis.check import Check
from diagnosis.checks import Checker
from diagnosis.guilt import is_guilty

_FEWER = 0.5  # of the wrong tensors have to be right then, for the layer to be left out


def match_layers(
    candidate: CandidateTensors, checker_of: Callable[[CandidateTensors], Checker]
) -> tuple[CandidateTensors, tuple[str, ...]]:
    """Pair layers otherwise than by their numbers where one side has more of them, and that fits.

    Args:
        candidate: paired by equal numbers.
        checker_of: makes what replays.

    Returns:
        The candidate as it fits best, and which layers have no counterpart.
    """
    stack = candidate.uneven_stack()
    if stack is None:
        return candidate, ()
    counts = (
        f"the candidate's dump holds {stack.candidate_layers} layers "
        f"{stack.candidate.rstrip('.')}, the reference has {stack.reference_layers}"
    )
    wrong = [check for check in checker_of(candidate).checks() if is_guilty(check)]
    layer = _first_layer(wrong, stack.reference)
    least = min(stack.candidate_layers, stack.reference_layers)
    if layer is not None and layer < least:
        moved = candidate.with_layers(stack, shifted_from(stack, layer))
        still = sum(map(is_guilty, checker_of(moved).checks()))
        if still <= _FEWER * len(wrong):
            return moved, (counts, unmatched_layers(stack, layer))
    return candidate, (counts, unmatched_layers(stack, least))


def _first_layer(wrong: Sequence[Check], stack: str) -> int | None:
    inside = [check for check in wrong if check.name.startswith(stack)]
    if not inside:
        return None
    first = min(inside, key=lambda check: check.order)
    numbers = indices_of(first.name)
    return numbers[0] if numbers else None
