"""A bias that is left out, added twice, or another one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from diagnosis.causes.leaf import bias_of, is_summed_over_ranks
from diagnosis.causes.trial import OutputTrial, Trial

if TYPE_CHECKING:
    from diagnosis.causes.region import Region

_LEAST_TOKENS = 3  # for a vector that is fitted to prove something


def trials(region: Region) -> Iterator[Trial]:
    """Take the module's bias away, add it again, or add what all tokens are off by."""
    bias = bias_of(region)
    exact, target = region.exact, region.target
    if exact.ndim < 2:
        return
    if bias is not None and bias.shape == exact.shape[-1:]:
        yield OutputTrial(cause="bias", says="leaves the bias out", predict=lambda y: y - bias)
        twice = "adds the bias twice"
        ranks = is_summed_over_ranks(region)
        yield OutputTrial(
            cause="shard" if ranks else "bias",
            says=f"{twice}, as where each of two ranks adds it" if ranks else twice,
            predict=lambda y: y + bias,
        )
        yield OutputTrial(cause="bias", says="subtracts the bias", predict=lambda y: y - 2 * bias)
    if len(exact) >= _LEAST_TOKENS:
        shift = np.median(target - exact, axis=0)
        yield OutputTrial(
            cause="bias",
            says="adds another bias, the same to each token",
            predict=lambda y: y + shift,
            numbers=int(shift.size),
        )
