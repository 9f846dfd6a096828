"""Parts of a weight that ranks lose, take twice or put together wrongly."""

import numpy as np
import pytest
import torch

from diagnosis.causes import shard
from diagnosis.causes.trial import RunTrial
from tests.diagnosis.causes.made_region import (
    LENGTHS,
    MadeRegion,
    check_of,
    explained,
    linear_region,
)

N = sum(LENGTHS)
NAME = "model.layers.0.self_attn.o_proj"


def said(order: list[int | None], *, head: int | None = None) -> list[tuple[str, str]]:
    """Say what is found where blocks of the input meet other blocks of the weight."""
    torch.manual_seed(1)
    layer = torch.nn.Linear(24, 20, bias=True)
    parent = torch.nn.Module()
    parent.head_dim = head  # type: ignore[assignment]  # a plain number, or none
    inputs = np.random.default_rng(2).standard_normal((N, 24))

    def wrong(_: np.ndarray) -> np.ndarray:
        blocks = layer.weight.detach().numpy().reshape(20, len(order), -1)
        met = [np.zeros_like(blocks[:, 0]) if at is None else blocks[:, at] for at in order]
        return np.asarray(inputs @ np.concatenate(met, axis=1).T + layer.bias.detach().numpy())

    region = linear_region(layer, wrong, inputs=inputs, name=NAME, parent=parent)
    return explained(region, list(shard.trials(region)))


@pytest.mark.parametrize(
    ("order", "head", "cause", "says"),
    [
        ([1, 0], None, "shard", "has the 2 shards of its input channels in the order [1, 0]"),
        ([0, None], None, "shard", "leaves rank 1 of 2 out of the sum over the ranks"),
        ([0, 0, 2, 3], None, "shard", "multiplies the 4 parts of its input by parts [0, 0, 2, 3]"),
        ([0, 2, 1], 8, "permutation", "has the input channels of the heads in the order [0, 2, 1]"),
        ([3, 1, 2, 0], 6, "permutation", "has the input channels of the heads in the order [3, 1"),
    ],
)
def test_blocks_of_the_input(order: list[int], head: int | None, cause: str, says: str) -> None:
    found = said(order, head=head)
    assert [(c, s[: len(says)]) for c, s in found] == [(cause, says)]


def test_what_is_in_its_place_or_missing_altogether() -> None:
    assert said([0, 1]) == []
    assert said([None, None]) == []


def test_each_rank_alone_is_tried_where_columns_divide() -> None:
    torch.manual_seed(1)
    region = linear_region(torch.nn.Linear(6, 5), lambda y: y * 2, name=NAME)
    tried = [t for t in shard.trials(region) if isinstance(t, RunTrial)]
    assert [t.says for t in tried] == [
        f"gives the part of rank {rank} of 2 and not the sum over the ranks" for rank in range(2)
    ]
    weight = region.module.weight.detach().clone()
    with tried[1].change():
        kept = region.module.weight.detach()
        assert not kept[:, :3].any()
        assert torch.equal(kept[:, 3:], weight[:, 3:])


@pytest.mark.parametrize(
    ("look_up", "says"),
    [
        (lambda t, ids: t[ids % 8], "looks all tokens up in rank 0's rows of 2"),
        (lambda t, ids: t[ids % 4 + 8], "looks all tokens up in rank 2's rows of 4"),
        (
            lambda t, ids: t[ids] * (ids // 8 == 1)[:, None],
            "gives nothing for tokens that rank 1 of 2 has not",
        ),
        (lambda t, ids: t[np.minimum(ids, 7)], "cuts tokens off at the last of rank 0 of 2"),
    ],
)
def test_parts_of_the_vocabulary(look_up: object, says: str) -> None:
    torch.manual_seed(3)
    ids = np.array([1, 9, 15, 4, 7, 12, 0, 8, 3, 14, 10])
    table = torch.nn.Embedding(16, 6).double()
    exact = table(torch.from_numpy(ids)).detach().numpy()
    target = look_up(table.weight.detach().numpy(), ids)  # type: ignore[operator]  # a function
    region = MadeRegion(table, check_of("model.embed-output", exact, target), ids=ids)
    assert ("shard", says) in explained(region, list(shard.trials(region)))


def test_a_vocabulary_that_does_not_divide_and_modules_without_weight() -> None:
    ids = np.arange(N)
    table = torch.nn.Embedding(11, 6).double()
    exact = table(torch.from_numpy(ids)).detach().numpy()
    region = MadeRegion(table, check_of("model.embed-output", exact, exact[::-1]), ids=ids)
    assert list(shard.trials(region)) == []
    act = MadeRegion(torch.nn.ReLU(), check_of("model.act-output", exact, exact * 2))
    assert list(shard.trials(act)) == []
