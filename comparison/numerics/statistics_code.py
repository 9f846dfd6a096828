"""Statistics and fingerprint of float32 values in one pass, as compiled code.

Imported to compile it, and then alone; `statistics_kernel` calls what was compiled.
"""

from typing import Any

import numpy as np
from numba import carray, cfunc, types

from comparison.numerics.compiled import ANY_ORDER, compiled, float32_of_bits
from comparison.numerics.statistics_layout import BLOCK, CHUNK, NUMBERS, STEP

_STEP = np.uint64(STEP)
_HALF = np.uint64(32)
_SIGN = np.int32(31)
_FIRST, _LAST = np.int32(-(1 << 31)), np.int32((1 << 31) - 1)


@compiled()
def chunk_statistics(
    words: Any, weights: Any, first: int, last: int, mixed: Any, numbers: Any
) -> None:
    """Go through chunks of values.

    Args:
        words: [W] uint64, two values of float32 each.
        weights: [BLOCK] uint64, of the fingerprint's first block.
        first: the first chunk.
        last: the chunk after the last one.
        mixed: [chunks] uint64, the fingerprint's sum of each.
        numbers: [chunks, NUMBERS] float64: least, greatest, sum, and sum of squares, which alone
            tells whether all values are finite.
    """
    values, bits = words.view(np.float32), words.view(np.int32)
    for chunk in range(first, last):
        begin, end = chunk * CHUNK, min(words.size, (chunk + 1) * CHUNK)
        product, factor = np.uint64(0), np.uint64(1)
        least, greatest = np.float32(np.inf), np.float32(-np.inf)
        total, squares = 0.0, 0.0
        for start in range(begin, end, BLOCK):
            stop = min(end, start + BLOCK)
            product += factor * _product(words[start:stop], weights[: stop - start])
            factor *= _STEP
            part = values[2 * start : 2 * stop]
            of_part, squares_of_part = _sums(part)
            total, squares = total + of_part, squares + squares_of_part
            low, high = _ends(bits[2 * start : 2 * stop])
            least, greatest = min(least, low), max(greatest, high)
        mixed[chunk] = product
        numbers[chunk, 0], numbers[chunk, 1] = least, greatest
        numbers[chunk, 2], numbers[chunk, 3] = total, squares


@compiled()
def _product(words: Any, weights: Any) -> Any:
    found = np.uint64(0)
    for i in range(words.size):
        word = words[i]
        found += (word ^ (word >> _HALF)) * weights[i]
    return found


@compiled(*ANY_ORDER)
def _sums(values: Any) -> Any:
    total, squares = np.float32(0), np.float32(0)
    for i in range(values.size):
        value = values[i]
        total += value
        squares += value * value
    return total, squares


@compiled()
def _ends(values: Any) -> Any:
    """Return the least and the greatest; with a NaN, nobody looks at what it gives.

    Integers are compared, in vector instructions: the bits of floats are in the floats' order once
    those below zero are turned round.
    """
    least, greatest = _LAST, _FIRST
    for i in range(values.size):
        place = _turned(values[i])
        least, greatest = min(least, place), max(greatest, place)
    return float32_of_bits(_turned(least)), float32_of_bits(_turned(greatest))


@compiled()
def _turned(bits: Any) -> Any:
    return np.int32(bits ^ np.int32((bits >> _SIGN) & _LAST))


_WORDS, _WIDE = types.CPointer(types.uint64), types.CPointer(types.float64)


@cfunc(  # type: ignore[untyped-decorator]  # numba has no types
    types.void(_WORDS, types.int64, _WORDS, types.int64, types.int64, _WORDS, _WIDE),
    error_model="numpy",
)
def entry(
    words: Any, count: int, weights: Any, first: int, last: int, mixed: Any, numbers: Any
) -> None:
    """Call `chunk_statistics` with pointers in the place of arrays."""
    chunk_statistics(
        carray(words, count),
        carray(weights, BLOCK),
        first,
        last,
        carray(mixed, last),
        carray(numbers, (last, NUMBERS)),
    )
