"""Positions that are off, masks that are handed down, tables of other layers, in words."""

from typing import Any

import numpy as np
import pytest
import torch

from comparison.align.token_rows import TokenRow
from diagnosis.candidate_tensors import Pinned
from diagnosis.causes import mask_tensor, position_ids, rope_handed
from diagnosis.causes.mask_words import told
from diagnosis.causes.module_calls import ModuleCall
from diagnosis.causes.rotations import Turn
from diagnosis.replay.pinned_replay import Taken
from tests.diagnosis.causes.made_region import LENGTHS, MadeRegion, check_of, explained

N = sum(LENGTHS)
TOKENS = np.concatenate([np.arange(n) for n in LENGTHS])
ROWS = np.repeat([0, 1], LENGTHS)
PROMPTS = np.array([5, 4])[ROWS]
PAD = ROWS  # the second row is one token shorter


def positions(target: np.ndarray, exact: np.ndarray = TOKENS) -> MadeRegion:
    first = check_of("model.model-input_position_ids", exact, target, is_exact=True)
    return MadeRegion(torch.nn.Identity(), first)


@pytest.mark.parametrize(
    ("target", "says"),
    [
        (TOKENS + 1, "counts positions from one"),
        (TOKENS + 2, "counts positions from two"),
        (TOKENS + PAD, "counts the padding as positions"),
        (np.where(TOKENS < PROMPTS, TOKENS, 0), "takes position 0 in each decode step"),
        (np.where(TOKENS < PROMPTS, TOKENS, TOKENS - 1), "is one position behind in decode steps"),
        (np.where(TOKENS < PROMPTS, TOKENS, TOKENS + 1), "is one position ahead in decode steps"),
        (
            np.where(TOKENS < PROMPTS, TOKENS, TOKENS + PAD),
            "counts positions of decode steps from the longest row's",
        ),
        (TOKENS * 2, "doubles positions"),
        (TOKENS // 2, "halves positions"),
        (TOKENS * 0, "takes position 0 throughout"),
        (np.array([5, 4])[ROWS] - TOKENS, "counts positions backwards"),
        (np.maximum(TOKENS - 1, 0), "takes position 0 twice, and is one behind from then on"),
    ],
)
def test_positions(target: np.ndarray, says: str) -> None:
    region = positions(target)
    assert ("position_ids", says) in explained(region, list(position_ids.trials(region)))
    (sign,) = position_ids.signs(region)
    first = int(np.flatnonzero(target != TOKENS)[0])
    assert sign.says == f"has position {target[first]} where {TOKENS[first]} belongs"


def test_integers_that_count_no_tokens_and_floats_are_left_alone() -> None:
    assert list(position_ids.signs(positions(TOKENS, exact=TOKENS[::-1].copy()))) == []
    floats = check_of("model-output", TOKENS.astype(float), TOKENS * 2.0)
    assert list(position_ids.signs(MadeRegion(torch.nn.Identity(), floats))) == []


def seen(size: int, window: int | None = None) -> np.ndarray:
    far = np.arange(size)[:, None] - np.arange(size)
    return (far >= 0) & (far < (window or size))


CAUSAL = seen(8)
THERE = np.ones((8, 8), dtype=bool)


def with_key(queries: Any, key: int, shown: bool) -> np.ndarray:
    mask = CAUSAL.copy()
    mask[queries, key] = shown
    return mask


@pytest.mark.parametrize(
    ("mask", "says"),
    [
        (CAUSAL, ""),
        (
            CAUSAL | (np.arange(8) < 4),
            "lets all queries see the first 4 tokens",
        ),
        (CAUSAL & (np.arange(8)[:, None] // 4 == np.arange(8) // 4), "lets queries see keys of "
            "their own 4 tokens only, in chunks"),
        (CAUSAL | (np.arange(8)[:, None] // 2 == np.arange(8) // 2), "lets queries see all keys of "
            "their own chunk of 2 tokens"),
        (CAUSAL | np.eye(8, k=1, dtype=bool), "lets queries see the key 1 tokens behind them, from "
            "token 0 on"),
        (CAUSAL & ~np.eye(8, dtype=bool), "hides from queries the key of their own token, from "
            "token 0 on"),
        (CAUSAL & ~np.eye(8, k=-2, dtype=bool), "hides from queries the key 2 tokens before them, "
            "from token 2 on"),
        (with_key([3, 6], 2, False), "hides from queries 3, 6 the keys of tokens 2"),
        (with_key(slice(3, 8), 2, False), "hides from queries the keys of tokens 2"),
        (
            seen(8, 2),
            "hides from queries 21 keys, 2 tokens before them to 7 tokens before them",
        ),
    ],
)  # fmt: skip
def test_masks_in_words(mask: np.ndarray, says: str) -> None:
    assert told(mask, CAUSAL, THERE) == says


def test_what_is_shown_and_what_is_hidden_are_both_said() -> None:
    mask = with_key([7], 1, False)
    mask[2, 5] = True
    assert told(mask, CAUSAL, THERE) == (
        "lets queries see 2 the keys of tokens 5, and hides from queries 7 the keys of tokens 1"
    )


class HandedDown(MadeRegion):
    """A body that hands something down, of which it is known what it computes itself."""

    def __init__(self, name: str, values: dict[int, np.ndarray], **more: Any) -> None:
        exact = more.pop("exact", np.zeros(N, dtype=bool))
        super().__init__(torch.nn.Identity(), check_of(name, exact, ~exact, is_exact=True), **more)
        rows = {
            row: TokenRow(positions=np.arange(len(value)), values=value)
            for row, value in values.items()
        }
        self.checker.pin = lambda _: Pinned(rows=rows, names=(name,), dtype="bool")

    def taken(self) -> Any:
        for row, length in enumerate(LENGTHS):
            yield Taken(
                name=self.first.name, owner="model.model", row=row, order=0, since=(),
                reference=seen(length), positions=np.arange(length),
            )  # fmt: skip


def masks_of(*candidate: np.ndarray) -> list[tuple[str, str]]:
    region = HandedDown("model.layers.0-input_attention_mask", dict(enumerate(candidate)))
    return [(sign.cause, sign.says) for sign in mask_tensor.signs(region)]


def test_masks_that_a_body_hands_down() -> None:
    right = [seen(length) for length in LENGTHS]
    assert masks_of(*right) == []
    assert masks_of(seen(6, 3), seen(5, 3)) == [
        (
            "sliding_window",
            "hands down a mask with a window of 3 tokens; the reference has no window",
        )
    ]
    open_mask = right[0].copy()
    open_mask[1, 4], open_mask[5, 2] = True, False
    assert masks_of(open_mask, right[1]) == [
        (
            "mask",
            "hands down a mask that shows 1 keys which the reference hides, and hides 1 which it "
            "shows",
        )
    ]
    short = right[1].copy()
    short[2, 1] = False
    assert [cause for cause, _ in masks_of(right[0], short)] == ["padding"]
    assert masks_of(right[0][:4], right[1]) == []  # of other tokens
    assert masks_of(~right[0])[0][0] == "mask"  # the other row is not in the dump


def test_what_is_no_mask_is_left_alone() -> None:
    region = HandedDown("model.layers.0-input_ids", {})
    assert list(mask_tensor.signs(region)) == []
    nothing = HandedDown("model.layers.0-input_attention_mask", {})
    nothing.checker.pin = lambda _: None
    assert list(mask_tensor.signs(nothing)) == []


TABLES = {"model.rotary_emb-output_0": 1.0, "model.local_rotary_emb-output_0": 2.0}


class Rotated(HandedDown):
    """A body that makes two tables and hands one down."""

    def taken(self) -> Any:
        for name, factor in TABLES.items():
            for row, length in enumerate(LENGTHS):
                yield Taken(
                    name=name, owner=name.partition("-")[0], row=row, order=0, since=(),
                    reference=factor * np.arange(length)[:, None], positions=np.arange(length),
                )  # fmt: skip
        yield Taken(
            name="model.mlp-output", owner="model.mlp", row=0, order=0, since=(),
            reference=np.zeros((6, 1)), positions=np.arange(6),
        )  # fmt: skip


def test_tables_of_other_layers() -> None:
    maker = torch.nn.Module()
    maker.register_buffer("inv_freq", torch.ones(3))

    def submodule(name: str) -> torch.nn.Module:
        if name.endswith("mlp"):
            raise AttributeError(name)
        return maker

    exact = TOKENS[:, None].astype(float)
    region = Rotated("model.layers.0-input_position_embeddings_0", {}, exact=exact == -1)
    region.first = check_of(region.first.name, exact, 2 * exact)
    region.checker.submodule = submodule
    assert explained(region, list(rope_handed.trials(region))) == [
        (
            "rope_frequency",
            "hands down the rotary table of other layers, model.local_rotary_emb-output_0",
        )
    ]
    region.first = check_of("model.layers.0-input_0", exact, 2 * exact)
    assert list(rope_handed.trials(region)) == []


class Alibi(torch.nn.Module):
    """Adds the bias by distance that it is given."""

    def forward(self, x: torch.Tensor, alibi: torch.Tensor) -> torch.Tensor:
        return x + alibi


def test_slopes_of_a_bias_by_distance() -> None:
    exact = np.zeros((N, 3))
    region = MadeRegion(Alibi(), check_of("model.attn-output_0", exact, exact + 1))
    assert not any("slopes" in trial.says for trial in position_ids.trials(region))
    alibi = torch.tensor([[1.0], [2.0], [4.0]])
    call = ModuleCall(row=0, args=(torch.zeros(3, 1),), kwargs={"alibi": alibi})
    region.calls = (call,)
    region.__dict__["plain"] = {}
    ways = {
        "doubles the slopes of the bias by distance": alibi * 2,
        "halves the slopes of the bias by distance": alibi / 2,
        "has the slopes of the heads in reversed order": alibi.flip(0),
        "leaves the bias by distance out": alibi * 0,
    }
    trials = {trial.says: trial for trial in position_ids._of_slopes(region)}
    assert set(trials) == set(ways)
    for says, wanted in ways.items():
        with trials[says].change():
            assert torch.equal(region.module(torch.zeros(3, 1), alibi=alibi), wanted)


def test_a_rotation_without_tables_of_positions_cannot_be_changed() -> None:
    turn = Turn(cos=torch.rand(1, 4), sin=torch.rand(1, 4), in_pairs=False)
    with pytest.raises(ValueError, match="no tables of positions"):
        position_ids._of_side(
            positions(TOKENS), lambda p, prompt, pad: p, True, torch.rand(4), torch.rand(4), turn
        )
