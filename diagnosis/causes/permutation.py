"""Channels, heads or rows in another order; the shards of several ranks are such a case.

Legend: n positions, F channels, D head size.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from comparison.numerics.dtypes import Array
from diagnosis.causes.changes import with_parameter
from diagnosis.causes.leaf import bias_of, head_size_of, is_fused, matrix_of
from diagnosis.causes.output_map import channel_map
from diagnosis.causes.trial import OutputTrial, RunTrial, Trial

if TYPE_CHECKING:
    import torch

    from diagnosis.causes.region import Region

_SHARDS = (2, 4, 8)
_FEW = 4  # channels; a swap of these is an edit of the weight rather than an order


def trials(region: Region) -> Iterator[Trial]:
    """Reorder the output as the candidate's values say, then the input by known orders."""
    if region.exact.ndim < 2 or region.first.excess is None:
        return
    bias = bias_of(region)
    shifts = [np.zeros(())] if bias is None else [np.zeros(()), bias]
    for shift in shifts:
        yield from _of_output(region, shift)
    yield from _of_input(region)


def _of_output(region: Region, bias: Array) -> Iterator[Trial]:
    """Reorder the output, the bias left where it is."""
    exact, target = region.exact - bias, region.target - bias
    flat, other = exact.reshape(len(exact), -1), target.reshape(len(target), -1)
    found = channel_map(other, flat)
    if found is None or (found < 0).any() or np.array_equal(found, np.arange(found.size)):
        return
    for cause, says in _described(region, found):
        yield OutputTrial(
            cause=cause,
            says=says,
            predict=lambda y: (y - bias).reshape(len(y), -1)[:, found].reshape(y.shape) + bias,
        )


def _described(region: Region, found: Array) -> Iterator[tuple[str, str]]:
    """Say in words which order it is, and whose fault that is."""
    size, head_size = found.size, head_size_of(region)
    moved = np.flatnonzero(found != np.arange(size))
    ranks, order = _shards(found)
    heads = _heads(found, head_size) if head_size and size % head_size == 0 else None
    in_turn = _ranks_in_turn(found)
    is_order = np.unique(found).size == size
    if is_order and heads is not None and size // (head_size or 1) <= ranks:
        yield "permutation", heads
    if ranks and is_fused(region):
        yield "permutation", f"has its {ranks} parts in the order {order}"
    elif ranks and is_order:
        is_split = matrix_of(region) is not None  # norms are whole on each rank
        says = f"joins the {ranks} shards of the output in the order {order}"
        yield ("shard" if is_split else "permutation"), says
    elif ranks:
        yield "shard", f"takes shards {order} of {ranks} for those of the output"
    elif not is_order:
        yield _repeated(found, moved)
    elif moved.size <= _FEW:
        listed = ", ".join(map(str, moved))
        yield "weights", f"has channels {listed} in another order"
    elif np.array_equal(found, np.arange(size)[::-1]):
        yield "permutation", "has all channels in reversed order"
    elif heads is not None:
        yield "permutation", heads
    elif in_turn:
        fused = is_fused(region) or matrix_of(region) is None
        whose = "its parts" if fused else "ranks"
        yield (
            "permutation" if fused else "shard",
            f"has the channels of {in_turn} of {whose} in turn and not one after the other",
        )
    else:
        yield "permutation", f"has the channels in another order, {_start(found)}"
        step = int(found[0])
        if matrix_of(region) is not None and np.array_equal(found, np.roll(np.arange(size), -step)):
            yield "shard", f"counts the first of its channels as {step}, as a rank's first id"


def _shards(found: Array) -> tuple[int, list[int]]:
    """Return the least number of shards that are whole, and which they are; 0 for none."""
    for ranks in _SHARDS:
        if found.size % ranks or found.size == ranks:
            continue
        parts = found.reshape(ranks, -1)
        size = parts.shape[1]
        if (parts[:, 0] % size == 0).all() and (parts - parts[:, :1] == np.arange(size)).all():
            return ranks, (parts[:, 0] // size).tolist()
    return 0, []


def _ranks_in_turn(found: Array) -> int:
    """Return of how many shards the channels come in turn, 0 where they do not."""
    for ranks in _SHARDS:
        if found.size % ranks == 0 and found.size > ranks:
            turned = np.arange(found.size).reshape(ranks, -1).T.ravel()
            if np.array_equal(found, turned) or np.array_equal(found, np.argsort(turned)):
                return ranks
    return 0


def _heads(found: Array, head_size: int) -> str | None:
    """Say what is done to heads, None where it is nothing that regular."""
    heads = found.reshape(-1, head_size)
    if (heads // head_size != heads[:, :1] // head_size).any():
        return None
    inner = heads % head_size
    if (inner == np.arange(head_size)).all():
        return f"has the heads in the order {(heads[:, 0] // head_size).tolist()}"
    if (inner == inner[0]).all():
        return (
            f"has each head's channels in another order, {_start(inner[0])}: rows for rotation by "
            "pairs against halves look so"
        )
    return None


def _repeated(found: Array, moved: Array) -> tuple[str, str]:
    tail = np.arange(found.size - moved.size, found.size)
    if np.array_equal(moved, tail) and moved.size <= found.size // 4:
        return "kernel_rows", f"fills the last {moved.size} of {found.size} channels with others"
    return "weights", f"has channels {_start(moved)} equal to channels {_start(found[moved])}"


def _start(numbers: Array) -> str:
    shown = ", ".join(map(str, numbers[:8].tolist()))
    return f"{shown}, ..." if numbers.size > 8 else shown


def _of_input(region: Region) -> Iterator[Trial]:
    """Reorder a matrix by orders that engines and conversions know."""
    matrix = matrix_of(region)
    if matrix is None:
        return
    rows, columns = matrix.values.shape
    axis, size = (0, rows) if matrix.is_embedding else (1, columns)
    last: list[tuple[str, torch.Tensor]] = []
    for says, order in _orders(size, head_size_of(region)):
        values = matrix.values.index_select(axis, _tensor(order))
        what = "rows of the table" if matrix.is_embedding else "input channels"
        shards = "shards" in says
        if matrix.is_embedding and says.startswith("one place"):
            last.append((f"has the {what} {says}, as where a rank's first id is off", values))
        yield RunTrial(
            cause=_cause_of_order(region, is_of_shards=shards),
            says=f"has the {what} {says}",
            change=partial(with_parameter, matrix.module, matrix.name, matrix.stored(values)),
        )
    for says, values in last:
        yield RunTrial(
            cause="shard",
            says=says,
            change=partial(with_parameter, matrix.module, matrix.name, matrix.stored(values)),
        )


def _cause_of_order(region: Region, *, is_of_shards: bool) -> str:
    """Tell a table of positions, whose rows in another order are positions that are off."""
    ids = region.token_ids
    if ids is not None and np.array_equal(ids, region.positions[:, 1]):
        return "position_ids"
    return "shard" if is_of_shards else "permutation"


def _orders(size: int, head_size: int | None) -> Iterator[tuple[str, Array]]:
    every = np.arange(size)
    yield "one place further", np.roll(every, 1)
    yield "one place earlier", np.roll(every, -1)
    yield "in reversed order", every[::-1]
    for ranks in _SHARDS:
        if size % ranks == 0:
            parts: Sequence[Array] = np.split(every, ranks)
            yield f"with {ranks} shards in the wrong order", np.concatenate(parts[::-1])
    if head_size and size % head_size == 0 and head_size % 2 == 0:
        heads = every.reshape(-1, head_size)
        pairs = heads.reshape(len(heads), 2, -1).transpose(0, 2, 1).reshape(size)
        yield "of each head in pairs and not in halves", pairs
        yield "of each head in halves and not in pairs", np.argsort(pairs)
        yield "ordered by channel before head", heads.T.reshape(size)
        yield "ordered by head before channel", np.argsort(heads.T.reshape(size))
    for ranks in _SHARDS:
        if size % ranks == 0:
            turned = every.reshape(ranks, -1).T.reshape(size)
            yield f"of {ranks} shards in turn", turned
            if ranks > 2 or size > 4:
                yield f"of {ranks} shards in turn, the other way round", np.argsort(turned)


def _tensor(order: Array) -> torch.Tensor:
    import torch

    return torch.from_numpy(np.ascontiguousarray(order))
