"""Heads of queries, keys and values that are put together in the wrong order.

Legend: B rows, N heads, G queries a key head, S queries, T keys, D head size, H hidden.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from comparison.numerics.dtypes import Array
from diagnosis.causes.attention_sites import AttentionChange, changed_attention
from diagnosis.causes.head_maps import head_maps
from diagnosis.causes.leaf import bias_of, matrix_of, matrix_of_module
from diagnosis.causes.output_map import channel_map
from diagnosis.causes.scopes import head_sizes
from diagnosis.causes.trial import OutputTrial, RunTrial, Trial

if TYPE_CHECKING:
    import torch

    from diagnosis.causes.region import Region


def trials(region: Region) -> Iterator[Trial]:
    """Give queries other key heads, merge heads in another way, or cut a fused matrix otherwise."""
    if region.has_attention:
        yield from _of_groups(region)
        yield from head_maps(region)
        yield from _of_merging(region)
    yield from _of_fused(region)
    yield from _of_siblings(region)


def _of_groups(region: Region) -> Iterator[Trial]:
    groups = getattr(region.module, "num_key_value_groups", 1)
    tiled = partial(_tiled, groups)
    first = _first_for_all
    changes: tuple[tuple[str, AttentionChange], ...] = (
        (
            "takes the key and value heads in turn, and not each for its group of queries",
            AttentionChange(operands=lambda q, k: (q, tiled(k)), values=lambda w, v: (w, tiled(v))),
        ),
        (
            "takes the value heads in turn, and not each for its group of queries",
            AttentionChange(values=lambda w, v: (w, tiled(v))),
        ),
        (
            "takes the key heads in turn, and not each for its group of queries",
            AttentionChange(operands=lambda q, k: (q, tiled(k))),
        ),
        (
            "takes the first key and value head for all queries",
            AttentionChange(operands=lambda q, k: (q, first(k)), values=lambda w, v: (w, first(v))),
        ),
        (
            "takes the first value head for all queries",
            AttentionChange(values=lambda w, v: (w, first(v))),
        ),
        (
            "takes the first key head for all queries",
            AttentionChange(operands=lambda q, k: (q, first(k))),
        ),
    )
    for says, change in changes:
        yield RunTrial(cause="gqa_order", says=says, change=partial(changed_attention, change))


def _tiled(groups: int, x: torch.Tensor) -> torch.Tensor:
    """Order heads k0 k0 k1 k1 as k0 k1 k0 k1, [B, N, ...]."""
    if groups == 1 or x.ndim < 4:
        return x.roll(1, dims=-3)
    single = x[:, ::groups]
    return single.repeat(1, groups, *(1 for _ in x.shape[2:]))


def _first_for_all(x: torch.Tensor) -> torch.Tensor:
    return x.narrow(-3, 0, 1).expand_as(x)


def _of_merging(region: Region) -> Iterator[Trial]:
    sizes = head_sizes(region)
    if sizes is None:
        return
    heads, size = sizes
    yield OutputTrial(
        cause="gqa_order",
        says="merges head size before heads",
        predict=lambda y: (
            y.reshape(len(y), heads, size).swapaxes(1, 2).reshape(y.shape)
            if y[0].size == heads * size
            else y[:0]
        ),
    )
    yield OutputTrial(
        cause="gqa_order",
        says="merges the heads without moving them behind the tokens first",
        predict=lambda y: _without_transpose(region, y, heads, size),
    )


def _without_transpose(region: Region, y: Array, heads: int, size: int) -> Array:
    """Read [N, S, D] of each row and step as if it were [S, N, D]."""
    if y[0].size != heads * size:
        return y[:0]
    new = y.copy()
    for places in region.steps():
        part = y[places].reshape(len(places), heads, size).swapaxes(0, 1)
        new[places] = part.reshape(y[places].shape)
    return new


def _of_fused(region: Region) -> Iterator[Trial]:
    """Read a fused projection [q k v] x heads as [q x heads, k x heads, v x heads], or back."""
    matrix = matrix_of(region)
    if matrix is None or matrix.is_embedding:
        return
    width = matrix.values.shape[0]
    if width % 3 or region.exact.shape[-1:] != (width,):
        return
    for heads in _numbers_of_heads(region, width // 3):
        every = np.arange(width)
        for says, order in (
            ("by head, read in blocks", every.reshape(heads, 3, -1).swapaxes(0, 1).ravel()),
            ("in blocks, read by head", every.reshape(3, heads, -1).swapaxes(0, 1).ravel()),
        ):
            yield OutputTrial(
                cause="gqa_order",
                says=f"has q, k and v fused {says}",
                predict=partial(_reordered, order),
            )


def _reordered(order: Array, y: Array) -> Array:
    return np.asarray(y[..., order])


def _numbers_of_heads(region: Region, width: int) -> list[int]:
    names = ("num_heads", "num_attention_heads", "n_head")
    holders = (region.parent, region.config)
    found = [getattr(holder, name, None) for holder in holders for name in names]
    return list(dict.fromkeys(n for n in found if isinstance(n, int) and n > 0 and width % n == 0))


def _of_siblings(region: Region) -> Iterator[Trial]:
    """Find the rows of one projection among those of the others that have the same input."""
    inputs, matrix = region.linear_inputs, matrix_of(region)
    if inputs is None or matrix is None or matrix.is_embedding or region.parent is None:
        return
    if bias_of(region) is not None or region.target.ndim != 2:
        return
    names, parts = [], []
    for name, child in region.parent.named_children():
        other = matrix_of_module(child)
        if other is not None and other.values.shape[1] == matrix.values.shape[1]:
            names += [name] * len(other.values)
            parts.append(inputs @ other.values.numpy().T)
    if len(parts) < 2 or len(inputs) != len(region.target):
        return
    every = np.concatenate(parts, axis=1)
    found = channel_map(region.target, every)
    if found is None or (found < 0).any():
        return
    origins = list(dict.fromkeys(names[channel] for channel in found))
    own = region.name.rpartition(".")[2]
    if origins == [own]:
        return
    yield OutputTrial(
        cause="gqa_order" if len(origins) > 1 else "weights",
        says=f"has rows of {', '.join(origins)} where those of {own} belong",
        predict=lambda y: every[:, found],
    )
