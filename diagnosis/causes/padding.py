"""Padding that is seen or counted: shorter rows are wrong, the longest is right."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from diagnosis.causes.trial import Sign

if TYPE_CHECKING:
    from diagnosis.causes.region import Region

_BAD = 5.0


def signs(region: Region) -> Iterator[Sign]:
    """Tell attention that is wrong in rows that a batch pads only."""
    excess = region.first.excess
    if excess is None or not region.has_attention:
        return
    lengths = [call.prompt_tokens for call in region.checker.wide_calls]
    bad = np.nan_to_num(excess.by_position, nan=np.inf) > _BAD
    wrong = {int(row) for (row, _), is_bad in zip(region.positions, bad, strict=True) if is_bad}
    padded = {row for row, length in enumerate(lengths) if length < max(lengths)}
    if wrong and wrong <= padded:
        yield Sign(
            cause="padding",
            says=f"is wrong in row {', '.join(map(str, sorted(wrong)))} only, which is "
            "shorter than the longest and so is padded; the longest row is right",
            weight=0.9,
        )
