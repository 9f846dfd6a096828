"""Statistics and fingerprint of float32 values in one pass, as compiled code.

Imported to compile it, and then alone; `statistics_kernel` calls what was compiled.
"""

from typing import Any

import numpy as np
from numba import carray, cfunc, types

from comparison.numerics.compiled import ANY_ORDER, compiled
from comparison.numerics.statistics_layout import CHUNK, NUMBERS

_BLOCK = 512  # words, which stay in the processor's first cache
_HALF = np.uint64(32)


@compiled()
def chunk_statistics(
    words: Any, weights: Any, first: int, last: int, mixed: Any, numbers: Any
) -> None:
    """Go through chunks of values.

    Args:
        words: [W] uint64, two values of float32 each.
        weights: [CHUNK] uint64, of the fingerprint.
        first: the first chunk.
        last: the chunk after the last one.
        mixed: [chunks] uint64, the fingerprint's sum of each.
        numbers: [chunks, NUMBERS] float64: least, greatest, sum, and sum of squares, which alone
            tells whether all values are finite.
    """
    values = words.view(np.float32)
    for chunk in range(first, last):
        begin, end = chunk * CHUNK, min(words.size, (chunk + 1) * CHUNK)
        product = np.uint64(0)
        least, greatest = np.float32(np.inf), np.float32(-np.inf)
        total, squares = 0.0, 0.0
        for start in range(begin, end, _BLOCK):
            stop = min(end, start + _BLOCK)
            product += _product(words[start:stop], weights[start - begin : stop - begin])
            part = values[2 * start : 2 * stop]
            of_part, squares_of_part = _sums(part)
            total, squares = total + of_part, squares + squares_of_part
            low, high = _ends(part)
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


@compiled(*ANY_ORDER, "nnan")  # with a NaN, nobody looks at what it gives
def _ends(values: Any) -> Any:
    least, greatest = values[0], values[0]
    for i in range(values.size):
        value = values[i]
        least, greatest = min(least, value), max(greatest, value)
    return least, greatest


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
        carray(weights, CHUNK),
        first,
        last,
        carray(mixed, last),
        carray(numbers, (last, NUMBERS)),
    )
