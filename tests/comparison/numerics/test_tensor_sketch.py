"""What sketches hold of a tensor, and that other orders of the same values have other sketches."""

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

from comparison.numerics.directions import directions
from comparison.numerics.dtypes import Array
from comparison.numerics.tensor_fingerprint import fingerprint_of
from comparison.numerics.tensor_sketch import MOST_ROWS, sketch_tensor
from tests.comparison.numerics.sketch_changes import CHANGES

RANDOM = np.random.default_rng(3)


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_fingerprint_tells_unequal_tensors_apart(change: Callable[[Array], Array]) -> None:
    values = RANDOM.standard_normal((2, 7, 30)).astype(np.float32)
    assert fingerprint_of(change(values)) != fingerprint_of(values)
    assert fingerprint_of(values.copy()) == fingerprint_of(values)


def test_order_counts_over_whole_chunks() -> None:
    chunk = RANDOM.standard_normal((3, 1 << 16)).astype(np.float32)  # each 2^15 words
    assert fingerprint_of(chunk[[1, 0, 2]]) != fingerprint_of(chunk)


def test_fingerprints_of_many_small_changes_are_all_different() -> None:
    values = np.zeros(257, np.int8)
    found = {fingerprint_of(values)}
    for place in range(257):
        values[place] ^= -128
        found.add(fingerprint_of(values))
        values[place] ^= -128
    assert len(found) == 258


def test_strides_and_widths_of_integers_do_not_count() -> None:
    values = RANDOM.integers(-90, 90, (5, 3))
    assert fingerprint_of(values.astype(np.int16)) == fingerprint_of(values)
    assert fingerprint_of(np.asfortranarray(values)) == fingerprint_of(values)
    assert fingerprint_of(values.astype(">i4")) == fingerprint_of(values)
    assert fingerprint_of(values.T) != fingerprint_of(values)


def test_empty_tensors_and_scalars_have_fingerprints() -> None:
    assert fingerprint_of(np.zeros((0, 3), np.float32)) == fingerprint_of(np.zeros(0, np.float64))
    assert fingerprint_of(np.float32(1.5)) != fingerprint_of(np.float32(-1.5))


@pytest.mark.parametrize(
    "dtype", [np.float64, np.float32, np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn]
)
def test_statistics_are_those_of_the_values(dtype: type) -> None:
    values = (RANDOM.standard_normal((3, 11, 13)) + 0.25).astype(dtype)
    known, wide = sketch_tensor(values).statistics, values.astype(np.float64)
    assert (known.minimum, known.maximum) == (wide.min(), wide.max())
    assert known.mean == pytest.approx(wide.mean(), rel=1e-12)
    assert known.std == pytest.approx(wide.std(ddof=1), rel=1e-9)
    assert sketch_tensor(values, projects=False).statistics == known


def test_nan_and_infinities_are_counted_and_placed() -> None:
    values = np.array([[np.nan, 1.0, np.inf], [-2.0, -np.inf, 3.0]])
    sketch = sketch_tensor(values)
    assert (sketch.statistics.nan, sketch.statistics.infinite) == (1, 2)
    assert (sketch.statistics.minimum, sketch.statistics.maximum) == (-2.0, 3.0)
    assert sketch.rows is not None
    norms = sketch.rows[:, 0] * sketch.scale
    assert norms == pytest.approx([1.0, 13**0.5], rel=1e-6)
    other = sketch_tensor(values[:, [2, 1, 0]])
    assert other.non_finite != sketch.non_finite
    assert sketch_tensor(-values).non_finite != sketch.non_finite
    assert sketch_tensor(np.full((2, 2), np.nan)).statistics.std == 0


def test_rows_are_norms_and_projections() -> None:
    values = RANDOM.standard_normal((2, 3, 40)) * 1e-9
    sketch = sketch_tensor(values)
    assert sketch.rows is not None
    assert sketch.rows.shape == (2, 3, 65)
    rows = sketch.rows.astype(np.float64) * sketch.scale
    assert rows[..., 0] == pytest.approx(np.linalg.norm(values, axis=-1), rel=1e-6)
    assert rows[..., 1:] == pytest.approx(values @ directions(40, 64).T, rel=1e-5, abs=1e-15)


def test_rows_do_not_depend_on_the_layout() -> None:
    values = RANDOM.standard_normal((2, 9, 50)).astype(np.float32)
    padded, ragged = sketch_tensor(values), sketch_tensor(values.reshape(18, 50))
    assert padded.rows is not None
    assert ragged.rows is not None
    assert np.allclose(padded.rows.reshape(18, -1), ragged.rows, rtol=0, atol=1e-6)
    assert padded.fingerprint == ragged.fingerprint


def test_directions_of_one_length_begin_alike() -> None:
    assert np.array_equal(directions(33, 4), directions(33, 9)[:4])
    assert not np.array_equal(directions(33, 1)[0][:20], directions(20, 1)[0])


def test_narrow_rows_are_kept_as_they_are() -> None:
    values = RANDOM.integers(0, 9, (4, 5))
    rows = sketch_tensor(values).rows
    assert rows is not None
    assert np.array_equal(rows[:, 1:] * 16, values)  # the scale of up to 8


@pytest.mark.parametrize("rows", [MOST_ROWS, MOST_ROWS + 1, 3000])
def test_a_sketch_is_a_few_kilobytes(rows: int) -> None:
    sketch = sketch_tensor(RANDOM.standard_normal((1, rows, 40)).astype(np.float32))
    assert sketch.rows is not None
    assert sketch.folded == (rows > MOST_ROWS)
    assert sketch.rows.nbytes <= 9 * 1024 + 256
    total = np.linalg.norm(sketch.rows[..., 0]) * sketch.scale
    assert total == pytest.approx((rows * 40) ** 0.5, rel=0.05)


@pytest.mark.parametrize(
    "values",
    [
        np.zeros((0, 4), np.float32),
        np.zeros((3, 0), np.float32),
        np.float32(2.5),
        np.array([True, False, True]),
        np.array([[1 + 2j, 3 - 1j]], np.complex64),
        np.zeros((4, 6)),
        np.array([1e300, -1e-300]),
        np.asfortranarray(RANDOM.standard_normal((5, 6))),
    ],
    ids=["no rows", "no columns", "scalar", "booleans", "complex", "zeros", "wide", "strided"],
)
def test_any_tensor_has_a_sketch(values: Array) -> None:
    sketch = sketch_tensor(values)
    assert sketch.shape == np.shape(values)
    assert (sketch.rows is None) == (np.size(values) == 0)
    assert not np.isnan(sketch.statistics.std)


@pytest.mark.parametrize("shape", [(1, 9), (33, 1024), (7, 3001), (201, 1025)])
def test_rows_are_their_products_with_the_directions(shape: tuple[int, int]) -> None:
    values = np.random.default_rng(4).standard_normal(shape)
    sketch = sketch_tensor(values)
    assert sketch.rows is not None
    count = sketch.rows.shape[1] - 1
    expected = values @ directions(shape[1], count).T
    assert sketch.rows[:, 1:] * sketch.scale == pytest.approx(expected, rel=1e-5, abs=1e-4)


@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "i4"])
def test_the_order_of_bytes_does_not_count(dtype: str) -> None:
    values = (RANDOM.standard_normal((5, 9)) * 50).astype(dtype)
    assert fingerprint_of(values.astype(f">{dtype}")) == fingerprint_of(values)
