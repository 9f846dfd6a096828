"""What sketches tell of a pair of tensors: estimates, each with its error."""

from dataclasses import dataclass

CONFIDENCE = 0.95  # of the intervals


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A number that was estimated.

    Attributes:
        value: the estimate.
        low: lower end of the interval that holds the true number in 95 of 100 cases.
        high: its upper end.
    """

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimated:
    """The pair was not measured but estimated from sketches.

    Attributes:
        shape: the shape that was compared, after equalising.
        reference_dtype: dtype name of the reference.
        candidate_dtype: dtype name of the candidate.
        relative_l2: of ||candidate - reference|| / max(||reference||, 1e-10).
        cosine: of the angle between both.
        basis: `fingerprints` where both are equal, `projections`, or `statistics` where the
            interval is all that is known; the values are then those of the nearest tensors with
            such statistics.
        identical: whether both have the same values, bit for bit.
        certain: what differs without doubt, in words; empty for nothing.
        is_judged: whether a tolerance was given.
    """

    shape: tuple[int, ...]
    reference_dtype: str
    candidate_dtype: str
    relative_l2: Estimate
    cosine: Estimate
    basis: str
    identical: bool
    certain: str = ""
    is_judged: bool = False
