import math

import ml_dtypes
import numpy as np
import pytest

from comparison.numerics.dtypes import Array
from comparison.numerics.metrics import measure
from comparison.numerics.severity import severity_of
from comparison.schema.outcome import NotComparable, ShapeDiffers
from comparison.schema.tolerance import Tolerance


def severity(reference: Array, candidate: Array, tolerance: Tolerance | None = None) -> float:
    found = severity_of(measure(reference, candidate, tolerance=tolerance), tolerance)
    assert found is not None
    return found


def test_with_a_tolerance_it_is_how_many_times_what_is_allowed() -> None:
    reference = np.array([100.0, 1.0], np.float32)
    candidate = np.array([101.0, 1.5], np.float32)
    tolerance = Tolerance(rtol=0.125, atol=0.0)
    # The greatest absolute difference is well allowed; the greatest relative one is not.
    assert severity(reference, candidate, tolerance) == 4.0


@pytest.mark.parametrize(("dtype", "unit"), [(np.float32, 2.0**-24), (ml_dtypes.bfloat16, 2**-8)])
def test_without_one_it_is_the_distance_in_roundings(dtype: type, unit: float) -> None:
    reference = np.array([4.0, 0.0, 3.0]).astype(dtype)
    candidate = np.array([4.0, 0.5, 3.0]).astype(dtype)
    assert severity(reference, candidate) == pytest.approx(0.1 / unit)


@pytest.mark.parametrize(
    ("reference", "candidate", "expected"),
    [
        (np.zeros(3, np.int32), np.array([0, 1, 0], np.int32), math.inf),
        (np.ones(3, np.int32), np.ones(3, np.int32), 0.0),
        (np.ones(2, np.float32), np.array([1, np.nan], np.float32), math.inf),
        (np.ones(2, np.float32), np.ones(2, np.int32), math.inf),
        (np.ones(2, np.float32), np.ones(2, np.float32), 0.0),
        (np.ones(2, np.complex64), np.ones(2, np.complex64), 0.0),
    ],
)
def test_what_has_to_be_equal(reference: Array, candidate: Array, expected: float) -> None:
    assert severity(reference, candidate) == expected


def test_no_numbers() -> None:
    assert severity_of(ShapeDiffers(reason="2 and 3 elements"), None) == math.inf
    assert severity_of(NotComparable(reason="unreadable"), None) is None


def test_nothing_is_allowed() -> None:
    one = np.ones(1, np.float32)
    assert severity(one, one * 2, Tolerance(rtol=0.0, atol=0.0)) == math.inf
