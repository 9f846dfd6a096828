"""A norm whose weight is taken for its difference from one, or the other way round."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from diagnosis.causes.changes import with_parameter
from diagnosis.causes.norm import norms_of
from diagnosis.causes.trial import OutputTrial, RunTrial, Trial

if TYPE_CHECKING:
    from diagnosis.causes.region import Region


def trials(region: Region) -> Iterator[Trial]:
    """Add one to the weight, or do not; then give each channel another weight."""
    for norm in norms_of(region):
        if norm.weight is None:
            continue
        wrong, weight = 1.0 - norm.offset, norm.weight
        yield RunTrial(
            cause="norm_offset",
            says=f"multiplies by {_factor(wrong)}",
            expects=f"the norm multiplies by {_factor(norm.offset)}",
            change=partial(with_parameter, norm.module, "weight", weight + wrong - norm.offset),
        )
        if norm.module is region.module:
            yield from _other_weight(region)


def _factor(offset: float) -> str:
    return "one plus the weight" if offset else "the weight itself"


def _other_weight(region: Region) -> Iterator[Trial]:
    exact, target = region.exact, region.target
    square = np.sum(exact**2, axis=0)
    if len(exact) < 3 or not square.all():
        return
    factors = np.sum(exact * target, axis=0) / square
    yield OutputTrial(
        cause="weights",
        says="has another weight: each channel is a multiple of the right one, the first "
        f"{factors.ravel()[0]:.4g} times",
        predict=lambda y: y * factors,
        numbers=int(factors.size),
    )
