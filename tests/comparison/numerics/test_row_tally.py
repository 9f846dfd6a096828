"""The worst row and the greatest distance in units in the last place, against definitions."""

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from comparison.numerics.dtypes import Array
from comparison.numerics.metrics import measure
from comparison.schema.outcome import Compared, Metrics


def metrics_of(reference: Array, candidate: Array) -> Metrics:
    outcome = measure(reference, candidate)
    assert isinstance(outcome, Compared)
    assert isinstance(outcome.metrics, Metrics)
    return outcome.metrics


def row_distances(reference: Array, candidate: Array) -> Array:
    """Give the relative L2 of each row, over what is finite on both sides."""
    wide = np.complex128 if reference.dtype.kind == "c" else np.longdouble
    left, right = (np.asarray(side).astype(wide) for side in (reference, candidate))
    finite = np.isfinite(left) & np.isfinite(right)
    left, right = (np.where(finite, side, 0) for side in (left, right))
    squares = (np.abs(right - left) ** 2).sum(axis=-1)
    norms = np.sqrt((np.abs(left) ** 2).sum(axis=-1))
    distances: Array = np.sqrt(squares) / np.maximum(norms, 1e-10)
    return distances


@pytest.mark.parametrize("shape", [(1, 7), (5, 1), (3, 5, 7), (3, 40_001), (40_001, 3), (2, 16384)])
@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "c16"])
def test_the_worst_row_is_the_one_of_the_definition(shape: tuple[int, ...], dtype: str) -> None:
    generator = np.random.default_rng(0)
    parts = generator.standard_normal((4, *shape))
    reference, noise = (
        (part if dtype[0] == "f" else part + 1j * other).astype(dtype)
        for part, other in (parts[:2], parts[2:])
    )
    scale = generator.uniform(0.5, 1.5, shape[:-1])[..., None]
    candidate = (reference + 1e-3 * scale * noise).astype(dtype)
    reference.reshape(-1)[3] = np.nan
    row = metrics_of(reference, candidate).worst_row
    expected = row_distances(reference, candidate)
    assert row.relative_l2 == pytest.approx(float(expected.max()), rel=1e-6)
    assert row.index == tuple(np.unravel_index(int(expected.argmax()), shape[:-1]))


def test_a_vector_and_a_scalar_are_one_row() -> None:
    for shape in ((), (4,)):
        metrics = metrics_of(np.full(shape, 2.0), np.full(shape, 3.0))
        assert metrics.worst_row.index == ()
        assert metrics.worst_row.relative_l2 == metrics.relative_l2 == 0.5
        assert metrics.snr_db == pytest.approx(20 * math.log10(2))


def test_equal_tensors_have_a_first_row_and_no_noise() -> None:
    metrics = metrics_of(np.ones((3, 2)), np.ones((3, 2)))
    assert (metrics.worst_row.index, metrics.worst_row.relative_l2) == ((0,), 0.0)
    assert metrics.snr_db == math.inf


def test_rows_of_a_huge_double_are_measured_as_those_of_a_small_one() -> None:
    reference = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    candidate = reference + np.array([[0.0, 0.1], [0.3, 0.0], [0.1, 0.1]])
    for scale in (1.0, 2.0**600):
        row = metrics_of(reference * scale, candidate * scale).worst_row
        assert row.index == (1,)
        assert row.relative_l2 == pytest.approx(0.06)


@pytest.mark.parametrize(
    ("dtype", "mantissa", "least"),
    [
        (np.float16, 10, -14),
        (np.float32, 23, -126),
        (np.float64, 52, -1022),
        (ml_dtypes.bfloat16, 7, -126),
        (ml_dtypes.float8_e4m3fn, 3, -6),
        (ml_dtypes.float8_e5m2, 2, -14),
    ],
)
def test_the_unit_is_that_of_the_references_element(dtype: type, mantissa: int, least: int) -> None:
    for magnitude in (1.0, 1.75, 2.0, 0.0, 2.0**least, 2.0**least / 2):
        reference = np.array([magnitude], dtype)
        candidate = np.array([magnitude + 0.25], dtype)
        exponent = max(least, math.frexp(magnitude)[1] - 1) if magnitude else least
        difference = abs(Fraction(float(candidate[0])) - Fraction(float(reference[0])))
        expected = difference / Fraction(2) ** (exponent - mantissa)
        if expected < 2**1023:
            assert metrics_of(reference, candidate).greatest_ulp == float(expected)


def test_the_coarser_dtype_counts_and_integers_have_no_unit() -> None:
    wide, narrow = np.array([1.0], np.float32), np.array([1.0078125], ml_dtypes.bfloat16)
    assert metrics_of(wide, narrow).greatest_ulp == 1.0
    assert metrics_of(np.array([1]), np.array([2])).greatest_ulp is None
    assert metrics_of(np.array([1j]), np.array([2j])).greatest_ulp is None
