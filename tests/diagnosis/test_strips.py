"""Strips of weights are found by their values, in bounded time."""

import time

import numpy as np
import pytest

from comparison.numerics.dtypes import Array
from diagnosis.weights.strips import Strip, StripIndex

RANDOM = np.random.default_rng(5)


def strip(values: Array, weight: str = "w") -> Strip:
    return Strip(weight=weight, matrix=0, is_rows=True, length=7, dtype="float32", values=values)


def test_a_block_is_found_where_all_its_values_lie_one_behind_the_other() -> None:
    values = RANDOM.standard_normal(50)
    values[[20, 22]] = np.nan, values[10]
    index = StripIndex([strip(RANDOM.standard_normal(30), "other"), strip(values)])
    for start, stop in ((0, 50), (10, 14), (18, 26), (49, 50)):
        found = index.block(values[start:stop], length=7)
        assert found is not None
        assert found.weight == "w"
    assert index.block(values[[10, 12]], length=7) is None
    assert index.block(np.append(values, 0.0), length=7) is None
    assert index.block(values, length=8) is None
    assert index.block(values[:0], length=7) is None


def test_small_values_are_found_by_the_size_of_all() -> None:
    values = np.array([1e-9, 3.0, -2.0])
    moved = values + 1e-12
    assert StripIndex([strip(RANDOM.standard_normal(9)), strip(moved)]).block(values, length=7)


def test_many_short_strips_are_not_looked_through_one_by_one() -> None:
    strips = [strip(RANDOM.standard_normal(8), f"w{number}") for number in range(3000)]
    index = StripIndex(strips)
    began = time.process_time()
    assert all(index.block(RANDOM.standard_normal(8), length=7) is None for _ in range(3000))
    found = [index.block(part.values, length=7) for part in strips]
    assert [part and part.weight for part in found] == [part.weight for part in strips]
    assert time.process_time() - began < 10


@pytest.mark.parametrize("size", [20_000, 400_000])
def test_values_that_come_again_and_again_take_no_time(size: int) -> None:
    line = np.zeros(size)
    line[-1] = 1.0
    block = np.zeros(size // 2)
    block[-1] = 2.0
    began = time.process_time()
    assert StripIndex([strip(line)]).block(block, length=7) is None
    assert time.process_time() - began < 5
