"""The function that rotates queries and keys, and others in its place.

Models of transformers call a function `apply_rotary_pos_emb(q, k, cos, sin)` of their own module.

Legend: B rows, N heads, S tokens, D head size, R channels of it that are rotated.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from diagnosis.causes.changes import with_attributes

if TYPE_CHECKING:
    import torch

    from diagnosis.causes.region import Region

_NAME = "apply_rotary_pos_emb"
Rotate = Callable[..., Any]


def can_rotate(region: Region) -> bool:
    """Tell whether the guilty attention rotates by that function."""
    return region.has_attention and hasattr(_module(region), _NAME)


def with_rotation(region: Region, rotate: Rotate) -> AbstractContextManager[None]:
    """Let queries and keys be rotated otherwise.

    Args:
        region: the guilty attention.
        rotate: of q and k, [B, N, S, D], cos and sin, [B, 1, S, R], the rotated q and k.
    """

    def function(q: Any, k: Any, cos: Any, sin: Any, *args: Any, **kwargs: Any) -> Any:
        axis = kwargs.get("unsqueeze_dim", args[-1] if args and isinstance(args[-1], int) else 1)
        return rotate(q, k, cos.unsqueeze(axis), sin.unsqueeze(axis))

    return with_attributes(_module(region), {_NAME: function})


def _module(region: Region) -> Any:
    return sys.modules[type(region.module).__module__]


def by_halves(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotate channel i with channel i + R / 2."""
    import torch

    size = cos.shape[-1]
    turned, rest = x[..., :size], x[..., size:]
    first, second = turned.chunk(2, dim=-1)
    turned = turned * cos + torch.cat([-second, first], dim=-1) * sin
    return torch.cat([turned, rest], dim=-1)


def by_pairs(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotate channel 2 i with channel 2 i + 1."""
    import torch

    size = cos.shape[-1]
    turned, rest = x[..., :size], x[..., size:]
    first, second = turned[..., ::2], turned[..., 1::2]
    half = size // 2
    cos, sin = cos[..., :half], sin[..., :half]
    turned = torch.stack([first * cos - second * sin, second * cos + first * sin], dim=-1)
    return torch.cat([turned.flatten(-2), rest], dim=-1)
