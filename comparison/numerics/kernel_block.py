"""Compiled code that measures a block of float64; imported to compile it, and then alone.

A block is passed over by three short loops, which the compiler turns into vector instructions; one
loop for everything runs out of registers and is slower.
"""

import math
from typing import Any

from llvmlite import ir
from numba import types

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
    counts[FAILED] += _count_failed(r, d, limits[0], limits[1])
    absolute, relative, ulp = _peaks(r, d, limits[2])
    if absolute > sums[PEAK_ABSOLUTE]:
        sums[PEAK_ABSOLUTE] = absolute
        counts[AT_ABSOLUTE] = begin + _find_absolute(d, excluded, absolute)
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
def _count_failed(r: Any, d: Any, rtol: float, atol: float) -> int:
    failed = 0
    for i in range(r.size):
        failed += d[i] > abs(r[i]) * rtol + atol
    return failed


@compiled()
def _peaks(r: Any, d: Any, least: float) -> tuple[float, float, float]:
    """Return the greatest absolute and relative difference, and that in units of 2**exponent."""
    absolute = relative = ulp = 0  # the bits of floats above zero are in the floats' order
    for i in range(r.size):
        magnitude, distance = abs(r[i]), d[i]
        absolute = max(absolute, _bits_of(distance))
        floor = magnitude if magnitude > SMALLEST_DENOMINATOR else SMALLEST_DENOMINATOR
        relative = max(relative, _bits_of(distance / floor))
        normal = magnitude if magnitude > least else least
        unit = _float_of(RECIPROCAL - (_bits_of(normal) & EXPONENT))
        ulp = max(ulp, _bits_of(distance * unit))
    return _float_of(absolute), _float_of(relative), _float_of(ulp)


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
