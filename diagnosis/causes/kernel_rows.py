"""Rows or columns that one kernel computes wrongly: from a row on, or from a size on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from diagnosis.causes.rope import recipe_of
from diagnosis.causes.trial import Sign

if TYPE_CHECKING:
    from diagnosis.causes.region import Region

_BAD = 5.0  # times rounding


def signs(region: Region) -> Iterator[Sign]:
    """Tell a module that computes each token by itself and is wrong from some row on only."""
    excess = region.first.excess
    if excess is None or any(True for _ in region.module.children()) or region.has_attention:
        return
    if region.token_ids is not None or region.linear_inputs is None:
        return  # tables by position are right at the first ones for their own reasons
    if recipe_of(region) is not None:
        return  # likewise: at position 0 nothing is turned
    if hasattr(region.module, "top_k"):
        return  # a router's choice is another for some tokens only, for reasons of its own
    yield from _rows(region, excess.by_position > _BAD)


def _rows(region: Region, bad: np.ndarray) -> Iterator[Sign]:
    if not bad.any() or bad.all():
        return
    starts = {}
    for places in region.steps():
        wrong = np.flatnonzero(bad[places])
        if (
            wrong.size
            and wrong.size < len(places)
            and np.array_equal(wrong, np.arange(wrong[0], len(places)))
        ):
            starts[int(region.positions[places[0]][0])] = int(wrong[0])
    if starts and len(set(starts.values())) == 1:
        first = next(iter(starts.values()))
        yield Sign(
            cause="kernel_rows",
            says=f"is wrong from row {first} of a call on, and exact before: a tile's edge "
            "in a kernel looks so",
            weight=0.9,
        )
    else:
        share = float(bad.mean())
        yield Sign(
            cause="kernel_rows",
            says=f"is wrong at {share:.0%} of the tokens and exact at the others, though it "
            "computes each token by itself",
            weight=0.75,
        )
