"""Tries one hypothesis on a guilty computation, and says what it gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import assert_never

import numpy as np

from comparison.numerics.dtypes import Array
from diagnosis.causes.fitting import fitted
from diagnosis.causes.judging import Judged
from diagnosis.causes.module_calls import ModuleCall
from diagnosis.causes.region import Region
from diagnosis.causes.trial import Change, FittedTrial, OutputTrial, RunTrial, Trial

# What a module, or an array, says to a change that does not fit it.
CANNOT_RUN = (RuntimeError, ValueError, TypeError, IndexError, AttributeError, KeyError)
_SAME = 1e-4  # relative; a fitted number that near to the neutral one changes nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A hypothesis that was tried.

    Attributes:
        cause: id of the cause.
        says: what the candidate seems to have done.
        expects: what the reference does; empty where `says` tells it.
        residual: what it leaves over, in units of rounding.
        explained: whether rounding explains all that it leaves over.
        numbers: how many numbers were taken from the candidate's own output.
        in_longest_row: as in Judged.
        value: the fitted number.
        change: makes the change again; None for one of the output.
        needs_other_weight: as in RunTrial.
    """

    cause: str
    says: str
    expects: str
    residual: float
    explained: bool
    numbers: int
    in_longest_row: bool = False
    value: float | None = None
    change: Change | None = None
    needs_other_weight: bool | None = None


def tried(region: Region, trial: Trial) -> Finding | None:
    """Try one hypothesis by itself.

    Args:
        region: the guilty computation.
        trial: the hypothesis.

    Returns:
        What it gives; None where it does not help, or the module cannot run so.
    """
    match trial:
        case RunTrial():
            if not _helps(region, trial.change):
                return None
            judged = _judged(region, trial.change)
            if judged is None:
                return None
            return replace(finding_of(trial, judged, change=trial.change), numbers=trial.numbers)
        case FittedTrial():
            return _fitted(region, trial)
        case OutputTrial():
            return _of_output(region, trial)
        case _:
            assert_never(trial)


def _helps(region: Region, change: Change) -> bool:
    """Tell whether a change brings the worst row nearer to the candidate's values at all."""
    call, places = region.worst_call
    values = values_with(region, change, calls=[call])
    new = None if values is None else values.get(region.first.name)
    target, exact = region.target[places], region.exact[places]
    if new is None or new.shape != target.shape:
        return False
    with np.errstate(all="ignore"):
        return not np.nansum((new - target) ** 2) >= np.nansum((exact - target) ** 2)


def _judged(region: Region, change: Change) -> Judged | None:
    values = values_with(region, change)
    return None if values is None else region.judge(values)


def values_with(
    region: Region, change: Change, *, calls: Sequence[ModuleCall] | None = None
) -> Mapping[str, Array] | None:
    """Run with a change; None where the module cannot run so, as with a weight of another shape.

    Args:
        region: the guilty computation.
        change: what to change.
        calls: the calls of the module to run; None for all.
    """
    try:
        with np.errstate(all="ignore"):
            return region.values(change, calls=calls)
    except CANNOT_RUN:
        return None


def _fitted(region: Region, trial: FittedTrial) -> Finding | None:
    call, places = region.worst_call
    name, target = region.first.name, region.target[places]

    def predict(value: float) -> Array | None:
        values = values_with(region, lambda: trial.change(value), calls=[call])
        found = None if values is None else values.get(name)
        return found if found is not None and found.shape == target.shape else None

    value = fitted(predict, target, trial.starts)
    if value is None or is_neutral(value, trial.neutral):
        return None
    value = plain(value)
    judged = _judged(region, lambda: trial.change(value))
    if judged is None:
        return None
    finding = finding_of(trial, judged, change=lambda: trial.change(value))
    return replace(finding, value=value, numbers=1, says=finding.says.format(value=f"{value:.6g}"))


def _of_output(region: Region, trial: OutputTrial) -> Finding | None:
    try:
        with np.errstate(all="ignore"):
            values = trial.predict(region.exact)
    except CANNOT_RUN:
        return None
    if values.shape != region.target.shape or _loses_numbers(values, region.exact):
        return None
    judged = region.judge({region.first.name: values})
    return replace(finding_of(trial, judged, change=None), numbers=trial.numbers, value=trial.value)


def _loses_numbers(values: Array, exact: Array) -> bool:
    return bool(np.any(~np.isfinite(values) & np.isfinite(exact)))


def finding_of(trial: Trial, judged: Judged, *, change: Change | None) -> Finding:
    """Write down what a hypothesis gives.

    Args:
        trial: the hypothesis.
        judged: its values, held against the candidate's.
        change: makes the change again; None for one of the output.
    """
    where = " (in the longest row; the others are padded)" if judged.in_longest_row else ""
    return Finding(
        cause=trial.cause,
        says=trial.says + where,
        expects=trial.expects,
        residual=judged.residual,
        explained=judged.explained,
        numbers=0,
        in_longest_row=judged.in_longest_row,
        change=change,
        needs_other_weight=trial.needs_other_weight,
    )


def is_neutral(value: float, neutral: float | None) -> bool:
    """Tell whether a fitted number is the one that changes nothing."""
    return neutral is not None and abs(value - neutral) <= _SAME * max(abs(neutral), _SAME)


def plain(value: float) -> float:
    """Take the round number nearby where there is one: 2 for 1.9999999."""
    for digits in (1, 2, 3):
        near = float(f"{value:.{digits}g}")
        if abs(value - near) <= 1e-6 * abs(value):
            return near
    return value
