"""What came of one pair of tensors: a union of small records.

A number that was not measured is not there; it is never NaN or None.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from comparison.schema.estimate import Estimated


class Side(StrEnum):
    """The two roles of a comparison; the engine is a value, not a role."""

    REFERENCE = "reference"
    CANDIDATE = "candidate"

    @property
    def other(self) -> "Side":
        """The other one."""
        return Side.CANDIDATE if self is Side.REFERENCE else Side.REFERENCE


Shape = tuple[int, ...]
Scalar = int | float | complex


@dataclass(frozen=True, slots=True, kw_only=True)
class Extreme:
    """The greatest difference of one kind, and where it is.

    Attributes:
        value: the difference; an exact int for integers and booleans.
        index: where it is, in the shape that was compared.
        reference: the reference's element there.
        candidate: the candidate's element there.
    """

    value: int | float
    index: Shape
    reference: Scalar
    candidate: Scalar


@dataclass(frozen=True, slots=True, kw_only=True)
class RowDistance:
    """How far a row is apart: what lies along the last axis.

    Attributes:
        index: of the row, over the axes before the last.
        relative_l2: as in Metrics, of this row's elements.
    """

    index: Shape
    relative_l2: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """Differences over the elements that are finite on both sides.

    With d = candidate - reference:

    Attributes:
        elements: number of elements that these numbers rest on, at least 1.
        greatest_absolute: greatest |d|.
        greatest_relative: greatest |d| / max(|reference|, 1e-10).
        mean_absolute: mean of |d|.
        relative_l2: ||d|| / max(||reference||, 1e-10).
        cosine: <candidate, reference> / (||candidate|| ||reference||); 1 where both are all
            zero, 0 where one is.
        greatest_ulp: greatest |d| in units in the last place of the reference's element, in the
            coarser dtype of both sides; None for what are no real floats.
        worst_row: the row of the greatest relative L2, the first of equals.
    """

    elements: int
    greatest_absolute: Extreme
    greatest_relative: Extreme
    mean_absolute: float
    relative_l2: float
    cosine: float
    greatest_ulp: float | None
    worst_row: RowDistance

    @property
    def snr_db(self) -> float:
        """Signal-to-noise ratio in decibels; infinite where nothing differs."""
        return -20 * math.log10(self.relative_l2) if self.relative_l2 else math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class NothingFinite:
    """There is no element that is finite on both sides.

    Attributes:
        reason: `the tensors are empty`, or that no element is finite on both sides.
    """

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NonFiniteCounts:
    """Elements that are NaN or infinite on a side; each is counted once, NaN before infinity.

    Attributes:
        nan_both: NaN on both sides.
        nan_reference_only: NaN in the reference only.
        nan_candidate_only: NaN in the candidate only.
        inf_same_sign: the same infinity on both sides.
        inf_opposite_sign: infinite on both sides, of unlike sign.
        inf_reference_only: infinite in the reference, finite in the candidate.
        inf_candidate_only: infinite in the candidate, finite in the reference.
        first_difference: index of the first element, in row-major order, whose class differs
            between the sides; None where no class differs.
    """

    nan_both: int = 0
    nan_reference_only: int = 0
    nan_candidate_only: int = 0
    inf_same_sign: int = 0
    inf_opposite_sign: int = 0
    inf_reference_only: int = 0
    inf_candidate_only: int = 0
    first_difference: Shape | None = None

    @property
    def differing(self) -> int:
        """Number of elements whose class or sign differs between the sides."""
        return (
            self.nan_reference_only
            + self.nan_candidate_only
            + self.inf_opposite_sign
            + self.inf_reference_only
            + self.inf_candidate_only
        )

    @property
    def total(self) -> int:
        """Number of elements that are not finite on both sides."""
        return self.nan_both + self.inf_same_sign + self.differing

    def counts(self) -> Iterator[tuple[str, int]]:
        """Give each class by name with its count, in a fixed order."""
        for name in (
            "nan_both",
            "nan_reference_only",
            "nan_candidate_only",
            "inf_same_sign",
            "inf_opposite_sign",
            "inf_reference_only",
            "inf_candidate_only",
        ):
            yield name, getattr(self, name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A tolerance was given and every element was held against it.

    Attributes:
        failed: number of elements that do not pass, NaN and infinities that may not pass
            among them.
        total: number of all elements.
    """

    failed: int
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NotJudged:
    """No tolerance was given, so there is no verdict on the numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """The pair was measured.

    Attributes:
        shape: the shape that was compared, after equalising.
        reference_dtype: dtype name of the reference.
        candidate_dtype: dtype name of the candidate.
        metrics: differences over finite elements.
        non_finite: counts of NaN and infinity.
        judgement: against the tolerance, if one was given.
    """

    shape: Shape
    reference_dtype: str
    candidate_dtype: str
    metrics: Metrics | NothingFinite
    non_finite: NonFiniteCounts
    judgement: Judged | NotJudged

    @property
    def dtype_differs(self) -> bool:
        """Whether the precision differs; widths of integers are equalised and do not count."""
        if self.reference_dtype == self.candidate_dtype:
            return False
        return not (_is_integer(self.reference_dtype) and _is_integer(self.candidate_dtype))


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeDiffers:
    """The shapes differ and nothing that is known makes them equal.

    Attributes:
        reason: what was tried, and what could be done.
    """

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KindDiffers:
    """One side holds another kind of numbers than the other: bool, integer, float, complex.

    Attributes:
        reference_dtype: dtype name of the reference.
        candidate_dtype: dtype name of the candidate.
    """

    reference_dtype: str
    candidate_dtype: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NotComparable:
    """A side could not be read, or it is not known which elements belong together.

    Attributes:
        reason: what is wrong, with the file.
    """

    reason: str


Outcome = Compared | Estimated | ShapeDiffers | KindDiffers | NotComparable


def _is_integer(dtype: str) -> bool:
    return dtype.startswith(("int", "uint"))
