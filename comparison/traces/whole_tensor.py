"""What a trace tells of a tensor, worked out from the whole of it, however large it is."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from comparison.numerics.blocks import Block, iterate_chunks
from comparison.numerics.dtypes import Array, Kind, kind_of, widen_into
from comparison.traces.shown_numbers import ShownNumber

_MOST_SHOWN = 10_000  # ten times what torch prints as a whole by default
# Sums of such numbers, as in a mask, or of their squares are infinite in float32, not here.
_OVERFLOWS = 1e15
_ROUNDING = 1e-6  # of a mean or deviation in float32, relative to the greatest number


def statistics_of(array: Array) -> dict[str, ShownNumber]:
    """Give the statistics of a whole tensor, with a rounding for those of float32.

    Args:
        array: any shape, strides and dtype of numbers; may be memory-mapped, and is read once.

    Returns:
        By name as a trace has them; none of complex numbers, and of no numbers.
    """
    if kind_of(array.dtype) is Kind.COMPLEX or array.size == 0:
        return {}
    moments = _Moments()
    with np.errstate(invalid="ignore", over="ignore"):
        for piece in _pieces(array):
            moments.add(piece)
        greatest = max(abs(moments.least), abs(moments.most))  # both NaN where one is
        found = {"min": moments.least, "max": moments.most}
        if not greatest > _OVERFLOWS:
            found["mean"] = moments.mean
            if moments.count > 1:
                found["std"] = math.sqrt(moments.squares / (moments.count - 1))
    rounding = _ROUNDING * greatest
    unit = rounding if math.isfinite(rounding) else 0.0
    return {key: ShownNumber(value=value, unit=unit) for key, value in found.items()}


def numbers_of(array: Array) -> Iterator[ShownNumber] | None:
    """Give the numbers of a tensor that a trace may show as a whole, too; None for another."""
    if array.size > _MOST_SHOWN or kind_of(array.dtype) is Kind.COMPLEX:
        return None
    numbers = _widened(array).ravel().tolist()
    return (ShownNumber(value=value, unit=0.0) for value in numbers)


@dataclass(slots=True)
class _Moments:
    """Least, greatest, mean, and sum of squared distances from it, which grow by pieces.

    Means of pieces are joined as by Chan, Golub and LeVeque (1979): the squares of a mean that is
    far from 0 do not cancel.
    """

    count: int = 0
    least: float = math.inf
    most: float = -math.inf
    mean: float = 0.0
    squares: float = 0.0

    def add(self, piece: Array) -> None:
        """Add a piece of float64 that is not empty."""
        mean = float(piece.mean())
        joined = self.count + piece.size
        apart = mean - self.mean
        self.least = float(np.minimum(self.least, piece.min()))  # NaN where one is
        self.most = float(np.maximum(self.most, piece.max()))
        self.squares += float(np.square(piece - mean).sum())
        self.squares += apart * apart * (self.count * piece.size / joined)
        self.mean += apart * (piece.size / joined)
        self.count = joined


def _pieces(array: Array) -> Iterator[Array]:
    for chunk in iterate_chunks([Block(reference=array, candidate=array)]):
        yield _widened(chunk.reference)


def _widened(array: Array) -> Array:
    wide = np.empty(array.shape, np.float64)
    widen_into(array, wide)
    return wide
