"""What projections of weights keep, and what they show."""

import ml_dtypes
import numpy as np
import pytest

from comparison.numerics.dtypes import Array
from comparison.numerics.weight_record import WeightSketch, matrix_shape
from comparison.numerics.weight_sketch import direction, sketch_weight


def _matrix(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _rows(sketch: WeightSketch) -> Array:
    assert sketch.rows is not None
    return sketch.rows


def _columns(sketch: WeightSketch) -> Array:
    assert sketch.columns is not None
    return sketch.columns


def test_the_rows_of_a_transposed_matrix_are_its_columns() -> None:
    values = _matrix(24, 40)
    one, other = sketch_weight("a", values), sketch_weight("b", values.T)
    assert _rows(one).shape == (1, 24)
    np.testing.assert_allclose(_rows(one), _columns(other), rtol=1e-12)
    np.testing.assert_allclose(_columns(one), _rows(other), rtol=1e-12)


def test_fused_matrices_have_their_rows_one_behind_the_other() -> None:
    parts = [_matrix(24, 40, seed=1), _matrix(8, 40, seed=2)]
    fused = sketch_weight("qkv", np.concatenate(parts))
    apart = np.concatenate([_rows(sketch_weight("x", part)) for part in parts], axis=1)
    np.testing.assert_allclose(_rows(fused), apart, rtol=1e-12)


def test_a_stack_has_the_sketches_of_its_matrices() -> None:
    stack = _matrix(3, 24, 40)
    whole = sketch_weight("experts", stack)
    for number, values in enumerate(stack):
        alone = sketch_weight("expert", values)
        np.testing.assert_array_equal(_rows(whole)[number], _rows(alone)[0])
        np.testing.assert_array_equal(_columns(whole)[number], _columns(alone)[0])


def test_a_vector_is_told_by_its_values() -> None:
    values = _matrix(7)
    sketch = sketch_weight("norm", values)
    np.testing.assert_array_equal(_rows(sketch), values[None].astype(np.float64))
    assert sketch.columns is None


def test_a_great_matrix_is_read_in_blocks() -> None:
    values = _matrix(300, 5000)  # more values than a block holds
    sketch = sketch_weight("embed", values)
    wide = values.astype(np.float64)
    np.testing.assert_allclose(_rows(sketch)[0], wide @ direction(5000), rtol=1e-9)
    np.testing.assert_allclose(_columns(sketch)[0], direction(300) @ wide, rtol=1e-9, atol=1e-9)
    assert sketch.rms == pytest.approx(float(np.sqrt(np.mean(wide**2))))


def test_rounding_changes_little() -> None:
    values = _matrix(24, 40)
    wide, narrow = sketch_weight("a", values), sketch_weight("a", values.astype(ml_dtypes.bfloat16))
    distance = np.linalg.norm(_rows(wide) - _rows(narrow)) / np.linalg.norm(_rows(wide))
    assert 0 < distance < 2.0**-8
    assert narrow.dtype == "bfloat16"


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.bool_, ml_dtypes.float8_e4m3fn])
def test_codes_have_no_sketch(dtype: type) -> None:
    sketch = sketch_weight("packed", np.ones((4, 6)).astype(dtype))
    assert sketch.rows is None
    assert "codes" in sketch.unreadable
    assert sketch.shape == (4, 6)


def test_no_values_have_no_sketch() -> None:
    assert sketch_weight("empty", np.ones((0, 6), np.float32)).unreadable == "it has no values"


def test_values_that_are_no_numbers_stay_visible() -> None:
    values = _matrix(5, 6)
    values[2, 1] = np.nan
    rows = _rows(sketch_weight("a", values))
    assert np.isnan(rows[0]).tolist() == [False, False, True, False, False]


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((), (1, 1, 1)),
        ((5,), (1, 5, 1)),
        ((5, 7), (1, 5, 7)),
        ((3, 5, 7), (3, 5, 7)),
        ((5, 7, 2, 3), (1, 5, 42)),
    ],
)
def test_every_shape_is_a_stack_of_matrices(
    shape: tuple[int, ...], expected: tuple[int, int, int]
) -> None:
    assert matrix_shape(shape) == expected
    if shape:
        sketch = sketch_weight("a", np.ones(shape, np.float32))
        assert _rows(sketch).shape == expected[:2]


def test_the_vectors_never_change() -> None:
    # Dumps of earlier versions hold what these gave.
    known = [0.382382778919798, -0.04607473070127352, -1.389910718893148]
    np.testing.assert_allclose(direction(3), known, rtol=1e-15)
    assert direction(1).tolist() == [1.0]


@pytest.mark.parametrize("dtype", ["<U3", "datetime64[s]", "object"])
def test_what_is_no_number_is_recorded_without_a_sketch(dtype: str) -> None:
    sketch = sketch_weight("labels", np.zeros((2, 3), dtype))
    assert (sketch.rows, sketch.shape) == (None, (2, 3))
    assert sketch.dtype == str(np.dtype(dtype))
    assert sketch.unreadable
