"""Where a tensor is split, and how its parts join."""

import numpy as np
import pytest

from comparison.align.shards import shard_axis, shares_of_heads, sizes_on_rank, split_of
from comparison.numerics.dtypes import Array


@pytest.mark.parametrize(
    ("whole", "shard", "axis"),
    [
        ((2, 9, 8), (14, 4), -1),  # ragged rows against a padded batch
        ((14, 8), (14, 4), -1),
        ((2, 9, 4, 6), (14, 2, 6), -2),  # heads
        ((14, 8), (14, 8), None),  # a copy
        ((28, 8), (14, 8), None),  # rows are never split
        ((14, 8), (14, 3), None),
        ((14, 6), (14, 2), None),  # three ranks' worth
        ((8,), (4,), None),
        ((), (), None),
    ],
)
def test_axis(whole: tuple[int, ...], shard: tuple[int, ...], axis: int | None) -> None:
    assert shard_axis(whole, shard, ranks=2) == axis


def join_shards(name: str, shards: list[Array], *, axis: int) -> Array | None:
    split = split_of(name, shards, axis=axis)
    return None if split is None else np.concatenate(split.pieces, axis=axis)


def test_plain_parts_lie_one_after_the_other() -> None:
    whole = np.arange(24).reshape(2, 12)
    joined = join_shards("model.o_proj-input_0", np.split(whole, 3, axis=-1), axis=-1)
    assert joined is not None
    assert joined.tolist() == whole.tolist()


@pytest.mark.parametrize("name", ["model.mlp.gate_up_proj-output_0", "model.mlp.act_fn-input_0"])
def test_each_rank_has_its_own_gate_and_up(name: str) -> None:
    gate, up = np.arange(8).reshape(2, 4), np.arange(8, 16).reshape(2, 4)
    shards = [np.concatenate([gate[:, s], up[:, s]], axis=-1) for s in (slice(2), slice(2, 4))]
    joined = join_shards(name, shards, axis=-1)
    assert joined is not None
    assert joined.tolist() == np.concatenate([gate, up], axis=-1).tolist()


def test_blocks_of_unknown_size_do_not_join() -> None:
    shards = [np.ones((2, 4)), np.ones((2, 4))]
    assert join_shards("model.self_attn.qkv_proj-output_0", shards, axis=-1) is None
    assert join_shards("model.self_attn.qkv_proj-input_0", shards, axis=-1) is not None
    assert join_shards("model.mlp.gate_up_proj-output", [np.ones((2, 3))] * 2, axis=-1) is None


@pytest.mark.parametrize(
    ("whole", "ranks", "expected"),
    [
        (8, 4, [(2, 1), (4, 2)]),
        (2, 4, [(1, 2)]),  # fewer heads of keys than ranks: two ranks hold each
        (6, 4, [(3, 2)]),
        (5, 4, []),
        (3, 1, []),
    ],
)
def test_ways_to_share_heads(whole: int, ranks: int, expected: list[tuple[int, int]]) -> None:
    assert list(shares_of_heads(whole, ranks)) == expected


@pytest.mark.parametrize(
    ("sizes", "total", "ranks", "expected"),
    [
        ((8, 4, 4), 8, 2, (4, 2, 2)),
        ((8, 4, 4), 16, 2, (8, 4, 4)),  # nothing is split
        ((8, 2, 2), 4, 4, (2, 1, 1)),  # two ranks hold the same head of keys
        ((8, None, 4), 8, 2, (4, None, 2)),
        ((8, 2, 2), 1, 4, (2, 0, 0)),  # no way fits: plain shares
        ((8,), 5, 2, (4,)),
    ],
)
def test_sizes_on_one_rank(
    sizes: tuple[int | None, ...], total: int, ranks: int, expected: tuple[int | None, ...]
) -> None:
    assert sizes_on_rank(sizes, total, ranks=ranks) == expected


def test_names_of_no_module_are_of_one_block() -> None:
    joined = join_shards("by hand", [np.zeros((2, 3)), np.ones((2, 3))], axis=-1)
    assert joined is not None
    assert joined.tolist() == [[0, 0, 0, 1, 1, 1]] * 2
