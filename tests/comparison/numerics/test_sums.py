"""Sums whose squares or products leave the range of float64."""

import math

import numpy as np
import pytest

from comparison.numerics.sums import Sums


def sums(reference: float, candidate: float) -> Sums:
    found = Sums(wide=True)
    sides = np.full(5, reference), np.full(5, candidate)
    found.add(reference=sides[0], candidate=sides[1], absolute=np.abs(sides[1] - sides[0]))
    return found


@pytest.mark.parametrize("size", [1e-150, 1.0, 1e130, 1e300])
@pytest.mark.parametrize("ratio", [1e-140, 1e-20, 1.0])
def test_multiples_have_a_cosine_of_one_whatever_their_size(size: float, ratio: float) -> None:
    small = size * ratio
    assert sums(size, small).cosine() == pytest.approx(1.0, rel=1e-12)
    assert sums(size, -small).cosine() == pytest.approx(-1.0, rel=1e-12)


def test_zeros() -> None:
    assert sums(0.0, 0.0).cosine() == 1.0
    assert sums(1.0, 0.0).cosine() == 0.0
    assert sums(0.0, 1.0).cosine() == 0.0


def test_what_is_too_small_to_square_beside_the_other_side_has_no_angle() -> None:
    assert sums(1.0, 1e-200).cosine() == 0.0


def test_a_distance_is_relative_to_the_reference() -> None:
    assert sums(1e250, 2e250).relative_l2() == pytest.approx(1.0)
    assert sums(0.0, 3e-10).relative_l2() == pytest.approx(3 * math.sqrt(5))
