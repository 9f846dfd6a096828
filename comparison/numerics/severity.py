"""One number a pair, by which the worst is told: how many times what is allowed it is apart."""

import math

import ml_dtypes
import numpy as np

from comparison.numerics.dtypes import Kind, dtype_of_name, kind_of
from comparison.schema.estimate import Estimated
from comparison.schema.outcome import Compared, Extreme, KindDiffers, Metrics, Outcome, ShapeDiffers
from comparison.schema.tolerance import Tolerance


def severity_of(outcome: Outcome, tolerance: Tolerance | None) -> float | None:
    """Say how far a pair is apart.

    Args:
        outcome: what came of it.
        tolerance: what it was judged by; None for none.

    Returns:
        With a tolerance, how many times the allowed difference is reached, at the element of the
        greatest absolute or relative difference. Without one, the relative L2 distance in units of
        one rounding of the coarser dtype. Infinity where the shape, the kind of numbers, a NaN or
        an infinity differs, or numbers differ that have to be equal; None where nothing was
        measured.
    """
    match outcome:
        case ShapeDiffers() | KindDiffers():
            return math.inf
        case Compared() if outcome.non_finite.differing:
            return math.inf
        case Estimated():
            return _estimated(outcome, tolerance)
        case Compared(metrics=Metrics() as metrics):
            return _measured(outcome, metrics, tolerance)
        case _:
            return None


def _estimated(outcome: Estimated, tolerance: Tolerance | None) -> float | None:
    """Take the estimate for the distance; what is allowed of single elements is not known."""
    if outcome.certain:
        return math.inf
    if outcome.identical:
        return 0.0
    unit = unit_of(outcome)
    return None if unit is None or tolerance is not None else outcome.relative_l2.value / unit


def unit_of(outcome: Compared | Estimated) -> float | None:
    """Return one rounding of the coarser dtype of a pair; None for integers and booleans."""
    dtypes = [dtype_of_name(name) for name in (outcome.reference_dtype, outcome.candidate_dtype)]
    if any(kind_of(dtype) not in (Kind.FLOAT, Kind.COMPLEX) for dtype in dtypes):
        return None
    real = [np.dtype("f8" if d.itemsize == 16 else "f4") if d.kind == "c" else d for d in dtypes]
    return float(max(ml_dtypes.finfo(dtype).eps for dtype in real)) / 2


def _measured(outcome: Compared, metrics: Metrics, tolerance: Tolerance | None) -> float:
    if metrics.greatest_absolute.value == 0:
        return 0.0
    unit = unit_of(outcome)
    if unit is None:
        return math.inf
    if tolerance is None:
        return metrics.relative_l2 / unit
    both = metrics.greatest_absolute, metrics.greatest_relative
    return max(_times_allowed(extreme, tolerance) for extreme in both)


def _times_allowed(extreme: Extreme, tolerance: Tolerance) -> float:
    difference = abs(extreme.candidate - extreme.reference)
    allowed = tolerance.allowed(extreme.reference)
    if allowed == 0:
        return math.inf if difference else 0.0
    return difference / allowed
