"""How the compiled code reads the elements of a dtype."""

from dataclasses import dataclass, field
from functools import cache

import numpy as np

from comparison.numerics.dtypes import Array, dtype_of_name, widen_into
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
    UINT32,
)

_NUMBERS = {
    "float32": FLOAT32,
    "bfloat16": BFLOAT16,
    "float16": FLOAT16,
    "float8_e5m2": E5M2,
    "float8_e4m3fn": E4M3FN,
    "int16": INT16,
    "uint16": UINT16,
    "int32": INT32,
    "uint32": UINT32,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeForm:
    """How to read elements.

    Attributes:
        number: of the way, as `kernel_layout` tells it.
        table: [256] float64, values by code, for BY_CODE.
    """

    number: int = FLOAT32
    table: Array = field(default_factory=lambda: np.zeros(256))


@cache
def form_of(name: str) -> CodeForm | None:
    """Return how to read a dtype; None for one that the compiled code does not read.

    Args:
        name: a dtype's name.
    """
    if name in _NUMBERS:
        return CodeForm(number=_NUMBERS[name])
    dtype = dtype_of_name(name)
    if dtype.itemsize != 1:
        return None
    table = np.empty(256)
    widen_into(np.arange(256, dtype=np.uint8).view(dtype), table)
    return CodeForm(number=BY_CODE, table=table)
