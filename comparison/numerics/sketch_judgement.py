"""What two sketches prove of a pair of tensors, whatever the error of an estimate."""

import math

from comparison.numerics.dtypes import Kind, dtype_of_name, kind_of
from comparison.numerics.sketch_estimate import Distance
from comparison.numerics.tensor_sketch import TensorSketch
from comparison.schema.tolerance import Tolerance

_SLACK = 1 + 1e-5  # extremes and norms that were rounded prove nothing by their last digits


def proven_difference(
    reference: TensorSketch,
    candidate: TensorSketch,
    distance: Distance | None,
    *,
    tolerance: Tolerance | None,
    is_whole: bool,
) -> str:
    """Say what differs without doubt, or beyond the tolerance; empty for nothing.

    Where every element is within the tolerance, |d| <= atol + rtol |b|, then
    ||d|| <= atol sqrt(n) + rtol ||b||, and no extreme is further off than atol + rtol max |b|. What
    breaks that breaks the tolerance; the converse proves nothing, so that agreement follows from
    equal fingerprints alone.

    Args:
        reference: of one side.
        candidate: of the other side.
        distance: of both; None where it could not be told.
        tolerance: what to judge by; None for NaN and infinities alone.
        is_whole: whether all of both was compared, in one order.
    """
    if is_whole and reference.non_finite != candidate.non_finite:
        return "NaN or infinities are not the same, or not at the same places"
    if tolerance is None:
        return ""
    known = reference.statistics
    if known.nan and not tolerance.equal_nan:
        return f"{known.nan} NaN on both sides, which pass with --equal-nan only"
    if known.infinite and not tolerance.equal_inf:
        return f"{known.infinite} infinities on both sides, which pass with --equal-inf only"
    if is_whole and reference.fingerprint == candidate.fingerprint:
        return ""
    if is_whole and _is_exact(reference):
        return "integers or booleans, which have to be equal, are not"
    found = "" if distance is None else _too_far(reference, distance, tolerance)
    return found or (_extremes(reference, candidate, tolerance) if is_whole else "")


def _too_far(reference: TensorSketch, distance: Distance, tolerance: Tolerance) -> str:
    rtol, atol = (0.0, 0.0) if _is_exact(reference) else (tolerance.rtol, tolerance.atol)
    allowed = atol * math.sqrt(math.prod(reference.shape)) + rtol * distance.reference
    if not distance.sure > allowed * _SLACK:
        return ""
    return (
        f"the L2 distance is at least {distance.sure:.3g}, and the tolerance allows {allowed:.3g}"
    )


def _extremes(reference: TensorSketch, candidate: TensorSketch, tolerance: Tolerance) -> str:
    ours, theirs = reference.statistics, candidate.statistics
    greatest = max(abs(ours.minimum), abs(ours.maximum))
    allowed = tolerance.allowed(greatest)
    for name in ("minimum", "maximum"):
        own, other = getattr(ours, name), getattr(theirs, name)
        if abs(own - other) > allowed * _SLACK and ours.infinite + ours.nan == 0:
            return (
                f"the {name} is {own:.6g} and {other:.6g}, and the tolerance allows {allowed:.3g}"
            )
    return ""


def _is_exact(sketch: TensorSketch) -> bool:
    return kind_of(dtype_of_name(sketch.dtype)) in (Kind.BOOL, Kind.INTEGER)
