"""Compiled code that widens elements to float64; imported to compile it, and then alone.

Numbers of 16 and of 8 bits are taken as half floats, which processors widen by one instruction, the
small ones that are below the normal ones too. numba knows neither these nor integers of 16 bits,
which it would count in 64: hence the intrinsics.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from comparison.numerics.compiled import compiled, float32_of_bits, intrinsic_of
from comparison.numerics.kernel_layout import (
    BFLOAT16,
    BY_CODE,
    E4M3FN,
    E5M2,
    FLOAT16,
    FLOAT32,
    INT16,
    INT32,
    UINT16,
)

# Of float8_e4m3fn: sign, exponent and mantissa where a half float has them. What the exponents of
# both begin with differs by this factor.
_E4M3_IN_HALF = 0xBF80
_E4M3_PER_HALF = np.float32(256)
_E4M3_NAN = 0x7F


_WORD = ir.IntType(16)
_float32_of_half = intrinsic_of(
    types.uint16,
    types.float32,
    lambda builder, bits: builder.fpext(builder.bitcast(bits, ir.HalfType()), ir.FloatType()),
)
# The upper half of a half float.
_half_of_e5m2 = intrinsic_of(
    types.uint8,
    types.uint16,
    lambda builder, code: builder.shl(builder.zext(code, _WORD), _WORD(8)),
)
_half_of_e4m3 = intrinsic_of(
    types.uint8,
    types.uint16,
    lambda builder, code: builder.and_(
        builder.shl(builder.sext(code, _WORD), _WORD(7)), _WORD(_E4M3_IN_HALF)
    ),
)


@compiled()
def widen(source: Any, form: int, table: Any, begin: int, words: Any, target: Any) -> None:
    """Widen elements.

    Args:
        source: the bytes of all elements.
        form: how they are to be read.
        table: [256] float64, values by code, for BY_CODE.
        begin: first element.
        words: uint16, to work in.
        target: float64, filled in.
    """
    end = begin + target.size
    if form == BY_CODE:
        _by_code(source[begin:end], table, target)
    elif form == FLOAT32:
        _cast(source.view(np.float32)[begin:end], target)
    elif form == BFLOAT16:
        _from_bfloat16(source.view(np.uint16)[begin:end], target)
    elif form == FLOAT16:
        _from_half(source.view(np.uint16)[begin:end], target)
    elif form == E5M2:
        _from_e5m2(source[begin:end], target)
    elif form == E4M3FN:
        _from_e4m3(source[begin:end], words[: target.size], target)
    elif form == INT16:
        _cast(source.view(np.int16)[begin:end], target)
    elif form == UINT16:
        _cast(source.view(np.uint16)[begin:end], target)
    elif form == INT32:
        _cast(source.view(np.int32)[begin:end], target)
    else:
        _cast(source.view(np.uint32)[begin:end], target)


@compiled()
def _cast(source: Any, target: Any) -> None:
    for i in range(source.size):
        target[i] = source[i]


@compiled()
def _by_code(source: Any, table: Any, target: Any) -> None:
    for i in range(source.size):
        target[i] = table[source[i]]


@compiled()
def _from_bfloat16(source: Any, target: Any) -> None:
    for i in range(source.size):
        target[i] = float32_of_bits(np.int32(source[i]) << 16)


@compiled()
def _from_half(source: Any, target: Any) -> None:
    for i in range(source.size):
        target[i] = _float32_of_half(source[i])


@compiled()
def _from_e5m2(source: Any, target: Any) -> None:
    for i in range(source.size):
        target[i] = _float32_of_half(_half_of_e5m2(source[i]))


@compiled()
def _from_e4m3(source: Any, words: Any, target: Any) -> None:
    greatest = np.uint8(0)
    for i in range(source.size):  # apart from the rest, to take 16 elements at once
        greatest = max(greatest, np.uint8(source[i] & np.uint8(_E4M3_NAN)))
        words[i] = _half_of_e4m3(source[i])
    for i in range(source.size):
        target[i] = _float32_of_half(words[i]) * _E4M3_PER_HALF
    if greatest == _E4M3_NAN:
        for i in range(source.size):
            if source[i] & _E4M3_NAN == _E4M3_NAN:
                target[i] = np.nan
