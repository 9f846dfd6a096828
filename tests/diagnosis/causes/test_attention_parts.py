"""What may be done inside an attention, each part held against the formula written out."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from diagnosis.causes import inner_clip, masks, rope_bands, soft_cap
from diagnosis.causes.attention_sites import AttentionChange, changed_attention
from diagnosis.causes.cache_reads import reading, reads
from diagnosis.causes.changes import rounded
from diagnosis.causes.rope import read_recipe
from diagnosis.causes.rotations import _in_halves, _turn
from diagnosis.causes.trial import FittedTrial, RunTrial
from tests.diagnosis.causes.made_region import (
    LENGTHS,
    MadeRegion,
    check_of,
    numbers,
)

B, N, S, D = 1, 3, 6, 4
PROMPT = 4  # of the six tokens, two are decode steps


def tensor(*shape: int, seed: int) -> torch.Tensor:
    return torch.from_numpy(numbers(*shape, seed=seed))


Q, K, V = (tensor(B, N, S, D, seed=seed) for seed in (1, 2, 3))


def region() -> MadeRegion:
    exact = numbers(S, 5)
    made = MadeRegion(nn.Identity(), check_of("a-output", exact, exact, lengths=(S,)), prompts=(S,))
    made.checker.wide_calls[0].prompt_tokens, made.checker.wide_calls[0].tokens = PROMPT, S
    return made


READ: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "keeps earlier {side} in the cache rounded to bfloat16": lambda x: torch.cat(
        [rounded(x[..., :-1, :], "bfloat16"), x[..., -1:, :]], -2
    ),
    "keeps {side} in the cache rounded to float16": lambda x: rounded(x, "float16"),
    "has {side} of the newest token in the place of the one before it, too": lambda x: torch.cat(
        [x[..., :-2, :], x[..., -1:, :], x[..., -1:, :]], -2
    ),
    "has {side} moved up by one token, the first one last": lambda x: x.roll(-1, -2),
    "has zeros in the place of the earlier {side}": lambda x: torch.cat(
        [x[..., :-1, :] * 0, x[..., -1:, :]], -2
    ),
    "has the earlier {side} one token too late, the newest of them twice": lambda x: torch.cat(
        [x[..., 1:-1, :], x[..., -2:-1, :], x[..., -1:, :]], -2
    ),
    "has no {side} of the latest token in the cache, but those of the one before it": (
        lambda x: torch.cat([x[..., :-2, :], x[..., -3:-2, :], x[..., -1:, :]], -2)
    ),
}


@pytest.mark.parametrize("says", READ)
@pytest.mark.parametrize("keys", [True, False])
def test_what_decode_steps_read_from_the_cache(says: str, keys: bool) -> None:
    (read,) = [read for name, _, read in reads() if name == says]
    left = Q if keys else torch.softmax(tensor(B, N, S, S, seed=4), -1).tril()
    right = K.transpose(-2, -1) if keys else V
    product = torch.matmul(*reading(region(), read, keys, left, right))
    usual = left @ right
    assert torch.equal(product[..., :PROMPT, :PROMPT], usual[..., :PROMPT, :PROMPT])
    for step in range(PROMPT, S):
        there = READ[says]((K if keys else V)[..., : step + 1, :])
        if keys:
            wanted = Q[..., step : step + 1, :] @ there.transpose(-2, -1)
            torch.testing.assert_close(product[..., step : step + 1, : step + 1], wanted)
        else:
            wanted = left[..., step : step + 1, : step + 1] @ there
            torch.testing.assert_close(product[..., step : step + 1, :], wanted)


def test_integers_by_token_and_head_lie_within_half_a_step() -> None:
    (read,) = [read for name, _, read in reads() if "8-bit integers" in name]
    found = read(K)
    step = K.abs().amax(-1, keepdim=True) / 127
    assert ((found - K).abs() <= step / 2 + 1e-12).all()
    assert torch.equal(found[..., -1, :], K[..., -1, :])  # the newest is not in the cache yet


HIDDEN = torch.ones(S, S, dtype=torch.bool).triu(1)
DOUBLED = AttentionChange(scores=lambda x: x * 2)


def spelled_out(k: torch.Tensor, v: torch.Tensor, factor: float) -> torch.Tensor:
    scores = (2 * factor * Q @ k.transpose(-2, -1)).masked_fill(HIDDEN, -math.inf)
    return scores.softmax(-1) @ v


def with_groups(**more: Any) -> torch.Tensor:
    one = K[:, :1], V[:, :1]
    return functional.scaled_dot_product_attention(Q, *one, enable_gqa=True, **more)


@pytest.mark.parametrize(
    ("attention", "wanted"),
    [
        (
            lambda: functional.scaled_dot_product_attention(Q, K, V, is_causal=True),
            lambda: spelled_out(K, V, 0.5),
        ),
        (
            lambda: functional.scaled_dot_product_attention(Q, K, V, ~HIDDEN, scale=0.3),
            lambda: spelled_out(K, V, 0.3),
        ),
        (
            lambda: with_groups(is_causal=True),
            lambda: spelled_out(K[:, :1].expand_as(K), V[:, :1].expand_as(V), 0.5),
        ),
        (
            lambda: torch.bmm(
                torch.baddbmm(
                    torch.zeros(S, S).double().masked_fill(HIDDEN, -math.inf),
                    batch1=Q[0], batch2=K[0].transpose(-2, -1), beta=1.0, alpha=0.5,
                ).softmax(-1),
                V[0],
            )[None],
            lambda: spelled_out(K, V, 0.5),
        ),
    ],
    ids=["causal", "boolean mask", "groups", "baddbmm"],
)  # fmt: skip
def test_scores_are_changed_however_an_attention_is_written(attention: Any, wanted: Any) -> None:
    with changed_attention(DOUBLED):
        found = attention()
    torch.testing.assert_close(found, wanted())


def test_an_additive_mask_and_plain_products_are_left_as_they_are() -> None:
    mask = torch.zeros(S, S).double().masked_fill(HIDDEN, -1e9)
    with changed_attention(DOUBLED):
        found = functional.scaled_dot_product_attention(Q, K, V, mask)
        flat = torch.matmul(Q[0, 0], K[0, 0].T)
        softmax = torch.softmax(Q[0, 0], -1)
    torch.testing.assert_close(found, spelled_out(K, V, 0.5))
    torch.testing.assert_close(flat, Q[0, 0] @ K[0, 0].T)
    torch.testing.assert_close(softmax, Q[0, 0].softmax(-1))


@pytest.mark.parametrize(
    ("value", "left"),
    [
        (torch.zeros(1, 1, S, S), 0),
        (~HIDDEN[None, None], 1),
        (torch.zeros(1, 1, 1, S), None),
        (torch.zeros(1, N, S, S), None),
        (torch.zeros(S, S), None),
        (7, None),
    ],
)
def test_masks_are_taken_away_from_what_an_attention_is_given(value: Any, left: float) -> None:
    kept: list[torch.Tensor] = []
    found = masks._taken(value, kept)
    if left is None:
        assert found is value
        assert kept == []
        return
    assert (found == left).all()
    hidden = kept[0] < -1
    assert torch.equal(hidden, HIDDEN[None, None] if value.dtype == torch.bool else hidden & False)


class Capped(nn.Module):
    """Caps what it is given softly."""

    def __init__(self, cap: float = 3.0) -> None:
        super().__init__()
        self.cap = cap

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x / self.cap) * self.cap


INPUTS = numbers(sum(LENGTHS), 5) * 4


def test_a_cap_that_is_left_out_cut_off_or_another_one() -> None:
    exact = np.tanh(INPUTS / 3) * 3
    made = MadeRegion(Capped(), check_of("model.cap-output", exact, INPUTS), inputs=INPUTS)
    trials = {trial.says: trial for trial in soft_cap.trials(made)}
    x = torch.from_numpy(INPUTS)
    left_out, cut = (
        trials["leaves the soft cap out"],
        trials["cuts off at the cap, and does not bend towards it"],
    )
    assert isinstance(left_out, RunTrial)
    assert isinstance(cut, RunTrial)
    with left_out.change():
        torch.testing.assert_close(made.module(x), x)
    with cut.change():
        torch.testing.assert_close(made.module(x), x.clamp(-3, 3))
    other = trials["caps softly at {value} times the right cap"]
    assert isinstance(other, FittedTrial)
    with other.change(2.0):
        found = made.module(x)
    torch.testing.assert_close(found, torch.tanh(x / 6) * 6)


def test_a_tanh_that_changes_nothing_is_no_cap() -> None:
    class Idle(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + 0 * torch.tanh(x)

    made = MadeRegion(Idle(), check_of("model.act-output", INPUTS, INPUTS * 2), inputs=INPUTS)
    assert [t for t in soft_cap.trials(made) if "logits" not in t.says] == []


def test_logits_are_capped_within_an_output_too() -> None:
    class Output:
        logits = torch.from_numpy(INPUTS)

    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            del x
            return Output()

    made = MadeRegion(Model(), check_of("model-output_logits", INPUTS, INPUTS))
    with soft_cap._logits_capped(made, 2.0):
        found = made.module(torch.zeros(1))
    torch.testing.assert_close(found.logits, torch.tanh(torch.from_numpy(INPUTS) / 2) * 2)


class Cutting(nn.Module):
    """Cuts in two ways, behind projections."""

    def __init__(self, *names: str) -> None:
        super().__init__()
        for name in names:
            setattr(self, name, nn.Identity())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for child in self.children():
            x = child(x)
        low = torch.clamp(x, min=-2.0)
        return torch.clamp(low, -9.0, 1.0)


X = torch.linspace(-8, 8, 33).double()


def trials_of(module: nn.Module, *, attention: bool = False) -> dict[str, Any]:
    made = MadeRegion(module, check_of("model.mlp-output", INPUTS, INPUTS), has_attention=attention)
    return {trial.says: trial for trial in inner_clip.trials(made)}


def test_cuts_that_are_left_out_or_elsewhere() -> None:
    module = Cutting()
    trials = trials_of(module)
    with trials["cuts nothing off where the reference does"].change():
        torch.testing.assert_close(module(X), X)
    with trials["does not cut off the first of the values that the reference does"].change():
        torch.testing.assert_close(module(X), X.clamp(-9, 1))
    with trials["does not cut off the second of the values that the reference does"].change():
        torch.testing.assert_close(module(X), X.clamp(min=-2))
    with trials["cuts values off at {value} where the reference does elsewhere"].change(1.5):
        torch.testing.assert_close(module(X), X.clamp(-1.5, 1.5))


@pytest.mark.parametrize(
    ("names", "named"),
    [
        (("c_attn",), ["queries, keys and values"]),
        (
            ("q_proj", "k_proj", "v_proj"),
            ["queries, keys and values", "queries and keys", "values"],
        ),
        (("wq", "wk"), ["queries, keys and values", "queries and keys", "values"]),
    ],
)
def test_projections_that_are_cut(names: tuple[str, ...], named: list[str]) -> None:
    module = Cutting(*names)
    trials = trials_of(module, attention=True)
    said = [f"cuts {what} off at {{value}} on both sides" for what in named]
    assert [
        says for says in trials if says.startswith(("cuts queries", "cuts values off at {value} o"))
    ] == said
    with trials[said[0]].change(0.5):
        torch.testing.assert_close(module(X), X.clamp(-0.5, 0.5))


POSITIONS = torch.cat([torch.arange(n) for n in LENGTHS]).double()
FREQUENCIES = 1e4 ** -(torch.arange(3).double() / 3)


class Rotary(nn.Module):
    """Makes the tables of a rotation."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("inv_freq", FREQUENCIES.clone())

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        angle = torch.arange(9).double()[:, None] * self.inv_freq
        return torch.cat([angle.cos()] * 2, -1), torch.cat([angle.sin()] * 2, -1)


@pytest.mark.parametrize("function", [np.cos, np.sin])
def test_bands_that_turn_at_another_speed(function: Any) -> None:
    def table(frequencies: np.ndarray) -> np.ndarray:
        angle = POSITIONS.numpy()[:, None] * frequencies
        return np.concatenate([function(angle)] * 2, axis=1)

    own = FREQUENCIES.numpy()
    recipe = read_recipe(Rotary()(torch.zeros(1)))
    assert recipe is not None
    for wrong, says in ((own * [1, 3, 1], "1 of 3 bands"), (own, None)):
        first = check_of("model.rotary_emb-output_0", table(own), table(wrong))
        found = list(rope_bands.bands(MadeRegion(Rotary(), first), recipe))
        assert [trial.says[: len(f"rotates {says}")] for trial in found] == (
            [f"rotates {says}"] if says else []
        )
    assert rope_bands._least_squares(lambda f: np.full(4, np.nan), own) is None
    assert rope_bands._least_squares(lambda f: np.where(f == own, f + 1, np.inf), own) is None
    assert rope_bands._least_squares(lambda f: np.ones(4), own) is None
    near = rope_bands._least_squares(lambda f: (f - 2.0) * 3, own)
    assert near is not None
    np.testing.assert_allclose(near, 2.0, rtol=1e-6)


def test_what_is_no_rotation_in_halves_or_pairs() -> None:
    cos, sin = Rotary()(torch.zeros(1))
    x = tensor(9, 6, seed=7)
    with pytest.raises(ValueError, match="rotates otherwise"):
        _turn(x, x * 2, cos, sin)
    halves = torch.cat([x[:, :3] * cos[:, :3] - x[:, 3:] * sin[:, :3],
                        x[:, 3:] * cos[:, 3:] + x[:, :3] * sin[:, 3:]], -1)  # fmt: skip
    assert not _turn(x, halves, cos, sin).in_pairs
    pairs = cos[:, :3].repeat_interleave(2, -1)
    assert torch.equal(_in_halves(pairs), cos)
    assert _in_halves(cos) is cos


def test_tables_that_are_too_short_or_none_of_a_rotation() -> None:
    cos, sin = Rotary()(torch.zeros(1))
    assert read_recipe((cos[:1], sin[:1])) is None
    assert read_recipe((cos[:, :5], sin[:, :5])) is None
    assert read_recipe((cos * 0, sin * 0)) is None
    assert read_recipe((tensor(9, 6, seed=1), tensor(9, 6, seed=2))) is None
