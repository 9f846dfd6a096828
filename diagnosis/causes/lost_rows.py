"""Output channels that came out as nothing: rows of the weight that are missing, or never computed.

Legend: n positions, F output channels.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from comparison.numerics.dtypes import Array
from diagnosis.causes.leaf import head_size_of
from diagnosis.causes.linear import linear_of
from diagnosis.causes.trial import OutputTrial, Trial

if TYPE_CHECKING:
    from diagnosis.causes.region import Region

_RANKS = (2, 4, 8)
_LEAST_TILE = 8
_NOTHING = 1e-6  # relative to the tensor


def trials(region: Region) -> Iterator[Trial]:
    """Look for one range of output channels without anything in it."""
    linear = linear_of(region)
    if linear is None or linear.matrix.is_embedding:
        return
    size = float(np.sqrt(np.mean(linear.target**2)))
    bias = np.broadcast_to(linear.bias, linear.target.shape[1:])
    with_bias = _range_of(np.abs(linear.target + bias).max(axis=0) <= _NOTHING * size)
    without = _range_of(np.abs(linear.target).max(axis=0) <= _NOTHING * size)
    if with_bias is not None and bias[slice(*with_bias)].any():
        start, stop = with_bias
        yield OutputTrial(
            cause="kernel_rows",
            says=f"never writes output channels {start} to {stop - 1}: not even the bias is there",
            predict=partial(_without, start, stop, np.zeros(bias.shape)),
        )
    elif without is not None:
        yield from _of_weight(region, *without, bias)


def _range_of(empty: Array) -> tuple[int, int] | None:
    """Return start and stop of the one range of channels that are empty."""
    at = np.flatnonzero(empty)
    if not at.size or at.size == empty.size or at[-1] - at[0] + 1 != at.size:
        return None
    return int(at[0]), int(at[-1]) + 1


def _of_weight(region: Region, start: int, stop: int, bias: Array) -> Iterator[Trial]:
    count, size = bias.size, stop - start
    where = f"{size} of {count} output channels, {start} to {stop - 1}"
    cause, says = "", ""
    ranks = next((r for r in _RANKS if size * r == count and start % size == 0), 0)
    head = head_size_of(region)
    if stop == count:
        cause, says = "shard", f"has nothing in the last {where}, as where a split drops its end"
    elif ranks and not (head and size % head):
        cause, says = "shard", f"has nothing in the {where}: the part of one of {ranks} ranks"
    elif size >= _LEAST_TILE and size & (size - 1) == 0 and start % size == 0:
        cause, says = "kernel_rows", f"has nothing in {where}, one tile of a kernel"
    if cause:
        yield OutputTrial(cause=cause, says=says, predict=partial(_without, start, stop, bias))


def _without(start: int, stop: int, left: Array, exact: Array) -> Array:
    values = exact.copy().reshape(len(exact), -1)
    values[:, start:stop] = left[start:stop]
    return values.reshape(exact.shape)
