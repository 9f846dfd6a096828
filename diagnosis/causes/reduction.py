"""Sums and means over the wrong axis, over too few terms, or divided by the wrong number."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from diagnosis.causes.attention_sites import AttentionChange, changed_attention
from diagnosis.causes.changes import with_forward, with_parameter
from diagnosis.causes.leaf import matrix_of
from diagnosis.causes.norm import Norm, norms_of
from diagnosis.causes.trial import OutputTrial, RunTrial, Trial

if TYPE_CHECKING:
    import torch

    from diagnosis.causes.region import Region


_MOST_RANKS = 8


def trials(region: Region) -> Iterator[Trial]:
    """Change norms, softmax, and the number of terms of a product."""
    for norm in norms_of(region):
        yield from _of_norm(region, norm)
    if region.has_attention:
        yield from _of_softmax(region)
    yield from _of_product(region)
    yield from _of_pooling(region)


def _of_norm(region: Region, norm: Norm) -> Iterator[Trial]:
    changes = (
        ("divides the variance by one less than the number of features", {"unbiased": True}),
        ("takes the mean of squares over the tokens of the row, too", {"spans": region.spans}),
        ("sums the squares and does not take their mean", {"summed": True}),
    )
    for says, values in changes:
        yield RunTrial(
            cause="reduction",
            says=says,
            change=partial(with_forward, norm.module, replace(norm, **values)),
        )


def _of_softmax(region: Region) -> Iterator[Trial]:
    changes = (
        (
            "takes the softmax over the queries and not over the keys",
            partial(_over_queries, region),
        ),
        ("takes the softmax over the heads and not over the keys", _over_heads),
        ("adds one to the softmax's sum, so that attention may go to nothing", _plus_one),
        ("takes no softmax", lambda scores: scores),
    )
    for says, softmax in changes:
        yield RunTrial(cause="reduction", says=says, change=partial(_with_softmax, softmax))
    yield from _factor_a_head(region)


def _with_softmax(softmax: object) -> AbstractContextManager[None]:
    return changed_attention(AttentionChange(softmax=softmax))  # type: ignore[arg-type]


def _over_queries(region: Region, scores: torch.Tensor) -> torch.Tensor:
    weights = scores.softmax(dim=-1).clone()
    prompt = region.spans()[0]  # where a step has one query only, nothing changes
    weights[..., prompt, prompt] = scores[..., prompt, prompt].softmax(dim=-2)
    return weights


def _over_heads(scores: torch.Tensor) -> torch.Tensor:
    return scores.softmax(dim=-3)


def _plus_one(scores: torch.Tensor) -> torch.Tensor:
    import torch

    nothing = torch.zeros_like(scores[..., :1])
    return torch.cat([scores, nothing], dim=-1).softmax(dim=-1)[..., :-1]


def _factor_a_head(region: Region) -> Iterator[Trial]:
    """Fit a factor for each token and head: weights that do not sum to one give such a thing."""
    module, exact = region.module, region.exact
    size = getattr(module, "head_dim", None) or getattr(module, "attention_head_size", None)
    if not isinstance(size, int) or exact.ndim != 2 or exact.shape[1] % size or size < 4:
        return
    y = exact.reshape(len(exact), -1, size)
    z = region.target.reshape(y.shape)
    square = np.sum(y * y, axis=-1, keepdims=True)
    if not square.all() or not np.isfinite(z).all():
        return
    factors = np.sum(y * z, axis=-1, keepdims=True) / square
    low, high = float(factors.min()), float(factors.max())
    yield OutputTrial(
        cause="reduction",
        says=f"divides the attention weights by another sum: each token and head is {low:.3g} to "
        f"{high:.3g} times the right one",
        predict=lambda x: (x.reshape(y.shape) * factors).reshape(x.shape),
        numbers=int(factors.size),
    )


def _of_product(region: Region) -> Iterator[Trial]:
    """Leave the last input channels out, as where a sum goes in blocks that do not fit."""
    import torch

    matrix = matrix_of(region)
    if matrix is None or matrix.is_embedding:
        return
    columns = matrix.values.shape[1]
    kept_sizes = {columns - columns % block for block in range(2, columns) if columns % block}
    for kept in sorted(kept_sizes, reverse=True)[:32]:
        cut = matrix.values.clone()
        cut[:, kept:] = 0
        is_split = _is_lost_by_splitting(columns, columns - kept)
        yield RunTrial(
            cause="shard" if is_split else "reduction",
            says=f"sums over the first {kept} of {columns} input channels only"
            + (", as where a split over ranks drops the rest" if is_split else ""),
            change=partial(with_parameter, matrix.module, matrix.name, matrix.stored(cut)),
        )
    first = torch.zeros_like(matrix.values)
    first[:, 0] = matrix.values[:, 0]
    yield RunTrial(
        cause="reduction",
        says="takes the first term of the sum only",
        change=partial(with_parameter, matrix.module, matrix.name, matrix.stored(first)),
    )


def _is_lost_by_splitting(count: int, lost: int) -> bool:
    """Tell whether that many are left over where ranks take equal parts, or an end is one off."""
    return lost == 1 or any(count % ranks == lost for ranks in range(2, _MOST_RANKS + 1))


def _of_pooling(region: Region) -> Iterator[Trial]:
    """Multiply what there is one of a row by the number of its tokens."""
    rows = [place.row for place in region.first.places]
    if len(rows) != len(region.calls) or len(set(rows)) != len(rows):
        return
    lengths = np.array([float(region.prompt_tokens(row)) for row in rows])
    lengths = lengths.reshape(-1, *[1] * (region.exact.ndim - 1))
    yield OutputTrial(
        cause="reduction",
        says="sums over the tokens of a row and does not take their mean",
        predict=lambda y: y * lengths,
    )
    yield OutputTrial(
        cause="reduction",
        says="divides by the number of tokens once more",
        predict=lambda y: y / lengths,
    )
