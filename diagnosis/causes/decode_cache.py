"""Faults that begin with the first decode step: what was kept is not what is read back."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from diagnosis.causes.attention_sites import AttentionChange, changed_attention
from diagnosis.causes.cache_reads import Read, reading, reads
from diagnosis.causes.trial import RunTrial, Sign, Trial

if TYPE_CHECKING:
    from diagnosis.causes.region import Region

_BAD = 5.0
_SIDES = {"keys and values": (True, True), "keys": (True, False), "values": (False, True)}


def trials(region: Region) -> Iterator[Trial]:
    """Read something else from the cache, where decode steps alone are wrong."""
    if not region.has_attention or not _is_in_decode_only(region):
        return
    for says, cause, read in reads():
        for side, (keys, values) in _SIDES.items():
            yield RunTrial(
                cause=cause,
                says=says.format(side=side),
                change=partial(changed_attention, _change(region, read, keys, values)),
            )


def _change(region: Region, read: Read, keys: bool, values: bool) -> AttentionChange:
    usual = AttentionChange()
    return AttentionChange(
        operands=partial(reading, region, read, True) if keys else usual.operands,
        values=partial(reading, region, read, False) if values else usual.values,
    )


def signs(region: Region) -> Iterator[Sign]:
    """Tell an attention that is right in the prefill and wrong in decode steps only."""
    if region.first.excess is None or not region.has_attention:
        return
    if _is_in_decode_only(region):
        yield Sign(
            cause="decode_cache",
            says="is right in the prefill and wrong in decode steps only, where keys and values "
            "come from the cache",
            weight=0.85,
        )


def _is_in_decode_only(region: Region) -> bool:
    excess = region.first.excess
    if excess is None:
        return False
    bad = np.nan_to_num(excess.by_position, nan=np.inf) > _BAD
    prefill = np.array([p < region.prompt_tokens(int(row)) for row, p in region.positions])
    return bool(bad.any() and not bad[prefill].any() and (~prefill).any())
