"""How far a tensor may be off by rounding alone, and how far it is.

The expected rounding error of a tensor is measured: the same computation in float64 and in the
run's dtype, on the same inputs. Two lower bounds keep it from being too small: half a unit in the
last place of the result, and what the plain serial sum of K float32 products costs (Higham,
Accuracy and Stability of Numerical Algorithms, section 3.1: errors grow as the root of K under a
random model), since one engine's blocked sums may be more exact than another's.

Legend: n positions, F features of one position.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from comparison.numerics.dtypes import Array

# Unit roundoff; doubled for the narrow ones, since engines cast intermediate results too.
_UNIT_ROUNDOFF = {
    "float64": 2.0**-53,
    "float32": 2.0**-24,
    "float16": 2.0**-10,
    "bfloat16": 2.0**-8,
    "complex128": 2.0**-53,
    "complex64": 2.0**-24,
}
_WIDE = ("float64", "complex128")  # as exact as what they are held against
_SERIAL_SUM = 2.4e-8  # of float32 products, a term; the error is this times sqrt(K / 2)
# A position or channel may by luck be exact in the measured run: it gets this share of the whole.
_LEAST_SHARE = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """What rounding explains of a tensor, as root mean squares.

    Attributes:
        whole: of the tensor.
        by_position: of each position, [n].
        by_channel: of each channel of the flattened rest, [F].
    """

    whole: float
    by_position: Array
    by_channel: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Excess:
    """The candidate's error in units of what rounding explains; about 1 where nothing is wrong.

    Attributes:
        whole: root mean square over the tensor.
        by_position: root mean square of each position, [n].
        by_channel: root mean square of each channel of the flattened rest, [F].
        error: the candidate's error, relative to the tensor's root mean square.
        bound: what rounding explains, relative to the same.
    """

    whole: float
    by_position: Array
    by_channel: Array
    error: float
    bound: float


def rounding_floor(*, native: Array, exact: Array, dtype: str, longest_sum: int) -> Floor:
    """Say what rounding explains.

    Args:
        native: the reference's values in the run's dtype, [n, ...].
        exact: the reference's in float64, on the same inputs, [n, ...].
        dtype: name of the run's dtype.
        longest_sum: greatest number of terms of a sum of products in this computation.
    """
    y, own = _flat(exact), _flat(native)
    finite = np.isfinite(y) & np.isfinite(own)
    y, own = np.where(finite, y, 0.0), np.where(finite, own, 0.0) - np.where(finite, y, 0.0)
    relative = _lower_bound(dtype, longest_sum)
    whole = max(float(_rms(own)), relative * float(_rms(y)), _TINY)
    positions = np.maximum(_rms(own, axis=1), relative * _rms(y, axis=1))
    channels = np.maximum(_rms(own, axis=0), relative * _rms(y, axis=0))
    return Floor(
        whole=whole,
        by_position=np.maximum(positions, _LEAST_SHARE * whole),
        by_channel=np.maximum(channels, whole),
    )


def excess_error(candidate: Array, exact: Array, floor: Floor) -> Excess:
    """Hold the candidate's values against the reference's in float64.

    Args:
        candidate: its values, [n, ...].
        exact: the reference's in float64, [n, ...].
        floor: what rounding explains.
    """
    y = _flat(exact)
    finite = np.isfinite(y)
    # Where the exact value is no number, no error can be told from it.
    y = np.where(finite, y, 0.0)
    mine, infinite = _flat(candidate), np.isinf(_flat(exact))
    error = np.where(finite, mine - y, 0.0)
    error = np.where(infinite & (mine != _flat(exact)), np.inf, error)
    scale = max(float(_rms(y)), _TINY)
    return Excess(
        whole=float(_rms(error)) / floor.whole,
        by_position=_rms(error, axis=1) / floor.by_position,
        by_channel=_rms(error, axis=0) / floor.by_channel,
        error=float(_rms(error)) / scale,
        bound=floor.whole / scale,
    )


_TINY = 1e-300


def _lower_bound(dtype: str, longest_sum: int) -> float:
    half_unit = _UNIT_ROUNDOFF.get(dtype, 2.0**-24) / math.sqrt(3)
    serial = 0.0 if dtype in _WIDE else _SERIAL_SUM * math.sqrt(longest_sum / 2)
    return max(half_unit, serial)


def widened(values: Array) -> Array:
    """Return values of any dtype in float64, complex ones in complex128."""
    plain = np.asarray(values)
    return plain.astype(np.complex128 if plain.dtype.kind == "c" else np.float64)


def _flat(values: Array) -> Array:
    wide = widened(values)
    return wide.reshape(wide.shape[0], -1)


def _rms(values: Array, axis: int | None = None) -> Array:
    """Return the root mean square of magnitudes, so that no part of a complex number is lost."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.sqrt(np.mean(np.square(np.abs(values)), axis=axis))
