"""Weights that ranks share: parts that are lost, taken twice, or put together in the wrong order.

A linear layer sums over blocks of its input, y = sum over g of x[g] W[g]^T. Which block of the
weight each block of the input meets is linear: y = sum over g and h of a[g, h] x[g] W[h]^T, and a
comes by least squares. It is the identity where all is well.

Legend: n positions, G blocks of the input, a [G, G].
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from comparison.numerics.dtypes import Array
from diagnosis.causes import lost_rows
from diagnosis.causes.changes import with_parameter
from diagnosis.causes.leaf import head_size_of, matrix_of
from diagnosis.causes.linear import Linear, linear_of
from diagnosis.causes.trial import OutputTrial, RunTrial, Trial

if TYPE_CHECKING:
    from diagnosis.causes.region import Region

RANKS = (2, 4, 8)
_MOST_BLOCKS = 16
_ENOUGH = 4  # equations for each unknown
_ROUND = 1e-3


def trials(region: Region) -> Iterator[Trial]:
    """Sum over one rank's input channels only, then over other blocks of these."""
    yield from _of_one_rank(region)
    yield from lost_rows.trials(region)
    linear = linear_of(region)
    if linear is None:
        return
    if linear.matrix.is_embedding:
        yield from _of_vocabulary(linear, region.exact.shape)
    else:
        yield from _of_blocks(region, linear)


def _of_vocabulary(linear: Linear, shape: tuple[int, ...]) -> Iterator[Trial]:
    """Look tokens up as a rank does that has some of the vocabulary only."""
    count = len(linear.weight)
    ids = np.arange(count)
    for ranks in RANKS:
        if count % ranks:
            continue
        size = count // ranks
        ways = [
            (
                f"looks all tokens up in rank {rank}'s rows of {ranks}",
                ids % size + rank * size,
                None,
            )
            for rank in range(ranks)
        ]
        ways += [
            (
                f"gives nothing for tokens that rank {rank} of {ranks} has not",
                ids,
                ids // size == rank,
            )
            for rank in range(ranks)
        ]
        ways.append(
            (f"cuts tokens off at the last of rank 0 of {ranks}", np.minimum(ids, size - 1), None)
        )
        for says, order, kept in ways:
            weight = linear.weight[order] * (1.0 if kept is None else kept[:, None])
            if linear.fits(linear.product(weight), linear.target):
                yield OutputTrial(
                    cause="shard", says=says, predict=partial(_output, linear, weight, shape)
                )


def _of_one_rank(region: Region) -> Iterator[Trial]:
    import torch

    matrix = matrix_of(region)
    if matrix is None or matrix.is_embedding:
        return
    columns = matrix.values.shape[1]
    for ranks in RANKS:
        if columns % ranks:
            continue
        size = columns // ranks
        for rank in range(ranks):
            kept = torch.zeros_like(matrix.values)
            own = slice(rank * size, (rank + 1) * size)
            kept[:, own] = matrix.values[:, own]
            yield RunTrial(
                cause="shard",
                says=f"gives the part of rank {rank} of {ranks} and not the sum over the ranks",
                change=partial(with_parameter, matrix.module, matrix.name, matrix.stored(kept)),
            )


def _of_blocks(region: Region, linear: Linear) -> Iterator[Trial]:
    """Find which block of the weight each block of the input meets, large blocks first."""
    columns, head = linear.weight.shape[1], head_size_of(region)
    counts = {*RANKS, *([columns // head] if head and columns % head == 0 else [])}
    for count in sorted(counts):
        if columns % count or not 1 < count <= _MOST_BLOCKS:
            continue
        met = met_blocks(linear, count)
        if met is None:
            continue
        weight = np.concatenate(
            [
                np.einsum("h,hoi->oi", a, _blocks(linear.weight, count))
                for a in met.astype(np.float64)
            ],
            axis=1,
        )
        cause, says = _described(met, is_of_heads=columns // count == head)
        yield OutputTrial(
            cause=cause, says=says, predict=partial(_output, linear, weight, region.exact.shape)
        )
        return


def _output(linear: Linear, weight: Array, shape: tuple[int, ...], exact: Array) -> Array:
    del exact
    return linear.output(weight, shape)


def met_blocks(linear: Linear, count: int) -> Array | None:
    """Find which blocks of the weight's columns the blocks of the input meet.

    Args:
        linear: the layer.
        count: how many blocks there are.

    Returns:
        a [count, count], booleans; None where no such blocks give the candidate's values, or
        where all is in its place.
    """
    unknowns = count * count
    rows = linear.rows[: max(1, _ENOUGH * unknowns // max(len(linear.inputs), 1) + 8)]
    if len(rows) * len(linear.inputs) < 2 * unknowns:
        return None
    inputs = _blocks(linear.inputs, count)  # [G, n, I / G]
    weight = _blocks(linear.weight[rows], count)  # [G, O, I / G]
    parts = np.einsum("gni,hoi->nogh", inputs, weight).reshape(-1, unknowns)
    wanted = linear.wanted(rows).ravel()
    found, *_ = np.linalg.lstsq(parts, wanted, rcond=None)
    met = np.round(found).reshape(count, count)
    is_whole = np.allclose(found, met.ravel(), atol=_ROUND) and set(met.ravel()) <= {0.0, 1.0}
    if not is_whole or not met.any():  # zeros are a weight that is missing
        return None
    if np.array_equal(met, np.eye(count)) or met.sum(axis=1).max() > 1:
        return None
    return np.asarray(met.astype(bool))


def _blocks(values: Array, count: int) -> Array:
    """Cut columns into blocks, [count, rows, columns / count]."""
    return np.moveaxis(values.reshape(len(values), count, -1), 1, 0)


def _described(met: Array, *, is_of_heads: bool) -> tuple[str, str]:
    """Say what the blocks are, and whose fault that is."""
    count = len(met)
    order = [int(np.argmax(row)) if row.any() else -1 for row in met]
    if -1 in order:
        lost = ", ".join(str(block) for block, of in enumerate(order) if of < 0)
        return "shard", f"leaves rank {lost} of {count} out of the sum over the ranks"
    if sorted(order) != list(range(count)):
        return "shard", f"multiplies the {count} parts of its input by parts {order} of the weight"
    if is_of_heads:
        return "permutation", f"has the input channels of the heads in the order {order}"
    return "shard", f"has the {count} shards of its input channels in the order {order}"
