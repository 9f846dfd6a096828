"""Statistics of whole tensors, as a trace has them."""

import tracemalloc

import ml_dtypes
import numpy as np
import pytest

from comparison.numerics.blocks import CHUNK_ELEMENTS
from comparison.numerics.dtypes import Array
from comparison.traces.whole_tensor import numbers_of, statistics_of

SIZE = 2 * CHUNK_ELEMENTS + 77


def expected(array: Array) -> list[float]:
    wide = array.astype(np.float64)
    return [wide.min(), wide.max(), wide.mean(), wide.std(ddof=1)]


def values(array: Array) -> list[float]:
    return [number.value for number in statistics_of(array).values()]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "uint8", "int64", "bool"])
@pytest.mark.parametrize("center", [0.0, 100.0, 3.0])
def test_pieces_give_the_statistics_of_the_whole(dtype: str, center: float) -> None:
    random = np.random.default_rng(3)
    array = np.abs(random.normal(center, 2.0, (SIZE // 3, 3))).astype(
        getattr(ml_dtypes, dtype, dtype)
    )
    for each in (array, array.T, array[::2]):
        assert list(statistics_of(each)) == ["min", "max", "mean", "std"]
        assert values(each) == pytest.approx(expected(each), rel=1e-12)


def test_a_mean_far_from_zero_leaves_the_deviation_as_it_is() -> None:
    array = 1e9 + np.arange(SIZE, dtype=np.float64) / SIZE
    assert values(array) == pytest.approx(expected(array), rel=1e-6)


@pytest.mark.parametrize("place", [0, SIZE - 1])
@pytest.mark.parametrize("found", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_shows_wherever_it_is(place: int, found: float) -> None:
    array = np.linspace(-1, 1, SIZE, dtype=np.float32)
    array[place] = found
    told = statistics_of(array)
    if np.isnan(found):
        assert [number.value for number in told.values()] == pytest.approx(
            [np.nan] * 4, nan_ok=True
        )
    else:
        assert list(told) == ["min", "max"]
        assert told["min" if found < 0 else "max"].value == found
    assert {number.unit for number in told.values()} == {0.0}


def test_an_infinity_and_a_nan_of_different_pieces() -> None:
    array = np.zeros(SIZE, np.float32)
    array[0], array[-1] = np.inf, np.nan
    assert values(array) == pytest.approx([np.nan] * 4, nan_ok=True)


@pytest.mark.parametrize("array", [np.ones(3, np.complex64), np.ones((0, 4), np.float32)])
def test_no_statistics_of_complex_numbers_and_of_none(array: Array) -> None:
    assert statistics_of(array) == {}


def test_a_tensor_of_one_number_has_no_deviation() -> None:
    assert list(statistics_of(np.float32(2.0).reshape(()))) == ["min", "max", "mean"]


def test_memory_does_not_grow_with_the_tensor() -> None:
    array = np.broadcast_to(np.uint8(7), (1000, 4096))  # 33 MB as float64
    tracemalloc.start()
    assert values(array) == [7.0, 7.0, 7.0, 0.0]
    assert tracemalloc.get_traced_memory()[1] < 2_000_000
    tracemalloc.stop()


def test_numbers_only_of_what_a_trace_may_show_as_a_whole() -> None:
    assert [number.value for number in numbers_of(np.array([1, 2])) or ()] == [1.0, 2.0]
    assert numbers_of(np.zeros(10_001)) is None
    assert numbers_of(np.zeros(2, np.complex64)) is None
