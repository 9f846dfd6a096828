"""Statistics and fingerprint of float32 arrays at the speed of memory."""

import ctypes
import math
from dataclasses import dataclass
from functools import cache

import numpy as np

from comparison.numerics.dtypes import Array
from comparison.numerics.kernel_object import KernelCode, LoadedCode, address_of
from comparison.numerics.statistics_layout import CHUNK, NUMBERS
from comparison.numerics.tensor_fingerprint import chunk_weights, joined_fingerprint
from comparison.numerics.threads import share

STATISTICS = KernelCode(
    name="chunk_statistics",
    module="comparison.numerics.statistics_code",
    sources=("statistics_code.py", "statistics_layout.py", "compiled.py"),
    arguments=(
        *[ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p],
        *[ctypes.c_int64] * 2,
        *[ctypes.c_void_p] * 2,
    ),
)
_TOGETHER = 4  # chunks that a thread takes at once


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainSums:
    """What one pass over finite values gives.

    Attributes:
        least: of them.
        greatest: of them.
        total: their sum; added up in float32 within 1024 values, in float64 beyond.
        squares: the sum of their squares, likewise.
        fingerprint: as `fingerprint_of` gives it.
    """

    least: float
    greatest: float
    total: float
    squares: float
    fingerprint: str


class StatisticsKernel(LoadedCode):
    """The compiled code, loaded."""

    CODE = STATISTICS

    def sums(self, values: Array) -> PlainSums | None:
        """Go over an array once.

        Args:
            values: float32 of any shape.

        Returns:
            None where not all values are finite, and for an array that is not whole words of
            native float32, one behind the other.
        """
        begin = address_of(values)
        if begin % 8 or not _is_plain(values):
            return None
        words = values.size // 2
        chunks = -(-words // CHUNK)
        # Of each chunk the fingerprint's sum, and then of each its numbers.
        results = np.empty(chunks * (1 + NUMBERS))
        mixed, numbers = results[:chunks].view(np.uint64), results[chunks:].reshape(chunks, NUMBERS)
        given = begin, words, _weights_address()
        found = (place := address_of(results)), place + mixed.nbytes

        def measure(_work: None, at: int) -> None:
            last = min(chunks, (at + 1) * _TOGETHER)
            self._kernel.call(*given, at * _TOGETHER, last, *found)

        share(measure, -(-chunks // _TOGETHER), make_work=lambda: None)
        least, greatest, totals, squares = zip(*numbers.tolist(), strict=True)
        if not math.isfinite(sum(squares)):
            return None
        return PlainSums(
            least=min(least),
            greatest=max(greatest),
            total=math.fsum(totals),
            squares=math.fsum(squares),
            fingerprint=joined_fingerprint(values.nbytes, mixed.tolist()),
        )


def _is_plain(values: Array) -> bool:
    return (
        values.dtype == np.float32
        and values.flags.c_contiguous
        and values.size > 0
        and values.size % 2 == 0
    )


@cache
def _weights_address() -> int:
    return address_of(chunk_weights())  # which are kept for good
