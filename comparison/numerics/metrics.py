"""Measuring a pair of arrays in one pass, chunk by chunk."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from comparison.numerics.blocks import Block, Chunk, iterate_chunks
from comparison.numerics.differences import Differences, check_kinds, subtract
from comparison.numerics.dtypes import Array, Kind, dtype_name
from comparison.numerics.non_finite import NonFiniteTally
from comparison.numerics.sums import SMALLEST_DENOMINATOR, Sums
from comparison.schema.outcome import (
    Compared,
    Extreme,
    Judged,
    KindDiffers,
    Metrics,
    NonFiniteCounts,
    NothingFinite,
    NotJudged,
    Scalar,
    Shape,
    ShapeDiffers,
)
from comparison.schema.tolerance import Tolerance

# The greatest float64, 2**64 times, then still has a sum.
_SCALE = 2.0**-64


def measure(
    reference: Array, candidate: Array, *, tolerance: Tolerance | None = None
) -> Compared | KindDiffers | ShapeDiffers:
    """Measure two arrays of one shape.

    Args:
        reference: any shape and strides, any numeric dtype; may be memory-mapped.
        candidate: any shape and strides.
        tolerance: what to judge by; None measures without a verdict.

    Raises:
        UnsupportedFormatError: an array that holds no numbers.
    """
    if reference.shape != candidate.shape:
        return ShapeDiffers(reason=f"{reference.shape} against {candidate.shape}")
    block = Block(reference=reference, candidate=candidate)
    return measure_blocks([block], shape=reference.shape, tolerance=tolerance)


def measure_blocks(
    blocks: Sequence[Block], *, shape: Shape, tolerance: Tolerance | None = None
) -> Compared | KindDiffers:
    """Measure a tensor that is given as stretches along its first dimension.

    Args:
        blocks: at least one, in order, each side of one dtype throughout.
        shape: the shape of the whole.
        tolerance: what to judge by; None measures without a verdict.

    Raises:
        UnsupportedFormatError: an array that holds no numbers.
    """
    reference, candidate = blocks[0].reference, blocks[0].candidate
    names = (dtype_name(reference.dtype), dtype_name(candidate.dtype))
    kind = check_kinds(reference, candidate)
    if kind is None:
        return KindDiffers(reference_dtype=names[0], candidate_dtype=names[1])
    wide = any(name in ("float64", "complex128") for name in names)
    measurement = _Measurement(shape=shape, kind=kind, tolerance=tolerance, wide=wide)
    for chunk in iterate_chunks(blocks):
        measurement.add(chunk)
    return Compared(
        shape=shape,
        reference_dtype=names[0],
        candidate_dtype=names[1],
        metrics=measurement.metrics(),
        non_finite=measurement.non_finite(),
        judgement=measurement.judgement(),
    )


@dataclass(slots=True)
class _Candidate:
    """The greatest value so far, with the elements that gave it."""

    value: int | float = -1
    position: int = 0
    reference: Scalar = 0
    candidate: Scalar = 0

    def offer(self, values: Array, chunk: Chunk, kind: Kind, excluded: Array | None) -> None:
        """Take the greatest of a chunk if it is greater."""
        at = int(np.argmax(values))
        value = values[at].item() if isinstance(values[at], np.generic) else values[at]
        if value <= self.value:
            return
        if excluded is not None and excluded[at]:  # all are 0: take one that was measured
            at = int(np.argmin(excluded))
        self.value, self.position = value, chunk.start + at
        self.reference = _element(chunk.reference, at, kind)
        self.candidate = _element(chunk.candidate, at, kind)

    def as_extreme(self, shape: Shape) -> Extreme:
        index = tuple(int(i) for i in np.unravel_index(self.position, shape))
        return Extreme(
            value=self.value, index=index, reference=self.reference, candidate=self.candidate
        )


def _element(array: Array, position: int, kind: Kind) -> Scalar:
    value = array[np.unravel_index(position, array.shape)]
    if kind is Kind.COMPLEX:
        return complex(value)
    return float(value) if kind is Kind.FLOAT else int(value)


class _Measurement:
    """What has been seen of a pair so far."""

    def __init__(
        self, *, shape: Shape, kind: Kind, tolerance: Tolerance | None, wide: bool
    ) -> None:
        self._shape = shape
        self._kind = kind
        self._tolerance = tolerance
        self._sums = Sums(wide=wide)
        self._absolute_sum = 0.0
        self._scaled_sum = 0.0  # for a sum that overflows though the mean does not
        self._elements = 0
        self._failed = 0
        self._absolute = _Candidate()
        self._relative = _Candidate()
        self._tally = NonFiniteTally(shape=shape)

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
            self._sum(differences)
            np.maximum(magnitude, SMALLEST_DENOMINATOR, out=magnitude)
            relative = np.divide(absolute, magnitude, out=magnitude)
        exact = absolute if differences.exact is None else differences.exact
        self._absolute.offer(exact, chunk, self._kind, excluded)
        self._relative.offer(relative, chunk, self._kind, excluded)
        excluded_count = 0 if excluded is None else int(np.count_nonzero(excluded))
        self._elements += absolute.size - excluded_count

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

    def _sum(self, differences: Differences) -> None:
        self._absolute_sum += float(differences.absolute.sum())
        if self._sums.wide:
            self._scaled_sum += float((differences.absolute * _SCALE).sum())
        self._sums.add(
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
