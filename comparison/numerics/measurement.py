"""What has been seen of a pair, which grows by chunks and stretches until it is an outcome."""

import math

import numpy as np

from comparison.numerics import kernel_layout as layout
from comparison.numerics.blocks import Block, Chunk
from comparison.numerics.differences import Differences, subtract
from comparison.numerics.dtypes import Array, Kind
from comparison.numerics.fused import Stretch
from comparison.numerics.greatest_tally import GreatestTally
from comparison.numerics.non_finite import NonFiniteTally
from comparison.numerics.row_tally import RowTally
from comparison.numerics.sums import SMALLEST_DENOMINATOR, Sums
from comparison.numerics.ulp import UlpUnit
from comparison.schema.outcome import (
    Judged,
    Metrics,
    NonFiniteCounts,
    NothingFinite,
    NotJudged,
    Shape,
)
from comparison.schema.tolerance import Tolerance

# The greatest float64, 2**64 times, then still has a sum.
_SCALE = 2.0**-64


class Measurement:
    """What has been seen of a pair so far."""

    def __init__(
        self,
        *,
        shape: Shape,
        kind: Kind,
        tolerance: Tolerance | None,
        wide: bool,
        unit: UlpUnit | None,
    ) -> None:
        """Begin with nothing.

        Args:
            shape: the compared shape.
            kind: of both sides.
            tolerance: what to judge by.
            wide: as Sums.
            unit: whose units in the last place to count in; None for what is no real float.
        """
        self._shape = shape
        self._kind = kind
        self._tolerance = tolerance
        self._sums = Sums(wide=wide)
        self._absolute_sum = 0.0
        self._scaled_sum = 0.0  # for a sum that overflows though the mean does not
        self._elements = 0
        self._failed = 0
        self._absolute = GreatestTally()
        self._relative = GreatestTally()
        self._tally = NonFiniteTally(shape=shape)
        self._unit, self._greatest_ulp = unit, 0.0
        self._rows = RowTally(shape)

    def add(self, chunk: Chunk) -> None:
        """Measure one chunk."""
        if chunk.reference.size == 0:
            return
        differences = subtract(chunk, self._kind)
        excluded = differences.excluded
        if excluded is not None:
            self._add_non_finite(differences, excluded, chunk.start)
            if excluded.all():
                return
        self._add_finite(differences, chunk)

    def add_stretch(self, stretch: Stretch, block: Block) -> None:
        """Take in what was measured of a stretch of a block."""
        sums, counts = stretch.sums, stretch.counts
        unlike = counts[layout.AT_UNLIKE]
        self._tally.add_counts(
            counts[layout.CLASSES :], None if unlike < 0 else stretch.start + unlike
        )
        self._failed += counts[layout.FAILED]
        if not counts[layout.FINITE]:
            return
        self._elements += counts[layout.FINITE]
        self._absolute_sum += sums[layout.ABSOLUTE]
        self._sums.add_sums(*sums[layout.SQUARES : layout.PRODUCT + 1])
        absolute = sums[layout.PEAK_ABSOLUTE]
        exact = absolute if self._kind is Kind.FLOAT else int(absolute)
        self._absolute.offer_one(exact, block, counts[layout.AT_ABSOLUTE], self._kind)
        relative = sums[layout.PEAK_RELATIVE]
        self._relative.offer_one(relative, block, counts[layout.AT_RELATIVE], self._kind)
        start = stretch.start + stretch.begin
        if stretch.is_piece:
            self._rows.add_piece(sums[layout.SQUARES], sums[layout.REFERENCE], start=start)
        else:
            worst = math.sqrt(max(0.0, sums[layout.WORST_ROW]))
            self._rows.add_worst(counts[layout.AT_ROW], worst, start=stretch.start)
        if self._unit is not None:
            ulp = math.ldexp(sums[layout.PEAK_ULP], self._unit.mantissa)
            self._greatest_ulp = max(self._greatest_ulp, ulp)

    def _add_non_finite(self, differences: Differences, excluded: Array, start: int) -> None:
        where = np.flatnonzero(excluded)
        self._tally.add(
            reference=differences.reference[where],
            candidate=differences.candidate[where],
            positions=where + start,
        )
        differences.reference[where] = 0
        differences.candidate[where] = 0

    def _add_finite(self, differences: Differences, chunk: Chunk) -> None:
        absolute, excluded = differences.absolute, differences.excluded
        # Complex magnitudes may overflow; the greatest float keeps quotients from being NaN.
        with np.errstate(over="ignore"):
            magnitude = np.abs(differences.reference)
            if self._kind is Kind.COMPLEX:
                np.minimum(magnitude, np.finfo(np.float64).max, out=magnitude)
            self._judge(differences, magnitude)
            self._add_rows(*self._sum(differences), start=chunk.start)
            if self._unit is not None:
                ulp = self._unit.greatest(differences.reference, absolute)
                self._greatest_ulp = max(self._greatest_ulp, ulp)
            np.maximum(magnitude, SMALLEST_DENOMINATOR, out=magnitude)
            relative = np.divide(absolute, magnitude, out=magnitude)
        exact = absolute if differences.exact is None else differences.exact
        self._absolute.offer(exact, chunk, self._kind, excluded)
        self._relative.offer(relative, chunk, self._kind, excluded)
        excluded_count = 0 if excluded is None else int(np.count_nonzero(excluded))
        self._elements += absolute.size - excluded_count

    def _add_rows(self, difference: Array, reference: Array, *, start: int) -> None:
        squares = [np.square(values) for values in (difference, reference)]
        if self._kind is Kind.COMPLEX:  # of the parts, if not of the magnitudes
            squares[1] = squares[1].reshape(-1, 2).sum(axis=1)
            if self._sums.wide:
                squares[0] = squares[0].reshape(-1, 2).sum(axis=1)
        self._rows.add(*squares, start=start, exponent=self._sums.exponent)

    def _judge(self, differences: Differences, magnitude: Array) -> None:
        tolerance = self._tolerance
        if tolerance is None:
            return
        if differences.exact is not None:
            beyond = differences.exact != 0
        elif tolerance.rtol == 0:
            beyond = differences.absolute > tolerance.atol
        else:
            allowed = magnitude * tolerance.rtol
            allowed += tolerance.atol
            beyond = differences.absolute > allowed
        self._failed += int(np.count_nonzero(beyond))

    def _sum(self, differences: Differences) -> tuple[Array, Array]:
        self._absolute_sum += float(differences.absolute.sum())
        if self._sums.wide:
            self._scaled_sum += float((differences.absolute * _SCALE).sum())
        return self._sums.add(
            reference=differences.reference.view(np.float64),
            candidate=differences.candidate.view(np.float64),
            absolute=differences.absolute,
        )

    def metrics(self) -> Metrics | NothingFinite:
        """Give the differences over all finite elements."""
        if self._elements == 0:
            empty = math.prod(self._shape) == 0
            return NothingFinite(
                reason="the tensors are empty" if empty else "no element is finite on both sides"
            )
        return Metrics(
            elements=self._elements,
            greatest_absolute=self._absolute.as_extreme(self._shape),
            greatest_relative=self._relative.as_extreme(self._shape),
            mean_absolute=self._mean_absolute(),
            relative_l2=self._sums.relative_l2(),
            cosine=self._sums.cosine(),
            greatest_ulp=None if self._unit is None else self._greatest_ulp,
            worst_row=self._rows.worst(),
        )

    def _mean_absolute(self) -> float:
        if math.isfinite(self._absolute_sum):
            return self._absolute_sum / self._elements
        return self._scaled_sum / self._elements / _SCALE

    def non_finite(self) -> NonFiniteCounts:
        """Give the counts of NaN and infinity."""
        return self._tally.counts()

    def judgement(self) -> Judged | NotJudged:
        """Give the number of elements that do not pass."""
        if self._tolerance is None:
            return NotJudged()
        counts = self._tally.counts()
        failed = self._failed + counts.differing
        failed += 0 if self._tolerance.equal_nan else counts.nan_both
        failed += 0 if self._tolerance.equal_inf else counts.inf_same_sign
        return Judged(failed=failed, total=math.prod(self._shape))
