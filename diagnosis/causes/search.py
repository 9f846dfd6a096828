"""Tries the hypotheses on a guilty computation and ranks those that give the candidate's values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from typing import assert_never

import numpy as np

from diagnosis.causes.judging import Judged
from diagnosis.causes.region import Region
from diagnosis.causes.scoped_search import in_scopes
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
from diagnosis.causes.trying import Finding, tried

_OF_FLOATS = frozenset({"bias", "cast", "clip", "quantization", "scale", "soft_cap"})
_BEST = 2  # single hypotheses on which others are tried
_MUCH = 0.7  # of the error; what leaves more over is no half of an explanation
_NO_CAST = 0.02  # relative error; half precision errs by less than that, and casts are many


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
            reproducing = list(in_scopes(region, every))
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
        finding = tried(region, trial)
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
            found = None if other is None else tried(region, other)
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
