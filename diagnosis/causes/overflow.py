"""Infinities and not-a-numbers that the reference does not have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from diagnosis.causes.trial import Sign

if TYPE_CHECKING:
    from diagnosis.causes.region import Region

_GREATEST = {"float16": 65504.0, "bfloat16": 3.3895e38, "float32": 3.4028e38}


def signs(region: Region) -> Iterator[Sign]:
    """Find the first value that is no number, and what the reference has there."""
    target, exact = region.target, region.exact
    bad = np.argwhere(~np.isfinite(target) & np.isfinite(exact))
    if not bad.size:
        return
    infinite = np.argwhere(np.isinf(target) & np.isfinite(exact))
    place = tuple((infinite if infinite.size else bad)[0])
    row, position = region.positions[place[0]]
    limit = _GREATEST.get(region.first.dtype)
    beyond = limit is not None and abs(exact[place]) > limit
    says = (
        f"has {target[place]} at row {row}, token {position}, channel "
        f"{', '.join(map(str, place[1:]))}, where the reference has {exact[place]:.6g}"
    )
    if beyond:
        says += f", which is beyond {region.first.dtype}'s greatest number, {limit:.6g}"
    yield Sign(cause="overflow", says=says, weight=0.97 if beyond else 0.9)
