import math

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
    found = numbers_in(text)
    assert found is not None
    assert [number.value for number in found] == values
    assert [number.unit for number in found] == pytest.approx(units)


@pytest.mark.parametrize("text", ["", "<cannot be shown>", "tensor([1.+2.j])"])
def test_other_texts_have_no_numbers(text: str) -> None:
    assert numbers_in(text) is None
