"""Measuring contiguous arrays at the speed of memory: the compiled code of `kernels`, over threads.

Arrays of float64, of complex numbers, of 64-bit integers, of other strides or of foreign byte
order are left to NumPy.
"""

import ctypes
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np

from comparison.numerics.blocks import Block
from comparison.numerics.code_forms import CodeForm, form_of
from comparison.numerics.dtypes import Array, Kind, dtype_name, kind_of
from comparison.numerics.kernel_layout import BLOCK, COUNTS, SUMS
from comparison.numerics.kernel_object import KernelCode, LoadedCode, address_of
from comparison.numerics.threads import share
from comparison.numerics.ulp import UlpUnit
from comparison.schema.tolerance import Tolerance

MEASURING = KernelCode(
    name="measure_stretch",
    module="comparison.numerics.kernels",
    sources=(
        *("kernels.py", "kernel_block.py", "kernel_widening.py", "kernel_layout.py"),
        *("compiled.py", "sums.py", "ulp.py"),
    ),
    processor_features=("f16c",),
    arguments=(
        *[ctypes.c_void_p] * 4,
        *[ctypes.c_int64] * 3,
        *[ctypes.c_void_p] * 7,
    ),
)
# What NumPy measures, of both sides together, in about the time that compiled code takes to load,
# and in a good part of the time that it takes to compile, once for many runs.
WORTH_LOADING_BYTES = 32 << 20
WORTH_COMPILING_BYTES = 512 << 20
# What a small tensor takes as long as.
TENSOR_BYTES = 16 << 10
# Sums are taken of so many elements, and then of these sums in order: the number of threads does
# not change a result.
_STRETCH = 1 << 17
_SUMS_BYTES = 8 * SUMS


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """What was found in a stretch of the compared tensor.

    Attributes:
        start: row-major position of the first element of the block that it is of.
        begin: position of its first element in the block.
        is_piece: whether it is a piece of a row; else it is whole rows.
        sums: SUMS numbers, as `kernel_layout` tells them.
        counts: COUNTS numbers; positions count from `start`.
    """

    start: int
    begin: int
    is_piece: bool
    sums: Sequence[float]
    counts: Sequence[int]


@dataclass(frozen=True, slots=True)
class _Cut:
    """A stretch to measure: its ends, and the length of its rows, or of the piece of one."""

    begin: int
    end: int
    row: int
    is_piece: bool


class FusedKernel(LoadedCode):
    """The compiled code, loaded."""

    CODE = MEASURING

    @staticmethod
    def takes(block: Block) -> bool:
        """Tell whether the compiled code measures a block."""
        return block.reference.size > 0 and all(
            side.flags.c_contiguous
            and side.dtype.byteorder != ">"
            and form_of(dtype_name(side.dtype)) is not None
            for side in (block.reference, block.candidate)
        )

    def measure(
        self, block: Block, *, tolerance: Tolerance | None, unit: UlpUnit | None
    ) -> list[Stretch]:
        """Measure a block of which `takes` is true.

        Args:
            block: both sides of one kind of numbers.
            tolerance: what to count failures by; None counts what differs.
            unit: whose units in the last place to count in; None for what is no float.

        Returns:
            What was found, in order.
        """
        shape = block.reference.shape
        start = block.origin * math.prod(shape[1:])
        cuts = list(_cut(block.reference.size, shape[-1] if shape else 1, whole=len(shape) != 1))
        results = np.empty((len(cuts), SUMS + COUNTS))
        first, step = address_of(results), results.strides[0]
        sides = _Sides(block, _limits(block, tolerance, unit))

        def measure_cut(work: _Work, at: int) -> None:
            sums = first + at * step
            self._kernel.call(*sides.given(cuts[at]), *work.addresses, sums, sums + _SUMS_BYTES)

        share(measure_cut, len(cuts), make_work=_Work)
        counts = results[:, SUMS:].view(np.int64).tolist()
        return [
            Stretch(start=start, begin=cut.begin, is_piece=cut.is_piece, sums=sums, counts=counts)
            for cut, sums, counts in zip(cuts, results[:, :SUMS].tolist(), counts, strict=True)
        ]


@dataclass(frozen=True, slots=True)
class _Kept:
    """Arrays for many calls, and where they are."""

    arrays: tuple[Array, ...]
    addresses: tuple[int, ...]

    @staticmethod
    def of(*arrays: Array) -> "_Kept":
        return _Kept(arrays, tuple(map(address_of, arrays)))


@cache
def _forms_of(*names: str) -> _Kept:
    """Return how to read the dtypes of both sides: numbers and tables."""
    forms = [form_of(name) or CodeForm() for name in names]
    numbers = np.array([form.number for form in forms])
    return _Kept.of(numbers, np.stack([form.table for form in forms]))


@lru_cache(maxsize=64)
def _limits_of(rtol: float, atol: float, least: float) -> _Kept:
    return _Kept.of(np.array([rtol, atol, least]))


class _Sides:
    """A block, as the compiled code takes it."""

    def __init__(self, block: Block, limits: _Kept) -> None:
        sides = block.reference, block.candidate
        forms = _forms_of(*(dtype_name(side.dtype) for side in sides))
        self._kept = (sides, forms, limits)  # which stay as long as their addresses here
        self._first = (*map(address_of, sides), *forms.addresses)
        self._limits = limits.addresses

    def given(self, cut: _Cut) -> tuple[int, ...]:
        """Return the arguments for a stretch, but for memory to work in and results."""
        return (*self._first, cut.begin, cut.end, cut.row, *self._limits)


class _Work:
    """Memory of one thread to work in."""

    def __init__(self) -> None:
        # [3, BLOCK] float64, [BLOCK] uint16, [BLOCK] uint8 and [2] float64, one behind the other.
        sizes = (3 * BLOCK * 8, BLOCK * 2, BLOCK, 2 * 8)
        self._memory = np.empty(sum(sizes) // 8)
        begins = itertools.accumulate(sizes[:-1], initial=address_of(self._memory))
        self.addresses = tuple(begins)


def _limits(block: Block, tolerance: Tolerance | None, unit: UlpUnit | None) -> _Kept:
    least = 1.0 if unit is None else math.ldexp(1.0, unit.least)
    if tolerance is None or kind_of(block.reference.dtype) is not Kind.FLOAT:
        return _limits_of(0.0, 0.0, least)  # integers have to be equal
    return _limits_of(tolerance.rtol, tolerance.atol, least)


def _cut(size: int, row: int, *, whole: bool) -> Iterator[_Cut]:
    """Cut elements into stretches of whole rows, or rows into pieces.

    Args:
        size: number of elements.
        row: elements of a row.
        whole: whether the rows are whole; a block of one axis may be a part of its one row.

    Yields:
        The stretches, in order.
    """
    if whole and row <= _STRETCH:
        step = _STRETCH // row * row
        for begin in range(0, size, step):
            yield _Cut(begin, min(begin + step, size), row, False)
        return
    for first in range(0, size, row):
        for begin in range(first, first + row, _STRETCH):
            end = min(begin + _STRETCH, first + row)
            yield _Cut(begin, end, end - begin, True)
