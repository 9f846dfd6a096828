"""One value of two traces, of which each side may hold all, a text, or statistics alone."""

import tracemalloc
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from comparison.numerics.dtypes import Array
from comparison.schema.tolerance import Tolerance
from comparison.traces.shown_numbers import ShownNumber
from comparison.traces.trace_values import (
    difference_of,
    has_other_rows,
    is_mask_of_one_side,
)
from comparison.traces.traced_call import TracedTensor, TracedValue

NONE = Tolerance(rtol=0.0, atol=0.0)


def whole(array: Array, **more: Any) -> TracedTensor:
    def load() -> Array:
        return array

    return TracedTensor(shape=None, dtype="", load=load, **more)


def shown(text: str, shape: tuple[int, ...], dtype: str = "float32", **numbers: float) -> Any:
    statistics = {name: ShownNumber(value=n, unit=1e-4) for name, n in numbers.items()}
    return TracedTensor(shape=shape, dtype=dtype, text=text, statistics=statistics)


ONES = np.ones((2, 3), np.float32)


@pytest.mark.parametrize(
    ("reference", "candidate", "said"),
    [
        ("None", "None", None),
        ("None", "3", "None against 3"),
        ("None", shown("tensor([1.])", (1,)), "None against a tensor [1] of float32"),
        (whole(ONES), whole(ONES), None),
        (whole(ONES), whole(ONES[:, :2]), "shape (2, 3) against (2, 2)"),
        (whole(ONES), whole(ONES.astype(int)), "dtype float32 against int64"),
        (
            whole(ONES),
            whole(ONES.astype(ml_dtypes.bfloat16)),
            "dtype float32 against bfloat16",
        ),
        (
            whole(ONES),
            whole(ONES + np.eye(2, 3, dtype=np.float32)),
            "2 of 6 elements differ, greatest absolute difference 1 at index (0, 0)",
        ),
        (whole(ONES), whole(np.full_like(ONES, np.nan)), "6 of 6 elements differ"),
        (shown("tensor([1., 2.])", (2,)), whole(np.array([1, 2], np.float32)), None),
        (
            shown("tensor([1.0000, 2.0000])", (2,)),
            whole(np.array([1, 3], np.float32)),
            "1 of 2 numbers shown differ, greatest absolute difference 1",
        ),
        (shown("tensor([])", (0,)), whole(np.ones(0, np.float32)), None),
        (shown("tensor([1.+2.j])", (1,), "complex64"), whole(np.ones(1, np.complex64)), None),
        (
            shown("", (2,), std=5.0),
            whole(np.array([1, 3], np.float32)),
            "std 5 against 1.41421",
        ),
        (shown("", (1,), std=5.0), whole(np.ones(1, np.float32)), None),  # one has no deviation
        (shown("", (2,), mean=5.0), whole(np.full(2, 1e16, np.float32)), None),
        (
            shown("tensor([1., nan, 3.])", (3,)),
            shown("tensor([2., 2., 5.])", (3,)),
            "3 of 3 numbers shown differ, greatest absolute difference 2",
        ),
        (
            shown("tensor([nan])", (1,)),
            shown("tensor([2.])", (1,)),
            "1 of 1 numbers shown differ, greatest absolute difference nan",
        ),
        (shown("tensor([1., 2.])", (9,)), shown("tensor([1.])", (9,)), "the texts differ"),
        (shown("tensor([ab])", (2,)), shown("tensor([cd])", (2,)), None),
        (shown("<unread>", (2,)), shown("<other>", (2,)), "the texts differ"),
    ],
)
def test_differences(reference: TracedValue, candidate: TracedValue, said: str | None) -> None:
    assert difference_of(reference, candidate, NONE) == said


def test_more_numbers_than_any_trace_shows_are_told_by_statistics() -> None:
    many = np.linspace(0, 1, 10_001, dtype=np.float32)
    text = shown("tensor([9.])", many.shape, min=0.0, max=1.0)
    assert difference_of(text, whole(many), NONE) is None
    assert difference_of(text, whole(many + 1), NONE) == "max 1 against 2, min 0 against 1"


def test_long_texts_are_compared_without_keeping_their_numbers() -> None:
    numbers = "12.5, " * 200_000
    texts = [shown(f"tensor([{numbers}{end}])", (200_001,)) for end in ("1.", "2.")]
    tracemalloc.start()
    said = difference_of(*texts, NONE)
    assert tracemalloc.get_traced_memory()[1] < 1_000_000
    tracemalloc.stop()
    assert said == "1 of 200001 numbers shown differ, greatest absolute difference 1"


@pytest.mark.parametrize("leading", [(), (1,), (1, 1)])
def test_leading_ones_of_another_engine_say_nothing(leading: tuple[int, ...]) -> None:
    other = whole(ONES.reshape(*leading, 2, 3), has_loose_shape=True)
    assert difference_of(whole(ONES), other, NONE) is None
    assert difference_of(shown("", (2, 3), min=1.0), other, NONE) is None
    assert not has_other_rows(whole(ONES), other)


def test_rows_of_other_tokens() -> None:
    loose = partial(whole, has_loose_shape=True)
    assert has_other_rows(whole(ONES), loose(ONES[:1]))
    assert not has_other_rows(whole(ONES), whole(ONES[:1]))  # of one engine, that is a difference
    assert not has_other_rows(whole(ONES), loose(ONES[:, :2]))  # nor are these the same rows
    assert not has_other_rows("None", loose(ONES))
    assert has_other_rows(shown("", (2, 3)), loose(ONES[:1]))


def test_a_mask_of_one_side_is_told_from_other_values() -> None:
    mask = whole(ONES)
    assert is_mask_of_one_side("input_attention_mask", "None", mask)
    assert is_mask_of_one_side("input_attention_mask", mask, "None")
    assert not is_mask_of_one_side("input_attention_mask", mask, mask)
    assert not is_mask_of_one_side("input_attention_mask", "None", "3")
    assert not is_mask_of_one_side("input_0", "None", mask)
