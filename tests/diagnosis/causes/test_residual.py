"""Sums of a layer put together in another way: which one it is, and whose fault that is."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from comparison.numerics.dtypes import Array
from diagnosis.causes import residual
from tests.diagnosis.causes.made_region import LENGTHS, MadeRegion, check_of, explained, numbers

N = sum(LENGTHS)
OWNER = "model.layers.0"
PARTS = {
    f"{OWNER}-input_0": numbers(N, 7, seed=1),
    f"{OWNER}.input_layernorm-output": numbers(N, 7, seed=2),
    f"{OWNER}.self_attn-output": numbers(N, 7, seed=3),
}
X, NORMED, Y = PARTS.values()
MLP = numbers(N, 7, seed=4)
Sum = Callable[[], Array]


def found(
    right: Array,
    wrong: Array,
    *,
    name: str = f"{OWNER}-output",
    later: dict[str, Array] | None = None,
    extra: dict[str, Array] | None = None,
) -> list[tuple[str, str]]:
    owner = torch.nn.Sequential(torch.nn.ReLU())
    first = check_of(name, right, wrong, order=5)
    object.__setattr__(first, "owner", OWNER)
    parts = {**PARTS, **(extra or {})}
    known = [
        check_of(part, value, value, order=at) for at, (part, value) in enumerate(parts.items())
    ]
    known += [check_of(part, value, value, order=9) for part, value in (later or {}).items()]
    region = MadeRegion(owner, first, checks=known)
    region.name = OWNER
    trials = list(residual.trials(region))
    assert len(explained(region, trials)) == len(trials)  # each gives what the candidate has
    return [(trial.cause, f"{trial.says}; {trial.expects}") for trial in trials]


@pytest.mark.parametrize(
    ("right", "wrong", "causes", "says"),
    [
        (
            X + Y, Y, ["residual"],
            "computes model.layers.0.self_attn-output; it is model.layers.0-input_0 + model.layers"
            ".0.self_attn-output",
        ),
        (X + Y, X + 2 * Y, ["residual"], "computes model.layers.0-input_0 + 2 * model.layers.0."),
        (X + Y, X - Y, ["residual"], "computes model.layers.0-input_0 - model.layers.0.self_attn"),
        (X + Y, X + 1.3 * Y, ["scale", "residual"], "computes model.layers.0-input_0 + 1.3 * mod"),
        (X + Y, (X + Y) / 2, ["residual", "scale"], "computes 0.5 * model.layers.0-input_0 + 0.5"),
        (Y, 4 * Y, ["shard", "reduction", "scale"], "computes 4 * model.layers.0.self_attn-output"),
        (Y, Y / 4, ["reduction", "scale"], "computes 0.25 * model.layers.0.self_attn-output"),
        (Y, 1.7 * Y, ["scale"], "computes 1.7 * model.layers.0.self_attn-output"),
        (Y, X, ["residual"], "computes model.layers.0-input_0; it is model.layers.0.self_attn"),
        (NORMED, X, ["norm_order"], "computes model.layers.0-input_0; it is model.layers.0.input"),
        (X + Y, NORMED + Y, ["norm_order", "residual"], "computes model.layers.0.input_layernorm"),
    ],
)  # fmt: skip
def test_other_sums(right: Array, wrong: Array, causes: list[str], says: str) -> None:
    trials = found(right, wrong)
    assert [cause for cause, _ in trials] == causes
    assert all(text.startswith(says) for _, text in trials), trials


def test_a_stream_that_goes_on_behind_a_norm_within_a_layer() -> None:
    trials = found(X + Y, NORMED + Y, name=f"{OWNER}.mlp-input_0")
    assert [cause for cause, _ in trials] == ["residual", "norm_order"]


@pytest.mark.parametrize(
    ("name", "right", "wrong", "cause"),
    [
        (f"{OWNER}.self_attn-input_hidden_states", X, NORMED, "norm_order"),
        (f"{OWNER}.self_attn-input_mask", X, NORMED, "residual"),
        (f"{OWNER}.post_attention_layernorm-input_0", Y, X + Y, "norm_order"),
    ],
)
def test_what_a_part_is_given(name: str, right: Array, wrong: Array, cause: str) -> None:
    assert next(c for c, _ in found(right, wrong, name=name)) == cause


def test_a_sum_that_is_added_later_is_another_order() -> None:
    name = f"{OWNER}.post_attention_layernorm-input_0"
    later = {f"{OWNER}.mlp-output": MLP}
    assert [c for c, _ in found(X + Y, X + MLP, name=name, later=later)] == ["residual"]
    assert found(X + Y, X + 2 * MLP, name=name, later=later) == []  # once only


def test_sums_of_experts_are_of_the_routing() -> None:
    extra = {f"{OWNER}.mlp.experts.3-output": MLP}
    assert [c for c, _ in found(X + Y, X + Y + MLP, extra=extra)] == ["moe_routing"]


def test_what_is_no_sum_of_what_is_known() -> None:
    assert found(X + Y, MLP) == []
    assert found(MLP, X + Y) == []
    assert found(X + Y, X + Y) == []
    assert found(X + Y, np.where(X > 9, X, np.nan)) == []
    broken = {f"{OWNER}.odd-output": np.full((N, 7), np.nan), f"{OWNER}.other-output": MLP[:, :3]}
    assert [c for c, _ in found(X + Y, Y, extra=broken)] == ["residual"]


def test_modules_without_parts_sum_nothing() -> None:
    region = MadeRegion(torch.nn.ReLU(), check_of(f"{OWNER}-output", X, Y))
    assert list(residual.trials(region)) == []


def test_what_comes_back_further_on_was_put_in_another_order() -> None:
    first = check_of(f"{OWNER}.mlp-input_0", X + Y, X, order=5)
    object.__setattr__(first, "owner", OWNER)
    known = [
        check_of(part, value, value, order=at) for at, (part, value) in enumerate(PARTS.items())
    ]
    after = check_of(f"{OWNER}.late-output", MLP, MLP + Y, order=8)
    region = MadeRegion(torch.nn.Sequential(torch.nn.ReLU()), first, checks=known)
    region.checks = (first, after)
    assert [trial.cause for trial in residual.trials(region)] == ["norm_order"]
    region.checks = (first, check_of(f"{OWNER}.late-output", MLP, MLP, order=8))
    assert [trial.cause for trial in residual.trials(region)] == ["residual"]
