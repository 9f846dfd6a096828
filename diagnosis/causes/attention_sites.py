"""Finds scores, softmax and the sum of values while a module runs, in whatever way it spells them.

Legend: B rows, N heads, S queries, T keys, D head size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

Pair = tuple["torch.Tensor", "torch.Tensor"]
HIDDEN_BELOW = -1e4  # scores below that are masked


def _same(x: torch.Tensor) -> torch.Tensor:
    return x


def _both(x: torch.Tensor, y: torch.Tensor) -> Pair:
    return x, y


def _softmax(scores: torch.Tensor) -> torch.Tensor:
    return scores.softmax(dim=-1)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionChange:
    """What is changed of an attention.

    Attributes:
        operands: of q [B, N, S, D] and k [B, N, D, T], what is multiplied.
        scores: of the scores behind the mask, [B, N, S, T], what the softmax gets.
        softmax: of these scores the weights.
        values: of the weights [B, N, S, T] and v [B, N, T, D], what is multiplied.
    """

    operands: Callable[[torch.Tensor, torch.Tensor], Pair] = _both
    scores: Callable[[torch.Tensor], torch.Tensor] = _same
    softmax: Callable[[torch.Tensor], torch.Tensor] = _softmax
    values: Callable[[torch.Tensor, torch.Tensor], Pair] = _both


@contextmanager
def changed_attention(change: AttentionChange) -> Iterator[None]:
    """Let every attention within the block compute something else."""
    import torch
    from torch.nn import functional
    from torch.overrides import TorchFunctionMode

    products = {
        torch.matmul, torch.bmm, torch.Tensor.matmul, torch.Tensor.bmm, torch.Tensor.__matmul__,
        torch.baddbmm, torch.Tensor.baddbmm,
    }  # fmt: skip
    softmaxes = {torch.softmax, torch.Tensor.softmax, functional.softmax}

    class _Sites(TorchFunctionMode):  # a function mode exists only with torch
        def __init__(self) -> None:
            super().__init__()
            self.weights: torch.Size | None = None

        def __torch_function__(
            self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
        ) -> Any:
            del types
            keywords = dict(kwargs or {})
            if func is functional.scaled_dot_product_attention:
                return _spelled_out(change, *args, **keywords)
            if func in softmaxes and _has_heads(args[0]):
                weights = change.softmax(change.scores(args[0]))
                self.weights = weights.shape
                return weights
            if func in products:
                return func(*self._operands(func, args, keywords), **keywords)
            return func(*args, **keywords)

        def _operands(
            self, func: Any, args: tuple[Any, ...], keywords: dict[str, Any]
        ) -> tuple[Any, ...]:
            first = 1 if func in (torch.baddbmm, torch.Tensor.baddbmm) else 0
            if first and "batch1" in keywords:
                args = (args[0], keywords.pop("batch1"), keywords.pop("batch2"))
            left, right = args[first : first + 2]
            if not (_has_heads(left) and _has_heads(right)):
                return args
            if self.weights is None:
                left, right = change.operands(left, right)
            elif left.numel() == math.prod(self.weights):
                self.weights = None
                left, right = change.values(left, right)
            return (*args[:first], left, right, *args[first + 2 :])

    with _Sites():
        yield


def _has_heads(value: Any) -> bool:
    return getattr(value, "ndim", 0) >= 3


def _spelled_out(
    change: AttentionChange,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """Compute torch's scaled_dot_product_attention step by step, by the formula of its page."""
    import torch

    del dropout_p  # nothing is dropped in evaluation
    if enable_gqa:
        groups = query.shape[-3] // key.shape[-3]
        key, value = (x.repeat_interleave(groups, dim=-3) for x in (key, value))
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    left, right = change.operands(query, key.transpose(-2, -1))
    scores = left @ right * factor
    if is_causal:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(later, -math.inf)
    if attn_mask is not None:
        boolean = attn_mask.dtype == torch.bool
        scores = scores.masked_fill(~attn_mask, -math.inf) if boolean else scores + attn_mask
    left, right = change.values(change.softmax(change.scores(scores)), value)
    return left @ right
