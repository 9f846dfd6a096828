"""Differences in units in the last place."""

import math
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

import ml_dtypes
import numpy as np

from comparison.numerics.dtypes import Array, Kind, dtype_name, kind_of

# Of the bits of a float64, the exponent; less an exponent, RECIPROCAL is that of the reciprocal.
EXPONENT = 0x7FF0000000000000
RECIPROCAL = 0x7FE0000000000000
_MANTISSA_OF_FLOAT64 = 52


@dataclass(frozen=True, slots=True, kw_only=True)
class UlpUnit:
    """The unit in the last place of a floating dtype.

    Attributes:
        dtype: its name.
        mantissa: bits behind the point.
        least: exponent of the least normal number, below which the unit does not shrink.
    """

    dtype: str
    mantissa: int
    least: int

    @staticmethod
    def of(*dtypes: np.dtype[Any]) -> "UlpUnit | None":
        """Take the unit of the coarsest of some dtypes; None where one is not of real floats."""
        return _unit_of(dtypes)

    def distances(self, reference: Array, absolute: Array) -> Array:
        """Express differences in units of the reference's elements.

        Args:
            reference: [n] float64, finite.
            absolute: [n] float64, the differences.
        """
        _, exponents = np.frexp(reference)
        exponents = np.where(reference == 0, self.least, np.maximum(exponents - 1, self.least))
        with np.errstate(over="ignore"):
            # In two steps: the unit of a double may lie below the least double.
            distances: Array = np.ldexp(np.ldexp(absolute, self.mantissa), -exponents)
        return distances

    def greatest(self, reference: Array, absolute: Array) -> float:
        """Return the greatest distance in units of the reference's elements.

        Args:
            reference: [n] float64, finite, at least one.
            absolute: [n] float64, the differences.
        """
        if self.mantissa == _MANTISSA_OF_FLOAT64:  # whose reciprocals may be too small
            return float(self.distances(reference, absolute).max())
        bits = np.maximum(np.abs(reference), 2.0**self.least).view(np.int64)
        bits &= EXPONENT
        np.subtract(RECIPROCAL, bits, out=bits)  # of the power of two
        units = bits.view(np.float64)
        units *= absolute
        return math.ldexp(float(units.max()), self.mantissa)


@cache
def _unit_of(dtypes: tuple[np.dtype[Any], ...]) -> UlpUnit | None:
    if any(kind_of(dtype) is not Kind.FLOAT for dtype in dtypes):
        return None
    infos = [(cast(Any, ml_dtypes.finfo(dtype)), dtype) for dtype in dtypes]
    info, dtype = min(infos, key=lambda both: both[0].nmant)
    return UlpUnit(dtype=dtype_name(dtype), mantissa=int(info.nmant), least=int(info.minexp))
