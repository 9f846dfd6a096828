"""Dtype names, kinds, and the way to float64."""

from enum import StrEnum
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from comparison.schema.errors import UnsupportedFormatError

Array = npt.NDArray[Any]

# numpy's own names, and ml_dtypes' for what numpy has not.
_NATIVE = (
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "float32",
    "float64",
    "complex64",
    "complex128",
)
_EXTENDED = (
    "bfloat16",
    "float8_e3m4",
    "float8_e4m3",
    "float8_e4m3b11fnuz",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
    "float6_e2m3fn",
    "float6_e3m2fn",
    "float4_e2m1fn",
)
_DTYPES: dict[str, np.dtype[Any]] = {name: np.dtype(name) for name in _NATIVE} | {
    name: np.dtype(getattr(ml_dtypes, name)) for name in _EXTENDED
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


class Kind(StrEnum):
    """Kinds of numbers that are compared with each other."""

    BOOL = "bool"
    INTEGER = "integer"
    FLOAT = "float"
    COMPLEX = "complex"


def dtype_of_name(name: str) -> np.dtype[Any]:
    """Look a dtype up by its name.

    Raises:
        UnsupportedFormatError: the name is none that these tools handle.
    """
    try:
        return _DTYPES[name]
    except KeyError:
        raise UnsupportedFormatError(
            f"expected a dtype of {', '.join(_DTYPES)}, found {name!r:.80}"
        ) from None


def dtype_name(dtype: np.dtype[Any]) -> str:
    """Name a dtype, whatever its byte order.

    Raises:
        UnsupportedFormatError: the dtype is none that these tools handle (text, objects, dates).
    """
    native = dtype.newbyteorder("=") if dtype.byteorder == ">" else dtype
    try:
        return _NAMES[native]
    except KeyError:
        raise UnsupportedFormatError(
            f"expected numbers, found dtype {dtype!s:.200}; convert the tensor before saving it"
        ) from None


@cache
def kind_of(dtype: np.dtype[Any]) -> Kind:
    """Tell the kind of a dtype.

    Raises:
        UnsupportedFormatError: as dtype_name.
    """
    name = dtype_name(dtype)
    if name == "bool":
        return Kind.BOOL
    if name.startswith("complex"):
        return Kind.COMPLEX
    return Kind.FLOAT if name.startswith(("float", "bfloat")) else Kind.INTEGER


def widen_into(source: Array, target: Array) -> None:
    """Copy any real tensor into a float64 array of the same shape, exactly.

    Args:
        source: any shape and strides; integers above 2**53 are rounded.
        target: float64.
    """
    name = dtype_name(source.dtype)
    if name == "bfloat16":
        # bfloat16 is the upper half of a float32; a shift is faster than a cast by element.
        bits = source.view(np.uint16).astype(np.uint32)
        bits <<= 16
        with np.errstate(invalid="ignore"):  # signalling NaN codes
            np.copyto(target, bits.view(np.float32))
    elif name in _EXTENDED:
        np.take(_codes_as_float64(name), source.view(np.uint8), out=target, mode="clip")
    else:
        np.copyto(target, source)


@cache
def _codes_as_float64(name: str) -> Array:
    """Tabulate the 256 codes of a dtype of one byte."""
    # Codes above what a 4- or 6-bit type has do not occur in a valid file; their upper bits
    # are ignored, as ml_dtypes does.
    codes = np.arange(256, dtype=np.uint8)
    with np.errstate(all="ignore"):
        return codes.view(_DTYPES[name]).astype(np.float64)
