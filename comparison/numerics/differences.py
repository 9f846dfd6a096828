"""The differences within one chunk, by kind of number."""

from dataclasses import dataclass

import numpy as np

from comparison.numerics.blocks import Chunk
from comparison.numerics.dtypes import Array, Kind, kind_of, widen_into


@dataclass(frozen=True, slots=True, kw_only=True)
class Differences:
    """A chunk in float64, flat.

    Attributes:
        reference: [n] float64, or complex128; 0 where excluded.
        candidate: as reference.
        absolute: [n] float64, |candidate - reference|; 0 where excluded.
        exact: [n] the same as exact integers, for integers and booleans; else None.
        excluded: [n] bool, elements that are not finite on both sides; None where all are.
    """

    reference: Array
    candidate: Array
    absolute: Array
    exact: Array | None = None
    excluded: Array | None = None


def subtract(chunk: Chunk, kind: Kind) -> Differences:
    """Subtract the reference from the candidate.

    Args:
        chunk: both sides of one kind.
        kind: the kind of both sides.
    """
    if kind in (Kind.BOOL, Kind.INTEGER):
        return _subtract_integers(chunk)
    return _subtract_floats(chunk, np.complex128 if kind is Kind.COMPLEX else np.float64)


def _subtract_floats(chunk: Chunk, wide: type[np.float64] | type[np.complex128]) -> Differences:
    # Overflow gives inf, and what is not finite gives inf or NaN: both are looked into below.
    with np.errstate(invalid="ignore", over="ignore"):
        reference, candidate = _widen(chunk.reference, wide), _widen(chunk.candidate, wide)
        difference = candidate - reference
        absolute = np.abs(difference, out=None if wide is np.complex128 else difference)
        peak = absolute.max(initial=0.0)  # NaN, if there is one
    excluded = None
    if not np.isfinite(peak):
        excluded = ~(np.isfinite(reference) & np.isfinite(candidate))
        absolute[excluded] = 0
    return Differences(
        reference=reference, candidate=candidate, absolute=absolute, excluded=excluded
    )


def _widen(source: Array, wide: type[np.float64] | type[np.complex128]) -> Array:
    target = np.empty(source.shape, wide)
    if wide is np.complex128:
        np.copyto(target, source)
    else:
        widen_into(source, target)
    return target.reshape(-1)


def _subtract_integers(chunk: Chunk) -> Differences:
    reference = np.ascontiguousarray(chunk.reference).reshape(-1)
    candidate = np.ascontiguousarray(chunk.candidate).reshape(-1)
    exact = _exact_distance(reference, candidate)
    return Differences(
        reference=reference.astype(np.float64),
        candidate=candidate.astype(np.float64),
        absolute=exact.astype(np.float64),
        exact=exact,
    )


def _exact_distance(reference: Array, candidate: Array) -> Array:
    """Give |candidate - reference| without rounding or overflow."""
    if max(reference.dtype.itemsize, candidate.dtype.itemsize) <= 4:
        narrow: Array = np.abs(candidate.astype(np.int64) - reference.astype(np.int64))
        return narrow
    unsigned = np.uint64 in (reference.dtype.type, candidate.dtype.type)
    if unsigned and min(reference.min(initial=0), candidate.min(initial=0)) < 0:
        # A distance of up to 2**64 + 2**63 has no numpy dtype.
        big: Array = np.abs(candidate.astype(object) - reference.astype(object))
        return big
    wide = np.uint64 if unsigned else np.int64
    reference, candidate = reference.astype(wide), candidate.astype(wide)
    swap = candidate < reference
    # Differences modulo 2**64 of the greater and the lesser are the true ones.
    distance: Array = candidate.view(np.uint64) - reference.view(np.uint64)
    distance[swap] = np.negative(distance[swap])
    return distance


def check_kinds(reference: Array, candidate: Array) -> Kind | None:
    """Give the kind of both arrays, or None where they differ.

    Raises:
        UnsupportedFormatError: an array that holds no numbers.
    """
    kind = kind_of(reference.dtype)
    return kind if kind is kind_of(candidate.dtype) else None
