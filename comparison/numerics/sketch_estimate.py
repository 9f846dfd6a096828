"""How far two tensors are apart, from their sketches, and how sure that is.

The mean of <g, d>^2 over k Gaussian directions g and all rows d of the difference estimates
||d||^2 without bias, and is distributed as ||d||^2 chi^2(v) / v: v is k where all rows are
multiples of one vector, and the more the less alike they are (Johnson and Lindenstrauss 1984;
Satterthwaite 1946 for v, from the projections' own covariance). So the standard error of a
distance is about 1 / sqrt(2 v) of it: a quarter with k = 8 in the worst case. Rows that are
added up with random signs in M others add 2 / M to the relative variance of ||d||^2 (Charikar,
Chen and Farach-Colton 2002). Norms are no estimates, and |norm of a - norm of b| <= ||a - b||
bounds the distance of each row.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from comparison.numerics.dtypes import Array
from comparison.numerics.sums import SMALLEST_DENOMINATOR
from comparison.numerics.tensor_sketch import EXACT_WIDTH, MOST_ROWS, TensorSketch, folding
from comparison.schema.estimate import Estimate

_SIDE = 1.959964  # standard normal quantile of 97.5 %: 95 of 100 lie between it and its negative
_SURE = 4.753424  # of a part in a million, on one side
_ROUNDING = 2.0**-24  # of the float32 that rows are stored in
_STATISTICS_ROUNDING = 1e-5  # mean and deviation are summed in float32, by some

Rows = Sequence[tuple[Array, Array]]  # both sides' rows [..., 1 + k], as they belong together


@dataclass(frozen=True, slots=True, kw_only=True)
class Distance:
    """How far two tensors are apart.

    Attributes:
        reference: norm of the reference.
        candidate: norm of the candidate.
        value: estimate of the norm of their difference.
        low: the true norm is between low and high in 95 of 100 cases.
        high: see low.
        sure: the true norm is less once in a million cases.
        basis: as in `Estimated`.
    """

    reference: float
    candidate: float
    value: float
    low: float
    high: float
    sure: float
    basis: str

    def relative_l2(self) -> Estimate:
        """Give the distance in units of the reference."""
        unit = max(self.reference, SMALLEST_DENOMINATOR)
        return Estimate(value=self.value / unit, low=self.low / unit, high=self.high / unit)

    def cosine(self) -> Estimate:
        """Give the cosine of the angle: 1 where both are zero, 0 where one is."""
        return Estimate(
            value=self._cosine(self.value), low=self._cosine(self.high), high=self._cosine(self.low)
        )

    def _cosine(self, distance: float) -> float:
        if self.reference == 0 or self.candidate == 0:
            return 1.0 if self.reference == self.candidate else 0.0
        # 2 <a, b> = ||a||^2 + ||b||^2 - ||a - b||^2, in units that do not overflow.
        ratio, apart = self.candidate / self.reference, distance / self.reference
        return max(-1.0, min(1.0, (1 + ratio**2 - apart**2) / (2 * ratio)))


def distance_of_rows(reference: TensorSketch, candidate: TensorSketch, rows: Rows) -> Distance:
    """Estimate from projections.

    Args:
        reference: of one side.
        candidate: of the other side, with rows of the same width, folded alike.
        rows: what is compared of both, at least one row.
    """
    width = min(array.shape[-1] for pair in rows for array in pair)
    scale = max(reference.scale, candidate.scale)
    a = _together([pair[0][..., :width] for pair in rows], reference.scale / scale)
    b = _together([pair[1][..., :width] for pair in rows], candidate.scale / scale)
    sizes = [math.sqrt(float(np.vdot(side[:, 0], side[:, 0]))) for side in (a, b)]
    apart = b[:, 1:] - a[:, 1:]
    floor = 2 * _ROUNDING * sum(sizes)
    with np.errstate(invalid="ignore"):  # where both norms overflow, and so does the distance
        norms = b[:, 0] - a[:, 0]
    nearest = max(math.sqrt(float(np.sum(norms**2))) - floor, 0.0)
    if reference.shape[-1:] and _width(reference) > EXACT_WIDTH:
        squares = float(np.vdot(apart, apart)) / apart.shape[1]
        freedom = _freedom(apart, is_folded=reference.folded)
        low, high = (_at(squares, freedom, side) for side in (_SIDE, -_SIDE))
        sure = _at(squares, apart.shape[1], _SURE)
    else:
        squares = float(np.vdot(apart, apart))
        low = high = sure = math.sqrt(squares)
        if reference.folded:
            freedom = _freedom(apart, is_folded=True, directions=math.inf)
            low, high = (_at(squares, freedom, side) for side in (_SIDE, -_SIDE))
    if reference.folded:
        sure /= math.sqrt(_most_together(reference))
    return _distance(
        sizes,
        (math.sqrt(squares), low - floor, high + floor, sure - floor),
        nearest=nearest,
        scale=scale,
        basis="projections",
    )


def distance_of_statistics(reference: TensorSketch, candidate: TensorSketch) -> Distance:
    """Bound the distance by mean and deviation of all values, in one order or another.

    Args:
        reference: of one side.
        candidate: of the other side, of as many values.
    """
    count = math.prod(reference.shape)
    sizes = [_norm(sketch, count) for sketch in (reference, candidate)]
    means = reference.statistics.mean - candidate.statistics.mean
    # |sum of d| <= sqrt(n) ||d||
    bounds = abs(sizes[0] - sizes[1]), abs(means) * math.sqrt(count)
    nearest = max(max(bounds) - _STATISTICS_ROUNDING * sum(sizes), 0.0)
    numbers = (nearest, nearest, sum(sizes), nearest)
    return _distance(sizes, numbers, nearest=nearest, scale=1.0, basis="statistics")


def _distance(
    sizes: Sequence[float],
    numbers: tuple[float, float, float, float],
    *,
    nearest: float,
    scale: float,
    basis: str,
) -> Distance:
    """Keep all numbers between what norms allow."""
    value, low, high, sure = (min(max(n, nearest), sum(sizes)) for n in numbers)
    return Distance(
        reference=sizes[0] * scale,
        candidate=sizes[1] * scale,
        value=value * scale,
        low=low * scale,
        high=high * scale,
        sure=sure * scale,
        basis=basis,
    )


def _together(pieces: Sequence[Array], factor: float) -> Array:
    flat = [np.asarray(piece, np.float64).reshape(-1, piece.shape[-1]) for piece in pieces]
    return np.concatenate(flat) * factor


def _width(sketch: TensorSketch) -> int:
    return sketch.shape[-1] * (2 if sketch.dtype.startswith("complex") else 1)


def _freedom(apart: Array, *, is_folded: bool, directions: float | None = None) -> float:
    """Return v: 2 / v is the relative variance of the squared distance."""
    count = apart.shape[1] if directions is None else directions
    if math.isfinite(count):
        products = apart.T @ apart
        trace, squares = float(np.trace(products)), float(np.vdot(products, products))
        # tr(G)^2 / tr(G^2) of the rows' products G; it is 1 where all are multiples of one. The
        # projections make it too small by up to its k-th part, which errs on the safe side.
        count *= max(trace**2 / squares, 1.0) if squares else 1.0
    return 1 / (1 / count + (1 / MOST_ROWS if is_folded else 0.0))


def _at(squares: float, freedom: float, normal: float) -> float:
    """Return the distance for which so great a sum of squares is a given quantile.

    The quantile of chi^2 is that of Wilson and Hilferty (1931), off by less than 3 % for v >= 8.
    """
    part = 2 / (9 * freedom)
    return math.sqrt(squares / max((1 - part + normal * math.sqrt(part)) ** 3, 1e-12))


def _most_together(sketch: TensorSketch) -> int:
    """Return the greatest number of rows that are added up in one."""
    places, _ = folding(math.prod(sketch.shape[:-1]))
    return int(np.bincount(places).max())


def _norm(sketch: TensorSketch, count: int) -> float:
    known = sketch.statistics
    count -= known.nan + known.infinite
    return math.sqrt(max(count - 1, 0) * known.std**2 + count * known.mean**2)
