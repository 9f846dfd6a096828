"""Tries the hypotheses on a guilty computation and ranks those that give the candidate's values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import assert_never

import numpy as np

from comparison.numerics.dtypes import Array
from diagnosis.causes.fitting import fitted
from diagnosis.causes.judging import Judged
from diagnosis.causes.module_calls import ModuleCall
from diagnosis.causes.region import Region
from diagnosis.causes.scopes import Scopes, cause_in, scopes_of
from diagnosis.causes.trial import (
    Change,
    FittedTrial,
    OutputTrial,
    RunTrial,
    Sign,
    Signs,
    Trial,
    Trials,
)

# What a module, or an array, says to a change that does not fit it.
CANNOT_RUN = (RuntimeError, ValueError, TypeError, IndexError, AttributeError, KeyError)
_OF_FLOATS = frozenset({"bias", "cast", "clip", "quantization", "scale", "soft_cap"})
_OF_ATTENTION = frozenset({
    "decode_cache", "gqa_order", "mask", "position_ids", "quantization", "rope_frequency",
    "rope_layout", "rope_partial", "rope_precision", "scale", "sliding_window", "soft_cap",
})  # fmt: skip
_BEST = 2  # single hypotheses on which others are tried
_MUCH = 0.7  # of the error; what leaves more over is no half of an explanation
_NO_CAST = 0.02  # relative error; half precision errs by less than that, and casts are many
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """All that was found for one guilty computation.

    Attributes:
        reproducing: the hypotheses that give the candidate's values, the likeliest first.
        signs: causes that the pattern of the error shows, the surest first.
        tried: how many hypotheses were tried.
        nearest: the best of those that do not give the values; None where none helps.
        unexplained: what the error is without any, in units of rounding.
    """

    reproducing: tuple[Finding, ...]
    signs: tuple[Sign, ...]
    tried: int
    nearest: Finding | None
    unexplained: float


def explain(region: Region, table: Sequence[Trials], signs: Sequence[Signs]) -> Explanation:
    """Try a table of hypotheses.

    Args:
        region: the guilty computation.
        table: the hypotheses, the likeliest first.
        signs: patterns to look for.
    """
    with np.errstate(all="ignore"):  # what is no number is looked at where it matters
        before = region.judge(region.values())
        is_exact = region.first.floor is None
        every = [
            trial for trial in _made(region, table) if not (is_exact and trial.cause in _OF_FLOATS)
        ]
        kept, helpful = _singles(region, every)
        reproducing = [finding for finding in kept if finding.explained]
        if not reproducing:
            reproducing = list(_in_scopes(region, every))
        if not reproducing:
            reproducing = list(_in_pairs(region, helpful, kept, before))
    rest = [finding for finding in kept if finding.residual < 0.5 * before.residual]
    return Explanation(
        reproducing=tuple(sorted(reproducing, key=_order)),
        signs=tuple(sorted(_seen(region, signs), key=lambda sign: -sign.weight)),
        tried=len(every),
        nearest=min(rest, key=lambda finding: finding.residual, default=None),
        unexplained=before.residual,
    )


def _made(region: Region, table: Iterable[Trials]) -> Iterator[Trial]:
    for trials in table:
        try:
            yield from trials(region)
        except np.linalg.LinAlgError:  # values that are no numbers solve no system of equations
            continue


def _singles(region: Region, every: Iterable[Trial]) -> tuple[list[Finding], list[Trial]]:
    """Try each by itself; return what was found, and the trials that found it."""
    kept: list[Finding] = []
    helpful: list[Trial] = []
    for trial in every:
        if isinstance(trial, FittedTrial) and _is_explained(kept):
            continue  # a change that takes a number has more to fit with, and takes longer
        if trial.cause == "cast" and _is_settled(region, kept):
            continue
        finding = _tried(region, trial)
        if finding is not None:
            kept.append(finding)
            helpful.append(trial)
    return kept, helpful


def _is_settled(region: Region, kept: Sequence[Finding]) -> bool:
    """Tell whether an error that no cast makes is explained by a change that takes no number."""
    excess = region.first.excess
    return excess is not None and excess.error > _NO_CAST and _is_explained(kept)


def _is_explained(kept: Sequence[Finding]) -> bool:
    """Tell whether a change that takes no number gives the candidate's values in all rows."""
    return any(
        finding.explained and not finding.numbers and not finding.in_longest_row for finding in kept
    )


def _order(finding: Finding) -> tuple[bool, int]:
    return finding.in_longest_row, finding.numbers


def _seen(region: Region, signs: Iterable[Signs]) -> Iterator[Sign]:
    for look in signs:
        yield from look(region)


def _tried(region: Region, trial: Trial) -> Finding | None:
    match trial:
        case RunTrial():
            if not _helps(region, trial.change):
                return None
            judged = _judged(region, trial.change)
            if judged is None:
                return None
            return replace(_finding(trial, judged, change=trial.change), numbers=trial.numbers)
        case FittedTrial():
            return _fitted(region, trial)
        case OutputTrial():
            return _of_output(region, trial)
        case _:
            assert_never(trial)


def _helps(region: Region, change: Change) -> bool:
    """Tell whether a change brings the worst row nearer to the candidate's values at all."""
    call, places = region.worst_call
    values = _values(region, change, calls=[call])
    new = None if values is None else values.get(region.first.name)
    target, exact = region.target[places], region.exact[places]
    if new is None or new.shape != target.shape:
        return False
    with np.errstate(all="ignore"):
        return not np.nansum((new - target) ** 2) >= np.nansum((exact - target) ** 2)


def _judged(region: Region, change: Change) -> Judged | None:
    values = _values(region, change)
    return None if values is None else region.judge(values)


def _values(
    region: Region, change: Change, *, calls: Sequence[ModuleCall] | None = None
) -> Mapping[str, Array] | None:
    """Run with a change; None where the module cannot run so, as with a weight of another shape."""
    try:
        with np.errstate(all="ignore"):
            return region.values(change, calls=calls)
    except CANNOT_RUN:
        return None


def _fitted(region: Region, trial: FittedTrial) -> Finding | None:
    call, places = region.worst_call
    name, target = region.first.name, region.target[places]

    def predict(value: float) -> Array | None:
        values = _values(region, lambda: trial.change(value), calls=[call])
        found = None if values is None else values.get(name)
        return found if found is not None and found.shape == target.shape else None

    value = fitted(predict, target, trial.starts)
    if value is None or _is_neutral(value, trial.neutral):
        return None
    value = _plain(value)
    judged = _judged(region, lambda: trial.change(value))
    if judged is None:
        return None
    finding = _finding(trial, judged, change=lambda: trial.change(value))
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
    return replace(_finding(trial, judged, change=None), numbers=trial.numbers, value=trial.value)


def _loses_numbers(values: Array, exact: Array) -> bool:
    return bool(np.any(~np.isfinite(values) & np.isfinite(exact)))


def _finding(trial: Trial, judged: Judged, *, change: Change | None) -> Finding:
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
    )


def _in_scopes(region: Region, every: Sequence[Trial]) -> Iterator[Finding]:
    """Try all where an attention is wrong, and leave it be where it is right."""
    scopes = scopes_of(region)
    if scopes is None:
        return
    for trial in every:
        if trial.cause in _OF_ATTENTION:
            found = _in_scope(region, scopes, trial)
            if found is not None and found.explained:
                yield found


def _in_scope(region: Region, scopes: Scopes, trial: Trial) -> Finding | None:
    value: float | None = None
    match trial:
        case RunTrial():
            change = trial.change
        case FittedTrial():
            value = _fitted_in_scope(region, scopes, trial)
            if value is None or _is_neutral(value, trial.neutral):
                return None
            change = partial(trial.change, _plain(value))
        case OutputTrial():
            return None
        case _:
            assert_never(trial)
    call, places = region.worst_call
    near = (_values(region, change, calls=[call]) or {}).get(region.first.name)
    if near is None or not scopes.explained_by(near, places):
        return None
    new = (_values(region, change) or {}).get(region.first.name)
    scope = None if new is None or new.shape != region.exact.shape else scopes.of(new)
    if new is None or scope is None:
        return None
    cause = cause_in(scope, trial.cause)
    if cause is None:
        return None
    says = trial.says if value is None else trial.says.format(value=f"{_plain(value):.6g}")
    judged = region.judge({region.first.name: scopes.mixed(scope, new)})
    found = _finding(replace(trial, cause=cause, says=says + scope.says), judged, change=None)
    return replace(found, numbers=0 if value is None else 1, value=value)


def _fitted_in_scope(region: Region, scopes: Scopes, trial: FittedTrial) -> float | None:
    call, places = region.worst_call
    target = region.target[places]

    def predict(value: float) -> Array | None:
        values = _values(region, partial(trial.change, value), calls=[call])
        found = (values or {}).get(region.first.name)
        fits = found is not None and found.shape == target.shape
        return scopes.taken(found, places) if found is not None and fits else None

    return fitted(predict, scopes.taken(target, places), trial.starts)


def _in_pairs(
    region: Region, helpful: Sequence[Trial], kept: Sequence[Finding], before: Judged
) -> Iterator[Finding]:
    """Try what helps alone on what the best ones leave over: two faults may lie in one module."""
    changes = [finding for finding in kept if finding.change is not None]
    changes = [finding for finding in changes if finding.residual < _MUCH * before.residual]
    for best in sorted(changes, key=lambda finding: finding.residual)[:_BEST]:
        assert best.change is not None  # asked above
        for trial in helpful:
            if trial.cause == "cast" and _left(region, best, before) > _NO_CAST:
                continue
            other = _on_top(best.change, trial)
            found = None if other is None else _tried(region, other)
            if found is None or not found.explained or trial.cause == best.cause:
                continue
            yield replace(
                found,
                cause=best.cause,
                says=f"{best.says}, and {found.says}",
                expects=", ".join(text for text in (best.expects, found.expects) if text),
                numbers=best.numbers + found.numbers + 1,
            )


def _left(region: Region, best: Finding, before: Judged) -> float:
    """Return the relative error that a hypothesis leaves over."""
    excess = region.first.excess
    return 0.0 if excess is None else excess.error * best.residual / before.residual


def _on_top(base: Change, trial: Trial) -> Trial | None:
    """Make a trial with another change in force as well."""
    match trial:
        case RunTrial():
            return replace(trial, change=_both(base, trial.change))
        case FittedTrial():
            return replace(trial, change=lambda value: _both(base, lambda: trial.change(value))())
        case OutputTrial():
            return None
        case _:
            assert_never(trial)


def _both(first: Change, second: Change) -> Change:
    def change() -> AbstractContextManager[object]:
        stack = ExitStack()
        stack.enter_context(first())
        stack.enter_context(second())
        return stack

    return change


def _is_neutral(value: float, neutral: float | None) -> bool:
    return neutral is not None and abs(value - neutral) <= _SAME * max(abs(neutral), _SAME)


def _plain(value: float) -> float:
    """Take the round number nearby where there is one: 2 for 1.9999999."""
    for digits in (1, 2, 3):
        near = float(f"{value:.{digits}g}")
        if abs(value - near) <= 1e-6 * abs(value):
            return near
    return value
