"""Tries hypotheses in those heads, rows or steps of an attention that are wrong, and there only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import assert_never

from comparison.numerics.dtypes import Array
from diagnosis.causes.fitting import fitted
from diagnosis.causes.region import Region
from diagnosis.causes.scopes import Scopes, cause_in, scopes_of
from diagnosis.causes.trial import FittedTrial, OutputTrial, RunTrial, Trial
from diagnosis.causes.trying import Finding, finding_of, is_neutral, plain, values_with

_OF_ATTENTION = frozenset({
    "decode_cache", "gqa_order", "mask", "position_ids", "quantization", "rope_frequency",
    "rope_layout", "rope_partial", "rope_precision", "scale", "sliding_window", "soft_cap",
})  # fmt: skip


def in_scopes(region: Region, every: Sequence[Trial]) -> Iterator[Finding]:
    """Yield what explains a wrong attention in each scope, and nothing where it is right.

    Args:
        region: the guilty computation.
        every: the hypotheses; those that are not of attentions are left out.
    """
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
            if value is None or is_neutral(value, trial.neutral):
                return None
            change = partial(trial.change, plain(value))
        case OutputTrial():
            return None
        case _:
            assert_never(trial)
    call, places = region.worst_call
    near = (values_with(region, change, calls=[call]) or {}).get(region.first.name)
    if near is None or not scopes.explained_by(near, places):
        return None
    new = (values_with(region, change) or {}).get(region.first.name)
    scope = None if new is None or new.shape != region.exact.shape else scopes.of(new)
    if new is None or scope is None:
        return None
    cause = cause_in(scope, trial.cause)
    if cause is None:
        return None
    says = trial.says if value is None else trial.says.format(value=f"{plain(value):.6g}")
    judged = region.judge({region.first.name: scopes.mixed(scope, new)})
    found = finding_of(replace(trial, cause=cause, says=says + scope.says), judged, change=None)
    return replace(found, numbers=0 if value is None else 1, value=value)


def _fitted_in_scope(region: Region, scopes: Scopes, trial: FittedTrial) -> float | None:
    call, places = region.worst_call
    target = region.target[places]

    def predict(value: float) -> Array | None:
        values = values_with(region, partial(trial.change, value), calls=[call])
        found = (values or {}).get(region.first.name)
        fits = found is not None and found.shape == target.shape
        return scopes.taken(found, places) if found is not None and fits else None

    return fitted(predict, scopes.taken(target, places), trial.starts)
