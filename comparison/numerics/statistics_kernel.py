"""Statistics and fingerprint of float32 arrays at the speed of memory."""

import ctypes
import math
from dataclasses import dataclass

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

    @staticmethod
    def takes(values: Array) -> bool:
        """Tell whether the compiled code reads an array: native float32, whole words of it."""
        return (
            values.dtype == np.float32
            and values.flags.c_contiguous
            and values.size > 0
            and values.size % 2 == 0
            and address_of(values) % 8 == 0
        )

    def sums(self, values: Array) -> PlainSums | None:
        """Go over an array that `takes` allows; None where not all values are finite.

        Args:
            values: float32 of any shape.
        """
        words = values.reshape(-1).view(np.uint64)
        chunks = -(-words.size // CHUNK)
        mixed, numbers = np.empty(chunks, np.uint64), np.empty((chunks, NUMBERS))
        given = address_of(words), words.size, address_of(chunk_weights())
        results = address_of(mixed), address_of(numbers)

        def measure(_work: None, at: int) -> None:
            last = min(chunks, (at + 1) * _TOGETHER)
            self._kernel.call(*given, at * _TOGETHER, last, *results)

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
