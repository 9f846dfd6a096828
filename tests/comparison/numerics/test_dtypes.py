"""Names and kinds of dtypes, and the way to float64."""

import math

import numpy as np
import pytest

from comparison.numerics.dtypes import Kind, dtype_name, dtype_of_name, kind_of, widen_into
from comparison.schema.errors import UnsupportedFormatError

BYTE_FLOATS = [
    "float8_e3m4",
    "float8_e4m3",
    "float8_e4m3b11fnuz",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("bool", Kind.BOOL),
        ("uint64", Kind.INTEGER),
        ("int8", Kind.INTEGER),
        ("bfloat16", Kind.FLOAT),
        ("float8_e5m2", Kind.FLOAT),
        ("float4_e2m1fn", Kind.FLOAT),
        ("complex64", Kind.COMPLEX),
    ],
)
def test_names_and_kinds(name: str, kind: Kind) -> None:
    assert dtype_name(dtype_of_name(name)) == name
    assert kind_of(dtype_of_name(name)) is kind


@pytest.mark.parametrize("name", BYTE_FLOATS)
def test_all_codes_of_a_byte_widen_exactly(name: str) -> None:
    codes = np.arange(256, dtype=np.uint8).view(dtype_of_name(name))
    widened = np.empty(256)
    widen_into(codes, widened)
    for code, value in zip(codes, widened, strict=True):
        assert float(code) == value or (math.isnan(float(code)) and math.isnan(value))


def test_all_codes_of_bfloat16_widen_exactly() -> None:
    codes = np.arange(1 << 16, dtype=np.uint16).view(dtype_of_name("bfloat16"))
    widened = np.empty(1 << 16)
    widen_into(codes, widened)
    with np.errstate(invalid="ignore"):  # signalling NaN codes
        expected = codes.astype(np.float64)
    np.testing.assert_array_equal(widened, expected)


def test_unknown_name() -> None:
    with pytest.raises(UnsupportedFormatError, match="found 'float7'"):
        dtype_of_name("float7")
