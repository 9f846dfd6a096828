"""Judges what a model chose, and the weights that go with it, by rules of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from comparison.numerics.dtypes import Array
from comparison.schema.diagnosis import Harmless
from diagnosis.expert_choices import Judged, by_id, judge_choices, noise_of_scores, weights_of
from diagnosis.replay.pinned_replay import Taken
from diagnosis.replay.reference_trace import TracedTensor
from diagnosis.rounding import excess_error, rounding_floor

if TYPE_CHECKING:
    from diagnosis.check import Check

CHOSEN = "chose"  # in every phrase of what was chosen
Parts = Mapping[str, Sequence[Taken]]
Raw = Callable[[str, Sequence[Taken]], Array]


def judge_by_choice(
    checks: Mapping[str, Check],
    *,
    exact: Parts,
    native: Parts | None,
    traced: Mapping[str, TracedTensor],
    raw: Raw,
) -> dict[str, Check]:
    """Judge chosen ones as sets, and the weights that go with them one by one.

    Args:
        checks: by name, chosen ones as equal or not, weights by their place.
        exact: what the float64 run took down.
        native: what the run in the run's dtype took down; None where rounding is known already.
        traced: the reference's tensors.
        raw: gives the candidate's values as they are in the dump.
    """
    found = dict(checks)
    for name, check in checks.items():
        scores = _scores(exact[name])
        if scores is None or check.floor is not None or check.exact.shape[:1] != scores.shape[:1]:
            continue
        own = None if native is None else _scores(native[name])
        noise = check.choice.noise if check.choice is not None else 0.0
        if own is not None and own.shape == scores.shape:
            noise = noise_of_scores(own, scores)
        judged = judge_choices(check.candidate, check.exact, scores=scores, noise=noise)
        places = tuple(check.places[index] for index in judged.other)
        found[name] = replace(check, unequal=places, choice=judged)
        weights = weights_of(name, traced)
        beside = None if weights is None else checks.get(weights)
        if beside is not None and beside.exact.shape == check.exact.shape:
            found[beside.name] = _weights(beside, check, exact, native, raw, name)
    return found


def _weights(
    check: Check, chosen: Check, exact: Parts, native: Parts | None, raw: Raw, name: str
) -> Check:
    """Compare the weights of those that both sides chose; others say nothing of the weights."""
    values = raw(check.name, exact[check.name])
    mine = by_id(_wide(values), chosen.candidate, like=chosen.exact, default=check.exact)
    if native is None or check.floor is None:
        assert check.floor is not None  # weights are floats
        excess = excess_error(mine, check.exact, check.floor)
        return replace(check, candidate=mine, excess=excess, goes_with=name)
    own = by_id(check.native, chosen.native, like=chosen.exact, default=check.exact)
    floor = rounding_floor(
        native=own, exact=check.exact, dtype=check.dtype, longest_sum=check.longest_sum
    )
    excess = excess_error(mine, check.exact, floor)
    return replace(check, candidate=mine, native=own, floor=floor, excess=excess, goes_with=name)


def _scores(parts: Sequence[Taken]) -> Array | None:
    found = [part.scores for part in parts if part.scores is not None]
    if len(found) < len(parts) or len({scores.shape[1:] for scores in found}) != 1:
        return None
    return np.concatenate(found)


def settled_choices(checks: Sequence[Check]) -> set[str]:
    """Name what was chosen rightly, with its weights.

    A model that goes on with its own choice where rounding decides goes another way from there.
    """
    right = {check.name for check in checks if check.choice is not None and not check.unequal}
    return right | {check.name for check in checks if check.goes_with in right}


def harmless_choices(checks: Sequence[Check]) -> Iterator[Harmless]:
    """Give the choices that differ and do no harm."""
    for check in checks:
        judged: Judged | None = check.choice
        if judged is not None and judged.harmless and not check.unequal:
            yield Harmless(tensor=check.name, reason=judged.harmless)


def phrases_of_choice(check: Check) -> Iterator[str]:
    """Say how many tokens go elsewhere, and what was compared of the weights."""
    if check.choice is not None and check.unequal:
        yield f"the reference chose others for {len(check.unequal)} of {len(check.places)} tokens"
    if check.goes_with and check.excess is not None:
        yield f"weights of what both chose are off by {check.excess.error:.2g}"


def _wide(values: Array) -> Array:
    return np.asarray(values).astype(np.float64)
