"""What the figures of a multiply-add are judged by; tests/tools/test_explain_fma.py runs MAX."""

from dataclasses import replace

import pytest
import torch

from test_common.fma_contraction import (
    Cause,
    MultiplyAdd,
    compare_ways,
    explain,
    format_measurement,
)


def operands(dtype: torch.dtype) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(7)
    return [torch.randn(600, generator=generator).to(dtype) for _ in range(3)]


def rounded_once(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    return (x.double() * y.double() + z.double()).to(x.dtype)


def measured(dtype: torch.dtype, *, shift: float = 0.0) -> MultiplyAdd:
    x, y, z = operands(dtype)
    return compare_ways([x, y, z], one=rounded_once(x, y, z) + shift, two=x * y + z)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_one_rounding_is_told_from_two(dtype: torch.dtype) -> None:
    found = measured(dtype)
    assert found.cause is Cause.ROUNDING_ORDER
    assert found.two_from_torch == 0
    assert 0 < found.one_from_torch == found.one_from_two
    assert found.nearer_two == 0
    assert found.error_one < found.error_two == found.error_torch
    assert 0 < found.operand_ulp <= 1 <= found.result_ulp
    assert "rounding order (FMA), not a bug" in explain(found)


def test_the_same_bits_are_no_rounding_order() -> None:
    x, y, z = operands(torch.bfloat16)
    found = compare_ways([x, y, z], one=x * y + z, two=x * y + z)
    assert found.cause is Cause.SAME
    assert (found.operand_ulp, found.result_ulp, found.one_from_torch) == (0, 0, 0)
    assert "not a bug" not in explain(found)


@pytest.mark.parametrize(
    "change",
    [
        {"two_from_torch": 1},
        {"operand_ulp": 1.5},
        {"error_one": 1.0},
        {"nearer_one": 0, "nearer_two": 3},
    ],
)
def test_a_bug_is_not_excused(change: dict[str, float]) -> None:
    found = replace(measured(torch.bfloat16), **change)
    assert found.cause is Cause.OTHER
    assert "rounding order does not explain it" in explain(found)


def test_a_constant_that_is_added_is_a_bug() -> None:
    assert measured(torch.float32, shift=1e-3).cause is Cause.OTHER


def test_ulp_of_the_result_counts_values_in_between() -> None:
    x, y, z = (torch.tensor([v], dtype=torch.bfloat16) for v in (1.0, 1.0, 0.0))
    one = torch.tensor([-(2.0**-133)], dtype=torch.bfloat16)  # the subnormal beside zero
    assert compare_ways([x, y, z], one=one, two=-one).result_ulp == 2
    above = torch.tensor([1 + 2.0**-7], dtype=torch.bfloat16)
    found = compare_ways([x, y, z], one=above, two=x)
    assert (found.result_ulp, found.operand_ulp) == (1, 1)


def test_figures_are_shown_with_their_counts() -> None:
    text = format_measurement(measured(torch.bfloat16))
    assert text.startswith("bfloat16, x * y + z of 600 elements\n")
    assert "/ 600" in text
    assert "two graphs 0 / 600" in text
    assert "bfloat16 ULP of the greater operand" in text
