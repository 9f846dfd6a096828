"""The measuring of contiguous arrays as compiled code; imported to compile it, and then alone.

A stretch is cut into blocks that stay in the processor's first cache. Each block is widened to
float64, and passed over by three short loops, which the compiler turns into vector
instructions; one loop for everything runs out of registers and is slower.

What it is given and gives back is in `kernel_layout`; `kernel_object` keeps what is compiled.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import carray, cfunc, njit, types
from numba.extending import intrinsic

from comparison.numerics.kernel_layout import (
    AT_ABSOLUTE,
    AT_RELATIVE,
    AT_ROW,
    AT_UNLIKE,
    BFLOAT16,
    BLOCK,
    BY_CODE,
    CANDIDATE,
    CLASSES,
    COUNTS,
    FAILED,
    FINITE,
    FLOAT32,
    INT16,
    INT32,
    LAYOUT,
    PEAK_ABSOLUTE,
    PEAK_RELATIVE,
    PEAK_ULP,
    REFERENCE,
    SMALL_8,
    SMALL_16,
    SQUARES,
    SUMS,
    UINT16,
    WORST_ROW,
)
from comparison.numerics.sums import SMALLEST_DENOMINATOR
from comparison.numerics.ulp import EXPONENT, RECIPROCAL

# From this length on a row is a block of its own; shorter ones share a block.
_LONG_ROW = 256

# Sums may be taken in any order, and a product and a sum be rounded once.
_ANY_ORDER = ("reassoc", "nsz", "contract")

_Function = Callable[..., Any]


def _compiled(*fastmath: str) -> Callable[[_Function], _Function]:
    """Compile a function on its first call.

    Args:
        fastmath: what the compiler may do beyond the order of operations that is written.
    """

    def compile_function(function: _Function) -> _Function:
        result: _Function = njit(nogil=True, error_model="numpy", fastmath=set(fastmath) or False)(
            function
        )
        return result

    return compile_function


def _bitcast(source: Any, target: Any) -> _Function:
    def typed(_context: Any, _value: Any) -> tuple[Any, _Function]:
        def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            return builder.bitcast(arguments[0], context.get_value_type(target))

        return target(source), generate

    result: _Function = intrinsic(typed)
    return result


_bits_of = _bitcast(types.float64, types.int64)
_float_of = _bitcast(types.int64, types.float64)
_float32_of = _bitcast(types.int32, types.float32)


@intrinsic  # type: ignore[untyped-decorator]  # numba has no types
def _float32_of_code(
    _context: Any,
    code: Any,
    mask: Any,
    normal: Any,
    shift: Any,
    bias: Any,
    special: Any,
    sign: Any,
    unit: Any,
) -> tuple[Any, _Function]:
    """Widen a code of a float of at most 16 bits; numba itself would count in 64 bits.

    Args:
        code: int32.
        mask: the bits of exponent and mantissa.
        normal: the least magnitude with the leading bit left out; below, it is a count of units.
        shift: places from the mantissa to that of float32.
        bias: what the exponent lacks, at its place in float32.
        special: the least magnitude that is NaN or infinite.
        sign: places from the sign bit to that of float32.
        unit: float32, what the least mantissa bit of a number below the normal ones is worth.
    """

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        code, mask, normal, shift, bias, special, sign, unit = arguments
        zero, ones, top = (
            context.get_constant(types.int32, value) for value in (0, 0x7F800000, -(1 << 31))
        )
        real = context.get_value_type(types.float32)
        magnitude = builder.and_(code, mask)
        bits = builder.add(builder.shl(magnitude, shift), bias)
        units = builder.bitcast(builder.fmul(builder.sitofp(magnitude, real), unit), ones.type)
        bits = builder.select(builder.icmp_signed("<", magnitude, normal), units, bits)
        is_special = builder.icmp_signed(">=", magnitude, special)
        bits = builder.or_(bits, builder.select(is_special, ones, zero))
        bits = builder.or_(bits, builder.and_(builder.shl(code, sign), top))
        return builder.bitcast(bits, real)

    return types.float32(*[types.int32] * 7, types.float32), generate


@_compiled()
def measure_stretch(
    reference: Any,
    candidate: Any,
    forms: Any,
    tables: Any,
    layouts: Any,
    start: int,
    stop: int,
    row: int,
    limits: Any,
    wide: Any,
    narrow: Any,
    excluded: Any,
    of_row: Any,
    sums: Any,
    counts: Any,
) -> None:
    """Measure the elements from `start` to `stop`.

    Args:
        reference: the bytes of all elements.
        candidate: as reference.
        forms: [2] int64, how to widen either side.
        tables: [2, 256] float64, values by code for sides of one byte an element.
        layouts: [2, LAYOUT] int32, where the parts of a code are.
        start: first element; the begin of a row, or within one.
        stop: behind the last; the end of a row, or within that one row.
        row: number of elements of a row, or of a piece of one.
        limits: [3] float64: rtol, atol, and the least magnitude whose exponent gives a unit.
        wide: [3, BLOCK] float64, to work in.
        narrow: [BLOCK] float32, to work in.
        excluded: [BLOCK] uint8, to work in.
        of_row: [2] float64, to work in.
        sums: [SUMS] float64, written.
        counts: [COUNTS] int64, written.
    """
    sums[:] = 0.0
    counts[:] = 0
    sums[PEAK_ABSOLUTE:] = -1.0
    counts[AT_UNLIKE] = -1
    height = max(1, BLOCK // row) if row < _LONG_ROW else 1
    for first in range(start, stop, height * row):
        last = min(first + height * row, stop)
        of_row[:] = 0.0
        for begin in range(first, last, BLOCK):
            size = min(BLOCK, last - begin)
            r, c, d = wide[0, :size], wide[1, :size], wide[2, :size]
            _widen(reference, forms[0], tables[0], layouts[0], begin, narrow, r)
            _widen(candidate, forms[1], tables[1], layouts[1], begin, narrow, c)
            _measure_block(r, c, d, excluded[:size], begin, limits, sums, counts, of_row)
        if height == 1:
            _offer_row(of_row[0], of_row[1], first // row, sums, counts)
        else:
            _offer_rows(wide[0, : last - first], wide[2], row, first // row, sums, counts)


@_compiled()
def _measure_block(
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


@_compiled(*_ANY_ORDER)
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


@_compiled()
def _count_failed(r: Any, d: Any, rtol: float, atol: float) -> int:
    failed = 0
    for i in range(r.size):
        failed += d[i] > abs(r[i]) * rtol + atol
    return failed


@_compiled()
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


@_compiled()
def _find_absolute(d: Any, excluded: Any, value: float) -> int:
    for i in range(d.size):
        if d[i] == value and (value > 0 or not excluded[i]):
            return i
    return 0


@_compiled()
def _find_relative(r: Any, d: Any, excluded: Any, value: float) -> int:
    for i in range(d.size):
        relative = d[i] / max(abs(r[i]), SMALLEST_DENOMINATOR)
        if relative == value and (value > 0 or not excluded[i]):
            return i
    return 0


@_compiled()
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


@_compiled()
def _class_of(x: float, y: float) -> int:
    """Return the place of a class in NonFiniteCounts."""
    if math.isnan(x) or math.isnan(y):
        if not math.isnan(y):
            return 1
        return 0 if math.isnan(x) else 2
    if math.isinf(x) and math.isinf(y):
        return 3 if x == y else 4
    return 5 if math.isinf(x) else 6


@_compiled(*_ANY_ORDER)
def _offer_rows(r: Any, d: Any, row: int, number: int, sums: Any, counts: Any) -> None:
    for first in range(0, r.size, row):
        squares = reference = 0.0
        of_reference, of_difference = r[first : first + row], d[first : first + row]
        for i in range(of_reference.size):
            squares += of_difference[i] * of_difference[i]
            reference += of_reference[i] * of_reference[i]
        _offer_row(squares, reference, number + first // row, sums, counts)


@_compiled()
def _offer_row(squares: float, reference: float, number: int, sums: Any, counts: Any) -> None:
    distance = squares / max(reference, SMALLEST_DENOMINATOR * SMALLEST_DENOMINATOR)
    if distance > sums[WORST_ROW]:
        sums[WORST_ROW] = distance
        counts[AT_ROW] = number


@_compiled()
def _widen(
    source: Any, form: int, table: Any, layout: Any, begin: int, narrow: Any, target: Any
) -> None:
    """Widen elements.

    Args:
        source: the bytes of all elements.
        form: how they are to be read.
        table: [256] float64, values by code, for BY_CODE.
        layout: [LAYOUT] int32, where the parts of a code are, for SMALL_16 and SMALL_8.
        begin: first element.
        narrow: float32, to work in.
        target: float64, filled in.
    """
    end = begin + target.size
    if form == BY_CODE:
        _by_code(source[begin:end], table, target)
    elif form == FLOAT32:
        _cast(source.view(np.float32)[begin:end], target)
    elif form == BFLOAT16:
        _from_bfloat16(source.view(np.uint16)[begin:end], target)
    elif form == SMALL_16:
        _from_small(source.view(np.uint16)[begin:end], layout, narrow, target)
    elif form == SMALL_8:
        _from_small(source[begin:end], layout, narrow, target)
    elif form == INT16:
        _cast(source.view(np.int16)[begin:end], target)
    elif form == UINT16:
        _cast(source.view(np.uint16)[begin:end], target)
    elif form == INT32:
        _cast(source.view(np.int32)[begin:end], target)
    else:
        _cast(source.view(np.uint32)[begin:end], target)


@_compiled()
def _cast(source: Any, target: Any) -> None:
    for i in range(source.size):
        target[i] = source[i]


@_compiled()
def _by_code(source: Any, table: Any, target: Any) -> None:
    for i in range(source.size):
        target[i] = table[source[i]]


@_compiled()
def _from_bfloat16(source: Any, target: Any) -> None:
    for i in range(source.size):
        target[i] = _float32_of(np.int32(source[i]) << 16)


@_compiled()
def _from_small(source: Any, layout: Any, narrow: Any, target: Any) -> None:
    mask, normal, shift, bias, special, sign = (
        layout[0],
        layout[1],
        layout[2],
        layout[3],
        layout[4],
        layout[5],
    )
    unit = _float32_of(layout[6])
    for i in range(source.size):  # apart from the cast to float64, to take 8 elements at once
        narrow[i] = _float32_of_code(
            np.int32(source[i]), mask, normal, shift, bias, special, sign, unit
        )
    _cast(narrow[: source.size], target)


_BYTES, _WIDE, _NARROW = (types.CPointer(t) for t in (types.uint8, types.float64, types.float32))
_LONG, _INT = types.CPointer(types.int64), types.CPointer(types.int32)
_Size = types.int64


@cfunc(  # type: ignore[untyped-decorator]  # numba has no types
    types.void(
        *(_BYTES, _BYTES, _LONG, _WIDE, _INT, _Size, _Size, _Size, _WIDE),
        *(_WIDE, _NARROW, _BYTES, _WIDE, _WIDE, _LONG),
    ),
    error_model="numpy",
)
def entry(
    reference: Any,
    candidate: Any,
    forms: Any,
    tables: Any,
    layouts: Any,
    start: int,
    stop: int,
    row: int,
    limits: Any,
    wide: Any,
    narrow: Any,
    excluded: Any,
    of_row: Any,
    sums: Any,
    counts: Any,
) -> None:
    """Call `measure_stretch` with pointers in the place of arrays."""
    measure_stretch(
        carray(reference, stop * 8),
        carray(candidate, stop * 8),
        carray(forms, 2),
        carray(tables, (2, 256)),
        carray(layouts, (2, LAYOUT)),
        start,
        stop,
        row,
        carray(limits, 3),
        carray(wide, (3, BLOCK)),
        carray(narrow, BLOCK),
        carray(excluded, BLOCK),
        carray(of_row, 2),
        carray(sums, SUMS),
        carray(counts, COUNTS),
    )
