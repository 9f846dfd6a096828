"""The parts that hypotheses are made of, each against an independent calculation."""

import math

import ml_dtypes
import numpy as np
import pytest
import torch
from torch.nn import functional

from diagnosis.causes.attention_sites import AttentionChange, changed_attention
from diagnosis.causes.changes import rounded, rounded_array, with_attributes, with_parameter
from diagnosis.causes.fitting import fitted
from diagnosis.causes.output_map import channel_map
from diagnosis.causes.rope import read_recipe


def test_fitting_finds_a_factor_and_an_exponent() -> None:
    x = np.random.default_rng(0).standard_normal((7, 5))
    assert fitted(lambda v: x * v, x * 1.37, (2.0, 0.5)) == pytest.approx(1.37, rel=1e-12)
    y = np.exp(-0.83 * np.abs(x))
    found = fitted(lambda v: np.exp(-v * np.abs(x)), y, (0.1, 3.0))
    assert found == pytest.approx(0.83, rel=1e-9)


def test_fitting_gives_nothing_where_no_start_gives_values() -> None:
    assert fitted(lambda v: None, np.ones((2, 2)), (1.0,)) is None
    assert fitted(lambda v: np.ones(3), np.ones((2, 2)), (1.0,)) is None


def test_channel_map_finds_an_order_a_copy_and_what_is_missing() -> None:
    reference = np.random.default_rng(1).standard_normal((6, 8))
    order = np.array([3, 1, 0, 2, 7, 7, 5, 4])
    assert channel_map(reference[:, order], reference).tolist() == order.tolist()
    other = reference[:, order].copy()
    other[:, 2] += 0.5
    assert channel_map(other, reference)[2] == -1
    assert channel_map(reference[:2], reference[:2]) is None


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_rounding_is_torchs(dtype: str) -> None:
    x = torch.randn(999, dtype=torch.float32, generator=torch.Generator().manual_seed(3)) * 7
    right = x.to(getattr(torch, dtype)).double()
    assert torch.equal(rounded(x.double(), dtype), right)


def test_tf32_keeps_ten_bits_and_rounds_ties_to_even() -> None:
    step = 2.0**-10
    values = np.array([1.0, 1 + step, 1 + step / 2, 1 + 1.5 * step, 1 + step * 0.75, -3.0])
    right = np.array([1.0, 1 + step, 1.0, 1 + 2 * step, 1 + step, -3.0])
    assert rounded_array(values, "tf32").tolist() == right.tolist()


def test_small_floats_round_as_their_package_has_it() -> None:
    values = np.linspace(-500, 500, 201)
    right = values.astype(np.float32).astype(ml_dtypes.float8_e5m2).astype(np.float64)
    assert rounded_array(values, "float8_e5m2").tolist() == right.tolist()


def test_changes_are_undone() -> None:
    layer = torch.nn.Linear(3, 2)
    weight = layer.weight
    with with_attributes(layer, {"eps": 1.0, "in_features": 9}):
        assert (layer.eps, layer.in_features) == (1.0, 9)
    assert layer.in_features == 3
    assert not hasattr(layer, "eps")
    with with_parameter(layer, "weight", torch.zeros(2, 3)):
        assert not layer.weight.any()
    assert layer.weight is weight


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    scores = torch.matmul(q, k.transpose(2, 3)) / math.sqrt(q.shape[-1])
    later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    weights = torch.softmax(scores.masked_fill(later, -math.inf), dim=-1)
    return torch.matmul(weights, v)


def heads() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(5)
    return tuple(
        torch.randn(2, 4, 9, 16, dtype=torch.float64, generator=generator) for _ in range(3)
    )


def test_sites_change_scores_of_attention_by_hand_and_of_torchs_own_alike() -> None:
    q, k, v = heads()
    right = attention(q * 1.5, k, v)
    change = AttentionChange(operands=lambda q, k: (q * 1.5, k))
    with changed_attention(change):
        by_hand = attention(q, k, v)
        by_torch = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    assert torch.allclose(by_hand, right)
    assert torch.allclose(by_torch, right)
    assert not torch.allclose(attention(q, k, v), right)


def test_sites_that_change_nothing_give_what_torch_gives() -> None:
    q, k, v = heads()
    mask = torch.randn(9, 9, dtype=torch.float64)
    single = k[:, :2], v[:, :2]
    with changed_attention(AttentionChange()):
        masked = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=0.3)
        grouped = functional.scaled_dot_product_attention(q, *single, enable_gqa=True)
    assert torch.allclose(
        masked, functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=0.3)
    )
    assert torch.allclose(
        grouped, functional.scaled_dot_product_attention(q, *single, enable_gqa=True)
    )


def test_values_are_changed_behind_the_softmax_only() -> None:
    q, k, v = heads()
    with changed_attention(AttentionChange(values=lambda w, v: (w, v.roll(1, dims=-3)))):
        found = attention(q, k, v)
    assert torch.allclose(found, attention(q, k, v.roll(1, dims=1)))


def test_tables_are_read_back() -> None:
    pairs, tokens = 8, 700
    frequencies = 20000.0 ** (-torch.arange(pairs, dtype=torch.float64) / pairs)
    angles = torch.arange(tokens, dtype=torch.float64)[:, None] * frequencies
    angles = torch.cat([angles, angles], dim=-1)[None]
    recipe = read_recipe((angles.cos() * 1.1, angles.sin() * 1.1))
    assert recipe is not None
    assert recipe.factor == pytest.approx(1.1)
    assert recipe.frequencies.tolist() == pytest.approx(frequencies.tolist(), rel=1e-9)
    assert read_recipe((angles, angles)) is None
