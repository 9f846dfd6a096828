"""Which order it is that channels come in, and whose fault that is."""

import numpy as np
import pytest
import torch

from diagnosis.causes import permutation
from diagnosis.causes.trial import RunTrial
from tests.diagnosis.causes.made_region import (
    LENGTHS,
    MadeRegion,
    check_of,
    explained,
    linear_region,
    numbers,
)

ATTENTION = torch.nn.Module()
ATTENTION.head_dim = 4  # type: ignore[assignment]  # a plain number, as attentions have it


def layer(features: int, *, bias: bool = False) -> torch.nn.Linear:
    torch.manual_seed(features)
    return torch.nn.Linear(9, features, bias=bias)


def said(order: list[int] | np.ndarray, **more: object) -> list[tuple[str, str]]:
    region = linear_region(layer(len(order)), lambda y: y[:, order], **more)
    return explained(region, list(permutation.trials(region)))


EVERY = np.arange(24)


@pytest.mark.parametrize(
    ("order", "cause", "says"),
    [
        (np.roll(EVERY, 12), "shard", "joins the 2 shards of the output in the order [1, 0]"),
        (
            EVERY.reshape(4, 6)[[0, 2, 1, 3]].ravel(),
            "shard",
            "joins the 4 shards of the output in the order [0, 2, 1, 3]",
        ),
        (np.tile(EVERY[:12], 2), "shard", "takes shards [0, 0] of 2 for those of the output"),
        (EVERY[::-1], "permutation", "has all channels in reversed order"),
        (np.r_[EVERY[:20], 21, 20, 22, 23], "weights", "has channels 20, 21 in another order"),
        (
            EVERY.reshape(2, 12).T.ravel(),
            "shard",
            "has the channels of 2 of ranks in turn and not one after the other",
        ),
        (
            np.r_[EVERY[:21], 4, 5, 9],
            "kernel_rows",
            "fills the last 3 of 24 channels with others",
        ),
        (
            np.r_[2, EVERY[1:7], 9, EVERY[8:]],
            "weights",
            "has channels 0, 7 equal to channels 2, 9",
        ),
        (
            np.random.default_rng(1).permutation(24),
            "permutation",
            "has the channels in another order, 1, 21, 7, 17, 16, 23, 22, 15, ...",
        ),
        (np.roll(EVERY, -5), "shard", "counts the first of its channels as 5, as a rank's first"),
    ],
)
def test_orders_of_the_output(order: np.ndarray, cause: str, says: str) -> None:
    found = said(order)
    assert [(c, s[: len(says)]) for c, s in found if c == cause][-1:] == [(cause, says)], found


@pytest.mark.parametrize(
    ("order", "says"),
    [
        (EVERY.reshape(6, 4)[[0, 2, 1, 3, 4, 5]].ravel(), "has the heads in the order [0, 2, 1, 3"),
        (
            EVERY.reshape(6, 4)[:, [0, 2, 1, 3]].ravel(),
            "has each head's channels in another order, 0, 2, 1, 3: rows for rotation by",
        ),
        (EVERY.reshape(6, 4)[::-1].ravel(), "has the heads in the order [5, 4, 3, 2, 1, 0]"),
    ],
)
def test_orders_of_heads(order: np.ndarray, says: str) -> None:
    found = said(order, parent=ATTENTION)
    assert [(c, s[: len(says)]) for c, s in found] == [("permutation", says)]


def test_heads_of_two_halves_may_be_either() -> None:
    found = said(np.roll(np.arange(8), 4), parent=ATTENTION)
    assert [cause for cause, _ in found] == ["permutation", "shard"]
    assert found[0][1] == "has the heads in the order [1, 0]"


@pytest.mark.parametrize("name", ["model.layers.0.self_attn.qkv_proj", "model.mlp.gate_up_proj"])
def test_parts_of_a_fused_layer_are_no_shards(name: str) -> None:
    found = said(np.roll(EVERY, 12), name=name)
    assert found == [("permutation", "has its 2 parts in the order [1, 0]")]
    turned = said(EVERY.reshape(2, 12).T.ravel(), name=name)
    assert turned[0][1] == "has the channels of 2 of its parts in turn and not one after the other"


def test_a_norm_is_whole_on_each_rank() -> None:
    exact = numbers(sum(LENGTHS), 24)
    norm = torch.nn.LayerNorm(24)
    region = MadeRegion(norm, check_of("model.norm-output", exact, np.roll(exact, 12, axis=1)))
    found = explained(region, list(permutation.trials(region)))
    assert {cause for cause, _ in found} == {"permutation"}


def test_a_bias_may_stay_in_its_place() -> None:
    module = layer(24, bias=True)

    def wrong(y: np.ndarray) -> np.ndarray:
        bias = module.bias.detach().numpy()
        return np.asarray((y - bias)[:, ::-1] + bias)

    region = linear_region(module, wrong)
    assert explained(region, list(permutation.trials(region))) == [
        ("permutation", "has all channels in reversed order")
    ]


@pytest.mark.parametrize("change", [lambda y: y, lambda y: y * 1.5, lambda y: y[:, [0] * 24] * 2])
def test_what_is_no_order(change: object) -> None:
    region = linear_region(layer(24), change)
    assert explained(region, list(permutation.trials(region))) == []


def test_integers_and_single_values_have_none() -> None:
    exact = np.arange(11)
    module = torch.nn.Module()
    region = MadeRegion(module, check_of("model-input_ids", exact, exact[::-1], is_exact=True))
    assert list(permutation.trials(region)) == []


def test_orders_of_the_input_are_tried_on_the_weight() -> None:
    region = linear_region(layer(8), lambda y: y * 3)
    found = {t.says: t for t in permutation.trials(region) if isinstance(t, RunTrial)}
    assert set(found) >= {"has the input channels one place further"}
    trial = found["has the input channels in reversed order"]
    weight = region.module.weight.detach().clone()
    with trial.change():
        assert torch.equal(region.module.weight, weight.flip(1))
    assert torch.equal(region.module.weight, weight)


def embedding(ids: np.ndarray) -> MadeRegion:
    torch.manual_seed(2)
    module = torch.nn.Embedding(16, 6).double()
    exact = module(torch.from_numpy(ids)).detach().numpy()
    first = check_of("model.embed-output", exact, exact + 1)
    return MadeRegion(module, first, ids=ids)


def test_rows_of_a_table_of_tokens_and_of_positions() -> None:
    ids = np.random.default_rng(0).integers(0, 16, sum(LENGTHS))
    found = [(t.cause, t.says) for t in permutation.trials(embedding(ids))]
    assert ("permutation", "has the rows of the table in reversed order") in found
    assert ("shard", "has the rows of the table with 2 shards in the wrong order") in found
    assert found[-1] == (
        "shard",
        "has the rows of the table one place earlier, as where a rank's first id is off",
    )
    counted = np.concatenate([np.arange(n) for n in LENGTHS])
    causes = {t.cause for t in permutation.trials(embedding(counted)) if "reversed" in t.says}
    assert causes == {"position_ids"}


def test_heads_that_are_mixed_are_no_order_of_heads() -> None:
    order = EVERY.copy()
    order[[0, 5, 9, 14, 19]] = order[[5, 9, 14, 19, 0]]  # over the bounds of heads of four
    (found,) = said(order, parent=ATTENTION)
    assert found[1].startswith("has the channels in another order, 5, 1, 2, 3, 4, 9, ")
    each = EVERY.reshape(6, 4)[:, [0, 2, 1, 3]].copy()
    each[3] = EVERY[12:16]  # one head is in its place
    (other,) = said(each.ravel(), parent=ATTENTION)
    assert other[1].startswith("has the channels in another order, 0, 2, 1, 3, 4, 6, ")


def test_a_handful_of_inputs_has_no_other_way_round() -> None:
    region = linear_region(torch.nn.Linear(4, 6), lambda y: y * 3)
    tried = [trial.says for trial in permutation.trials(region)]
    assert "has the input channels of 2 shards in turn" in tried
    assert "has the input channels of 2 shards in turn, the other way round" not in tried
