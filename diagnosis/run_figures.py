"""Figures of a whole run: what was covered, how errors grow, and how far the end is off."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from comparison.schema.diagnosis import Coverage, Growth, Harmless
from comparison.schema.outcome import Side
from diagnosis.candidate_tensors import CandidateTensors
from diagnosis.check import Check
from diagnosis.healing import CONSTANT_SHIFT
from diagnosis.replay.reference_trace import TracedTensor

_DRIFT = 8.0  # times the rounding error that the reference's own run ends with


def coverage_of(
    traced: Mapping[str, TracedTensor], candidate: CandidateTensors, checks: Sequence[Check]
) -> Coverage:
    """Count what was paired, replayed and judged."""
    outputs = {name.rpartition("-")[0] for name in traced if "-output" in name}
    judged = {check.name.rpartition("-")[0] for check in checks if not check.is_input}
    used = {pair.candidate for pair in candidate.pairing.pairs}
    return Coverage(
        paired=len(used),
        unpaired=sum(item.side is Side.CANDIDATE for item in candidate.pairing.unpaired),
        replayed=len(checks),
        modules=len(outputs),
        modules_checked=len(judged & outputs),
    )


def drift_of(unbroken: Sequence[Check], harmless: Collection[Harmless]) -> float | None:
    """Return how far the end is off where no single module is to blame."""
    cleared = {item.tensor for item in harmless}
    if any(item.reason == CONSTANT_SHIFT for item in harmless):
        cleared.add("model-output_logits")  # the head's, passed on
    judged = [
        check.excess for check in unbroken if check.excess is not None and check.name not in cleared
    ]
    if not judged or judged[-1].whole <= _DRIFT:
        return None
    return float(judged[-1].whole)


def growth_of(checks: Sequence[Check], unbroken: Sequence[Check]) -> list[Growth]:
    """Give each tensor's inherited and own error, in order of execution."""
    inherited = {check.name: check.excess.error for check in unbroken if check.excess is not None}
    return [
        Growth(
            tensor=check.name,
            inherited=float(inherited.get(check.name, float("nan"))),
            local=float(check.excess.error),
            excess=float(check.excess.whole),
        )
        for check in checks
        if check.excess is not None
    ]
