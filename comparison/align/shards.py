"""Tensors that several ranks hold in parts, and how the parts join."""

from collections.abc import Sequence

import numpy as np

from comparison.numerics.dtypes import Array
from comparison.schema.outcome import Shape
from comparison.schema.tensor_names import parse_tensor_name

# What each rank fuses by itself: its part holds this many blocks of one size.
_EQUAL_BLOCKS = {"gate_up_proj": 2, "act_fn": 2}
# Fused too, of blocks whose sizes a name does not tell.
_UNEQUAL_BLOCKS = ("qkv_proj", "in_proj")


def shard_axis(whole: Shape, shard: Shape, *, ranks: int) -> int | None:
    """Find the axis that a tensor is split along.

    Args:
        whole: shape of the tensor of one process, perhaps padded: [B, S, ..., H].
        shard: shape of one rank's part, perhaps ragged: [tokens, ..., H / ranks].
        ranks: number of ranks.

    Returns:
        The axis, counted from the end; None where every rank holds the whole tensor, or the shapes
        differ otherwise. The first axis is that of rows and is never split.
    """
    axes = range(1, min(len(whole), len(shard)))
    differing = next((axis for axis in axes if whole[-axis] != shard[-axis]), None)
    if differing is None or whole[-differing] != ranks * shard[-differing]:
        return None
    return -differing


def join_shards(name: str, shards: Sequence[Array], *, axis: int) -> Array | None:
    """Put the parts of all ranks together.

    Args:
        name: the tensor's name, which tells of fused projections.
        shards: one part a rank, of one shape.
        axis: what they are split along, counted from the end.

    Returns:
        The whole tensor, or None where the order of its blocks is not known.
    """
    blocks = _blocks(name)
    if blocks is None or shards[0].shape[axis] % blocks:
        return None
    parts = [np.split(np.asarray(shard), blocks, axis=axis) for shard in shards]
    return np.concatenate([part[block] for block in range(blocks) for part in parts], axis=axis)


def _blocks(name: str) -> int | None:
    """Count the fused blocks in one rank's part; None where their sizes are not known."""
    parsed = parse_tensor_name(name)
    if parsed is None:
        return 1
    last = parsed.module.rpartition(".")[2]
    fused_side = "input" if last == "act_fn" else "output"
    if parsed.side != fused_side:
        return 1
    return None if last in _UNEQUAL_BLOCKS else _EQUAL_BLOCKS.get(last, 1)
