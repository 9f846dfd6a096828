"""The measuring of contiguous arrays as compiled code; imported to compile it, and then alone.

A stretch is cut into blocks that stay in the processor's first cache. Each block is widened to
float64, and measured.

What it is given and gives back is in `kernel_layout`; `kernel_object` keeps what is compiled.
"""

from typing import Any

from numba import carray, cfunc, types

from comparison.numerics.compiled import ANY_ORDER, compiled
from comparison.numerics.kernel_block import measure_block
from comparison.numerics.kernel_layout import (
    AT_ROW,
    AT_UNLIKE,
    BLOCK,
    COUNTS,
    PEAK_ABSOLUTE,
    SUMS,
    WORST_ROW,
)
from comparison.numerics.kernel_widening import widen
from comparison.numerics.sums import SMALLEST_DENOMINATOR

# From this length on a row is a block of its own; shorter ones share a block.
_LONG_ROW = 256


@compiled()
def measure_stretch(
    reference: Any,
    candidate: Any,
    forms: Any,
    tables: Any,
    start: int,
    stop: int,
    row: int,
    limits: Any,
    wide: Any,
    words: Any,
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
        start: first element; the begin of a row, or within one.
        stop: behind the last; the end of a row, or within that one row.
        row: number of elements of a row, or of a piece of one.
        limits: [3] float64: rtol, atol, and the least magnitude whose exponent gives a unit.
        wide: [3, BLOCK] float64, to work in.
        words: [BLOCK] uint16, to work in.
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
            widen(reference, forms[0], tables[0], begin, words, r)
            widen(candidate, forms[1], tables[1], begin, words, c)
            measure_block(r, c, d, excluded[:size], begin, limits, sums, counts, of_row)
        if height == 1:
            _offer_row(of_row[0], of_row[1], first // row, sums, counts)
        else:
            _offer_rows(wide[0, : last - first], wide[2], row, first // row, sums, counts)


@compiled(*ANY_ORDER)
def _offer_rows(r: Any, d: Any, row: int, number: int, sums: Any, counts: Any) -> None:
    for first in range(0, r.size, row):
        squares = reference = 0.0
        of_reference, of_difference = r[first : first + row], d[first : first + row]
        for i in range(of_reference.size):
            squares += of_difference[i] * of_difference[i]
            reference += of_reference[i] * of_reference[i]
        _offer_row(squares, reference, number + first // row, sums, counts)


@compiled()
def _offer_row(squares: float, reference: float, number: int, sums: Any, counts: Any) -> None:
    distance = squares / max(reference, SMALLEST_DENOMINATOR * SMALLEST_DENOMINATOR)
    if distance > sums[WORST_ROW]:
        sums[WORST_ROW] = distance
        counts[AT_ROW] = number


_BYTES, _WORDS = types.CPointer(types.uint8), types.CPointer(types.uint16)
_WIDE, _LONG = types.CPointer(types.float64), types.CPointer(types.int64)
_Size = types.int64


@cfunc(  # type: ignore[untyped-decorator]  # numba has no types
    types.void(
        *(_BYTES, _BYTES, _LONG, _WIDE, _Size, _Size, _Size, _WIDE),
        *(_WIDE, _WORDS, _BYTES, _WIDE, _WIDE, _LONG),
    ),
    error_model="numpy",
)
def entry(
    reference: Any,
    candidate: Any,
    forms: Any,
    tables: Any,
    start: int,
    stop: int,
    row: int,
    limits: Any,
    wide: Any,
    words: Any,
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
        start,
        stop,
        row,
        carray(limits, 3),
        carray(wide, (3, BLOCK)),
        carray(words, BLOCK),
        carray(excluded, BLOCK),
        carray(of_row, 2),
        carray(sums, SUMS),
        carray(counts, COUNTS),
    )
