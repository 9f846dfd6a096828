"""Sums of squares and products over chunks, safe from overflow and underflow."""

import math
from dataclasses import dataclass

import numpy as np

from comparison.numerics.dtypes import Array

# As for the relative difference: what counts as zero in a denominator.
SMALLEST_DENOMINATOR = 1e-10
# Squares of 2**480 times 2**60 elements stay below 2**1024, the end of float64.
_HEADROOM_BITS = 480


@dataclass(slots=True, kw_only=True)
class Sums:
    """Sums that grow by chunk; all of them are divided by 4**exponent.

    Attributes:
        wide: whether the values may exceed what float32 holds, so that squares may overflow.
        difference: sum of squared differences.
        reference: sum of squared reference elements.
        candidate: sum of squared candidate elements.
        product: sum of the products of both sides (its real part for complex values).
        exponent: power of two that the values are divided by before they are squared.
    """

    wide: bool
    difference: float = 0.0
    reference: float = 0.0
    candidate: float = 0.0
    product: float = 0.0
    exponent: int = 0
    _scaled: bool = False

    def add(self, *, reference: Array, candidate: Array, absolute: Array) -> tuple[Array, Array]:
        """Add a chunk of finite values.

        Args:
            reference: [n] float64; real and imaginary parts of complex values one by one.
            candidate: as reference.
            absolute: absolute differences, any length.

        Returns:
            Differences and reference as they were squared: divided by 2**exponent.
        """
        if self.wide:
            reference, candidate = self._scale(reference, candidate)
            absolute = candidate - reference
        self.difference += _dot(absolute, absolute)
        self.reference += _dot(reference, reference)
        self.candidate += _dot(candidate, candidate)
        self.product += _dot(reference, candidate)
        return absolute, reference

    def add_sums(
        self, difference: float, reference: float, candidate: float, product: float
    ) -> None:
        """Add what was summed elsewhere; not for `wide` values."""
        self.difference += difference
        self.reference += reference
        self.candidate += candidate
        self.product += product

    def _scale(self, reference: Array, candidate: Array) -> tuple[Array, Array]:
        peak = max(
            float(np.abs(reference).max(initial=0.0)), float(np.abs(candidate).max(initial=0.0))
        )
        # Below 2**-900 the smallest denominator, scaled, would overflow in turn.
        exponent = max(math.frexp(peak)[1], -900)
        if peak > 0 and (not self._scaled or exponent > self.exponent + _HEADROOM_BITS):
            self._rescale(exponent)
        factor = math.ldexp(1.0, -self.exponent) if self.exponent > -900 else math.ldexp(1.0, 900)
        return reference * factor, candidate * factor

    def _rescale(self, exponent: int) -> None:
        factor = math.ldexp(1.0, 2 * (self.exponent - exponent)) if self._scaled else 1.0
        self.difference *= factor
        self.reference *= factor
        self.candidate *= factor
        self.product *= factor
        self.exponent, self._scaled = exponent, True

    def relative_l2(self) -> float:
        """Give ||d|| / max(||reference||, 1e-10)."""
        smallest = math.ldexp(SMALLEST_DENOMINATOR, -self.exponent)
        return math.sqrt(self.difference) / max(math.sqrt(self.reference), smallest)

    def cosine(self) -> float:
        """Give the cosine of the angle; 1 where both sides are zero, 0 where one is."""
        if self.reference == 0 or self.candidate == 0:
            return 1.0 if self.reference == self.candidate else 0.0
        # The root of the product, not the product of roots: it is exact for equal sides.
        norms = math.sqrt(self.reference) * math.sqrt(self.candidate)
        together = self.reference * self.candidate
        if 1e-250 < together < math.inf:
            norms = math.sqrt(together)
        return max(-1.0, min(1.0, self.product / norms)) if norms else 0.0


def _dot(left: Array, right: Array) -> float:
    # Not np.dot: BLAS starts threads above 10,000 elements, which costs more than it saves here
    # and many times as much on a busy machine.
    return float(np.einsum("i,i->", left, right))
