import math
import tracemalloc
from itertools import islice

import pytest

from comparison.traces.shown_numbers import numbers_in


@pytest.mark.parametrize(
    ("text", "values", "units"),
    [
        ("tensor(-1.2620e-03)", [-1.262e-3], [1e-7]),
        ("tensor(7)", [7], [0]),
        ("tensor(1.5000, dtype=torch.float64)", [1.5], [1e-4]),
        (
            "tensor([[1., 2.],\n  [30., 4.25]], dtype=torch.float16)",
            [1, 2, 30, 4.25],
            [1, 1, 1, 0.01],
        ),
        ("tensor([True, False])", [1, 0], [0, 0]),
        ("tensor([-inf, 1.5e999])", [-math.inf, math.inf], [0, math.inf]),
        ("tensor([], size=(0, 3))", [], []),
    ],
)
def test_numbers_have_the_worth_of_their_last_digit(
    text: str, values: list[float], units: list[float]
) -> None:
    numbers = numbers_in(text)
    assert numbers is not None
    found = list(numbers)
    assert [number.value for number in found] == values
    assert [number.unit for number in found] == pytest.approx(units)


@pytest.mark.parametrize("text", ["", "<cannot be shown>", "tensor([1.+2.j])"])
def test_other_texts_have_no_numbers(text: str) -> None:
    assert numbers_in(text) is None


def test_the_numbers_of_a_long_text_are_never_all_kept() -> None:
    text = f"tensor([{'12.5, ' * 200_000}])"
    tracemalloc.start()
    numbers = numbers_in(text)
    assert numbers is not None
    assert sum(1 for _ in numbers) == 200_000
    assert tracemalloc.get_traced_memory()[1] < 1_000_000
    tracemalloc.stop()
    assert len(list(islice(numbers_in(text) or (), 2))) == 2


def test_a_number_that_is_there_again_is_read_once() -> None:
    first, second, other = numbers_in("tensor([1.25, 1.25, 1.5])") or ()
    assert first is second
    assert first is not other
