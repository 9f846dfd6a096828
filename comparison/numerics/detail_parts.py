"""What a reduction gathers chunk by chunk: maps, histogram, points, and units in the last place."""

import math

import numpy as np

from comparison.numerics.dtypes import Array
from comparison.numerics.ulp import UlpUnit
from comparison.schema.detail import HeatMap, Histogram, UlpDistance
from comparison.schema.outcome import Shape

MAP_CELLS = 64  # along each axis of a heat map
BINS = 40
BINS_A_DECADE = 4
WORST_POINTS = 100
SAMPLED_POINTS = 300


class MapTally:
    """The greatest difference by block, over two axes of the tensor."""

    def __init__(self, shape: Shape, axes: tuple[str, ...], pair: tuple[int, int]) -> None:
        """Prepare an empty map.

        Args:
            shape: the compared shape.
            axes: what each axis counts.
            pair: the axes of the map's rows and columns.
        """
        self._axes, self._shape, self._pair = axes, shape, pair
        self._strides = [math.prod(shape[axis + 1 :]) for axis in pair]
        self._cells = [min(shape[axis], MAP_CELLS) for axis in pair]
        self._values = np.zeros(self._cells[0] * self._cells[1])

    def add(self, absolute: Array, start: int) -> None:
        """Take in one chunk.

        Args:
            absolute: [n] float64, differences.
            start: row-major position of the first.
        """
        positions = start + np.arange(absolute.size)
        row, column = (
            positions // stride % self._shape[axis] * cells // self._shape[axis]
            for stride, axis, cells in zip(self._strides, self._pair, self._cells, strict=True)
        )
        np.maximum.at(self._values, row * self._cells[1] + column, absolute)

    def heat_map(self) -> HeatMap:
        """Give the map."""
        values = self._values.reshape(self._cells)
        return HeatMap(
            rows=self._axes[self._pair[0]],
            columns=self._axes[self._pair[1]],
            row_size=self._shape[self._pair[0]],
            column_size=self._shape[self._pair[1]],
            values=tuple(tuple(float(value) for value in row) for row in values),
        )


class HistogramTally:
    """Counts of differences by their power of ten, over all of float64."""

    _LEAST = -330 * BINS_A_DECADE

    def __init__(self) -> None:
        """Begin with no element."""
        self._equal = 0
        self._counts = np.zeros(-self._LEAST + 310 * BINS_A_DECADE, np.int64)

    def add(self, absolute: Array) -> None:
        """Take in finite differences, [n] float64; one that overflowed counts as the greatest."""
        unequal = absolute[absolute > 0]
        self._equal += absolute.size - unequal.size
        if unequal.size:
            logarithms = np.log10(np.minimum(unequal, np.finfo(np.float64).max))
            at = np.floor(logarithms * BINS_A_DECADE).astype(np.int64) - self._LEAST
            self._counts += np.bincount(at, minlength=self._counts.size)

    def histogram(self) -> Histogram:
        """Give the upper bins; what lies below them is counted in the lowest."""
        used = np.flatnonzero(self._counts)
        if not used.size:
            return Histogram(equal=self._equal, exponent=0.0, counts=())
        top = int(used[-1]) + 1
        first = max(int(used[0]), top - BINS)
        counts = self._counts[first:top].copy()
        counts[0] += self._counts[:first].sum()
        return Histogram(
            equal=self._equal,
            exponent=(first + self._LEAST) / BINS_A_DECADE,
            counts=tuple(int(count) for count in counts),
        )


class PointTally:
    """The elements that differ most, and a sample of all, evenly spaced."""

    def __init__(self, size: int) -> None:
        """Prepare for a tensor.

        Args:
            size: number of its elements.
        """
        self._step = -(-size // SAMPLED_POINTS) or 1
        if self._step > 1 and self._step % 2 == 0:
            self._step += 1  # an odd step meets all channels, whose number is even
        self._worst = np.zeros((3, 0))  # reference, candidate, difference
        self._sample: list[Array] = []

    def add(self, reference: Array, candidate: Array, absolute: Array, positions: Array) -> None:
        """Take in elements that are finite on both sides, each [n]."""
        both = np.stack([reference, candidate])
        self._sample.append(both[:, positions % self._step == 0])
        floor = self._worst[2].min() if self._worst.shape[1] == WORST_POINTS else 0.0
        above = absolute > floor
        if not above.any():
            return
        more = np.concatenate([both[:, above], absolute[None, above]])
        worst = np.concatenate([self._worst, more], axis=1)
        kept = np.argsort(-worst[2], kind="stable")[:WORST_POINTS]
        self._worst = worst[:, kept]

    def points(self) -> tuple[tuple[tuple[float, float], ...], int]:
        """Give (reference, candidate) of each, and how many differ most, which come first."""
        both = np.concatenate([self._worst[:2], *self._sample], axis=1)
        return tuple((float(x), float(y)) for x, y in both.T), self._worst.shape[1]


class UlpTally:
    """Distances in units in the last place."""

    def __init__(self, unit: UlpUnit) -> None:
        """Take the unit."""
        self._unit = unit
        self._greatest = self._sum = 0.0
        self._elements = 0

    def add(self, reference: Array, absolute: Array) -> None:
        """Take in elements that are finite on both sides.

        Args:
            reference: [n] float64.
            absolute: [n] float64, the differences.
        """
        if not absolute.size:
            return
        distance = self._unit.distances(reference, absolute)
        with np.errstate(over="ignore"):
            self._greatest = max(self._greatest, float(distance.max()))
            self._sum += float(distance.sum())
        self._elements += absolute.size

    def distance(self) -> UlpDistance | None:
        """Give the greatest and the mean; None where no element is finite on both sides."""
        if not self._elements:
            return None
        mean = self._sum / self._elements
        return UlpDistance(dtype=self._unit.dtype, greatest=self._greatest, mean=mean)
