"""Compiled code that measures a block of float64; imported to compile it, and then alone.

A block is passed over by two short loops, which the compiler turns into vector instructions; one
loop for everything runs out of registers and is slower. A third one divides, where a division may
change the outcome.
"""

import math
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from comparison.numerics.compiled import ANY_ORDER, compiled, intrinsic_of
from comparison.numerics.kernel_layout import (
    AT_ABSOLUTE,
    AT_RELATIVE,
    AT_UNLIKE,
    CANDIDATE,
    CLASSES,
    FAILED,
    FINITE,
    PEAK_ABSOLUTE,
    PEAK_RELATIVE,
    PEAK_ULP,
    REFERENCE,
    SQUARES,
)
from comparison.numerics.sums import SMALLEST_DENOMINATOR
from comparison.numerics.ulp import EXPONENT, RECIPROCAL

_bits_of = intrinsic_of(
    types.float64, types.int64, lambda builder, value: builder.bitcast(value, ir.IntType(64))
)
_float_of = intrinsic_of(
    types.int64, types.float64, lambda builder, bits: builder.bitcast(bits, ir.DoubleType())
)


@intrinsic  # type: ignore[untyped-decorator]  # numba has no types
def _fused(_context: Any, a: Any, b: Any, c: Any) -> tuple[Any, Any]:
    """Generate a * b + c, rounded once."""

    def build(_target: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.fma(*arguments)

    return types.float64(a, b, c), build


@compiled()
def measure_block(
    r: Any,
    c: Any,
    d: Any,
    excluded: Any,
    begin: int,
    limits: Any,
    sums: Any,
    counts: Any,
    of_row: Any,
) -> None:
    """Measure elements that are widened already.

    Args:
        r: [n] float64, of the reference; what is not finite is made 0.
        c: as r, of the candidate.
        d: [n] float64, filled in.
        excluded: [n] uint8, to work in.
        begin: position of the first element.
        limits: as in `measure_stretch`.
        sums: added to, as in `measure_stretch`.
        counts: as sums.
        of_row: [2] float64, sums of squares that are added to.
    """
    found = _add_up(r, c, d)
    kept = r.size
    # Squares of what is no wider than float32 cannot overflow: a sum tells of NaN and infinity.
    if not math.isfinite(found[REFERENCE] + found[CANDIDATE]):
        kept -= _exclude(r, c, excluded, begin, counts)
        found = _add_up(r, c, d)
    elif sums[PEAK_ABSOLUTE] < 0:
        excluded[:] = 0
    for which in range(5):
        sums[which] += found[which]
    of_row[0] += found[SQUARES]
    of_row[1] += found[REFERENCE]
    counts[FINITE] += kept
    if kept == 0:
        return
    failed, is_exceeded, absolute, ulp = _judge(r, d, limits, sums[PEAK_RELATIVE])
    counts[FAILED] += failed
    if absolute > sums[PEAK_ABSOLUTE]:
        sums[PEAK_ABSOLUTE] = absolute
        counts[AT_ABSOLUTE] = begin + _find_absolute(d, excluded, absolute)
    if is_exceeded:
        relative = _greatest_relative(r, d)
        if relative > sums[PEAK_RELATIVE]:
            sums[PEAK_RELATIVE] = relative
            counts[AT_RELATIVE] = begin + _find_relative(r, d, excluded, relative)
    sums[PEAK_ULP] = max(sums[PEAK_ULP], ulp)


@compiled(*ANY_ORDER)
def _add_up(r: Any, c: Any, d: Any) -> tuple[float, float, float, float, float]:
    """Fill in |difference|, and return the five sums."""
    absolute = squares = reference = candidate = product = 0.0
    for i in range(r.size):
        x, y = r[i], c[i]
        distance = abs(y - x)
        d[i] = distance
        absolute += distance
        squares += distance * distance
        reference += x * x
        candidate += y * y
        product += x * y
    return absolute, squares, reference, candidate, product


@compiled()
def _judge(r: Any, d: Any, limits: Any, relative: float) -> tuple[int, bool, float, float]:
    """Hold the differences of a block against the limits, and against the greatest so far.

    Args:
        r: [n] float64, of the reference.
        d: [n] float64, |difference|.
        limits: as in `measure_stretch`.
        relative: the greatest relative difference so far, -1 before the first.

    Returns:
        Number of elements that do not pass; whether a relative difference may be greater; the
        greatest absolute difference, and the greatest in units of 2**exponent.
    """
    rtol, atol, least = limits[0], limits[1], limits[2]
    failed = 0
    absolute = excess = ulp = 0  # the bits of floats above zero are in the floats' order
    for i in range(r.size):
        magnitude, distance = abs(r[i]), d[i]
        failed += distance > magnitude * rtol + atol
        absolute = max(absolute, _bits_of(distance))
        # Above 0 where distance / floor is greater, without a division: one rounding keeps signs.
        floor = magnitude if magnitude > SMALLEST_DENOMINATOR else SMALLEST_DENOMINATOR
        excess = max(excess, _bits_of(_fused(-relative, floor, distance)))
        normal = magnitude if magnitude > least else least
        unit = _float_of(RECIPROCAL - (_bits_of(normal) & EXPONENT))
        ulp = max(ulp, _bits_of(distance * unit))
    return failed, excess > 0, _float_of(absolute), _float_of(ulp)


@compiled()
def _greatest_relative(r: Any, d: Any) -> float:
    relative = 0
    for i in range(r.size):
        relative = max(relative, _bits_of(d[i] / max(abs(r[i]), SMALLEST_DENOMINATOR)))
    found: float = _float_of(relative)
    return found


@compiled()
def _find_absolute(d: Any, excluded: Any, value: float) -> int:
    for i in range(d.size):
        if d[i] == value and (value > 0 or not excluded[i]):
            return i
    return 0


@compiled()
def _find_relative(r: Any, d: Any, excluded: Any, value: float) -> int:
    for i in range(d.size):
        relative = d[i] / max(abs(r[i]), SMALLEST_DENOMINATOR)
        if relative == value and (value > 0 or not excluded[i]):
            return i
    return 0


@compiled()
def _exclude(r: Any, c: Any, excluded: Any, begin: int, counts: Any) -> int:
    """Count what is not finite by class, put 0 in its place, and return how many they are."""
    number = 0
    for i in range(r.size):
        x, y = r[i], c[i]
        excluded[i] = not (math.isfinite(x) and math.isfinite(y))
        if not excluded[i]:
            continue
        number += 1
        r[i] = c[i] = 0.0
        kind = _class_of(x, y)
        counts[CLASSES + kind] += 1
        if kind != 0 and kind != 3 and counts[AT_UNLIKE] < 0:
            counts[AT_UNLIKE] = begin + i
    return number


@compiled()
def _class_of(x: float, y: float) -> int:
    """Return the place of a class in NonFiniteCounts."""
    if math.isnan(x) or math.isnan(y):
        if not math.isnan(y):
            return 1
        return 0 if math.isnan(x) else 2
    if math.isinf(x) and math.isinf(y):
        return 3 if x == y else 4
    return 5 if math.isinf(x) else 6
