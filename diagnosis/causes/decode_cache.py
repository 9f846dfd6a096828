"""Faults that begin with the first decode step: what was kept is not what is read back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from diagnosis.causes.trial import Sign

if TYPE_CHECKING:
    from diagnosis.causes.region import Region

_BAD = 5.0


def signs(region: Region) -> Iterator[Sign]:
    """Tell an attention that is right in the prefill and wrong in decode steps only."""
    excess = region.first.excess
    if excess is None or not region.has_attention:
        return
    bad = np.nan_to_num(excess.by_position, nan=np.inf) > _BAD
    prefill = np.array([p < region.prompt_tokens(int(row)) for row, p in region.positions])
    if bad.any() and not bad[prefill].any() and (~prefill).any():
        yield Sign(
            cause="decode_cache",
            says="is right in the prefill and wrong in decode steps only, where keys and values "
            "come from the cache",
            weight=0.85,
        )
