"""How the compiled code reads the elements of a dtype."""

from dataclasses import dataclass, field
from functools import cache
from typing import Any, cast

import ml_dtypes
import numpy as np

from comparison.numerics.dtypes import Array, dtype_of_name, widen_into
from comparison.numerics.kernel_layout import (
    BFLOAT16,
    BY_CODE,
    FLOAT32,
    INT16,
    INT32,
    LAYOUT,
    SMALL_8,
    SMALL_16,
    UINT16,
    UINT32,
)

_NUMBERS = {
    "float32": FLOAT32,
    "bfloat16": BFLOAT16,
    "int16": INT16,
    "uint16": UINT16,
    "int32": INT32,
    "uint32": UINT32,
}
# With one sign bit on top, and the codes above the greatest number for NaN and infinity alone.
_SMALL = {"float16": SMALL_16, "float8_e4m3fn": SMALL_8, "float8_e5m2": SMALL_8}
_BIAS_OF_FLOAT32, _MANTISSA_OF_FLOAT32, _BITS_OF_FLOAT32 = 127, 23, 32


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeForm:
    """How to read elements.

    Attributes:
        number: of the way, as `kernel_layout` tells it.
        table: [256] float64, values by code, for BY_CODE.
        layout: [LAYOUT] int32, for SMALL_8 and SMALL_16, the arguments of
            `kernels._float32_of_code`.
    """

    number: int = FLOAT32
    table: Array = field(default_factory=lambda: np.zeros(256))
    layout: Array = field(default_factory=lambda: np.zeros(LAYOUT, np.int32))


@cache
def form_of(name: str) -> CodeForm | None:
    """Return how to read a dtype; None for one that the compiled code does not read.

    Args:
        name: a dtype's name.
    """
    dtype = dtype_of_name(name)
    if name in _NUMBERS:
        return CodeForm(number=_NUMBERS[name])
    if name in _SMALL:
        return CodeForm(number=_SMALL[name], layout=_layout(dtype))
    if dtype.itemsize != 1:
        return None
    table = np.empty(256)
    widen_into(np.arange(256, dtype=np.uint8).view(dtype), table)
    return CodeForm(number=BY_CODE, table=table)


def _layout(dtype: np.dtype[Any]) -> Array:
    info = cast(Any, ml_dtypes.finfo(dtype))
    bits, mantissa = 8 * dtype.itemsize, int(info.nmant)
    shift = _MANTISSA_OF_FLOAT32 - mantissa
    bias = 1 - int(info.minexp)
    unit = np.array([2.0 ** (int(info.minexp) - mantissa)], np.float32)
    greatest = np.array([info.max], dtype).view(np.uint8 if bits == 8 else np.uint16)
    return np.array(
        [
            (1 << (bits - 1)) - 1,
            1 << mantissa,
            shift,
            (_BIAS_OF_FLOAT32 - bias) << _MANTISSA_OF_FLOAT32,
            int(greatest[0]) + 1,
            _BITS_OF_FLOAT32 - bits,
            int(unit.view(np.int32)[0]),
        ],
        np.int32,
    )
