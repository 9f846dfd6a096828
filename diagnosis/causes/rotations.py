"""The function that rotates queries and keys, and others in its place.

Models of transformers call a function `apply_rotary_pos_emb(q, k, cos, sin)` of their own module.

Legend: B rows, N heads, S tokens, D head size, R channels of it that are rotated.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from diagnosis.causes.changes import with_attributes

if TYPE_CHECKING:
    import torch

    from diagnosis.causes.region import Region

_NAME = "apply_rotary_pos_emb"
_SIDES = {
    "": (True, True),
    ", of the queries only": (True, False),
    ", of the keys only": (False, True),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What queries or keys are rotated by.

    Attributes:
        cos: [B, 1, S, R], the second half as the first.
        sin: the same.
        in_pairs: whether the reference rotates neighbours, and not channels in halves.
    """

    cos: torch.Tensor
    sin: torch.Tensor
    in_pairs: bool

    def right(self, x: torch.Tensor) -> torch.Tensor:
        """Rotate [B, N, S, D] as the reference does."""
        return (by_pairs if self.in_pairs else by_halves)(x, self.cos, self.sin)

    def by(self, cos: torch.Tensor, sin: torch.Tensor) -> Turn:
        """Take other tables, their second half as the first."""
        return Turn(cos=cos, sin=sin, in_pairs=self.in_pairs)


Rotate = Callable[["torch.Tensor", "torch.Tensor", Turn], Any]
Way = Callable[["torch.Tensor", Turn], "torch.Tensor"]


def can_rotate(region: Region) -> bool:
    """Tell whether the guilty attention rotates by that function."""
    return region.has_attention and hasattr(_module(region), _NAME)


def with_rotation(region: Region, rotate: Rotate) -> AbstractContextManager[None]:
    """Let queries and keys be rotated otherwise.

    Args:
        region: the guilty attention.
        rotate: of q and k, [B, N, S, D], and what they are rotated by, the rotated q and k.
    """
    found = getattr(_module(region), _NAME)
    usual = getattr(found, "usual", found)

    def function(q: Any, k: Any, cos: Any, sin: Any, *args: Any, **kwargs: Any) -> Any:
        axis = kwargs.get("unsqueeze_dim", args[-1] if args and isinstance(args[-1], int) else 1)
        halves = _in_halves(cos.unsqueeze(axis)), _in_halves(sin.unsqueeze(axis))
        right = usual(q, k, cos, sin, *args, **kwargs)[0]
        return rotate(q, k, _turn(q, right, *halves))

    function.usual = usual  # type: ignore[attr-defined]  # of a change on top of this one
    return with_attributes(_module(region), {_NAME: function})


def sided(ways: Mapping[str, Way]) -> Iterator[tuple[str, Rotate]]:
    """Yield each way of rotating for queries and keys, queries alone and keys alone, with a name.

    Args:
        ways: by what they are called, of x [B, N, S, D] and what it is rotated by.
    """
    for says, way in ways.items():
        for side, which in _SIDES.items():
            yield says + side, partial(_by_side, way, *which)


def _by_side(
    way: Way, queries: bool, keys: bool, q: torch.Tensor, k: torch.Tensor, turn: Turn
) -> tuple[torch.Tensor, torch.Tensor]:
    return (way(q, turn) if queries else turn.right(q), way(k, turn) if keys else turn.right(k))


def _turn(x: torch.Tensor, right: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> Turn:
    """Find how the reference rotates.

    Raises:
        ValueError: if it does so in another way than in halves or pairs.
    """
    import torch

    for in_pairs in (False, True):
        turn = Turn(cos=cos, sin=sin, in_pairs=in_pairs)
        if torch.allclose(turn.right(x), right, rtol=1e-6, atol=1e-9):
            return turn
    raise ValueError("rotates otherwise")


def _in_halves(table: torch.Tensor) -> torch.Tensor:
    """Lay out a table whose columns are those of pairs as one whose second half is the first."""
    import torch

    half = table.shape[-1] // 2
    if torch.equal(table[..., :half], table[..., half:]):
        return table
    return torch.cat([table[..., ::2]] * 2, dim=-1)


def _module(region: Region) -> Any:
    return sys.modules[type(region.module).__module__]


def by_halves(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotate channel i with channel i + R / 2."""
    import torch

    size = cos.shape[-1]
    turned, rest = x[..., :size], x[..., size:]
    return torch.cat([turned * cos + other_halves(turned) * sin, rest], dim=-1)


def by_pairs(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotate channel 2 i with channel 2 i + 1."""
    import torch

    size = cos.shape[-1]
    turned, rest = x[..., :size], x[..., size:]
    cos, sin = (table[..., : size // 2].repeat_interleave(2, dim=-1) for table in (cos, sin))
    return torch.cat([turned * cos + other_of_pairs(turned) * sin, rest], dim=-1)


def other_halves(x: torch.Tensor) -> torch.Tensor:
    """Give each channel the one that is rotated into it, of channels in halves."""
    import torch

    first, second = x.chunk(2, dim=-1)
    return torch.cat([-second, first], dim=-1)


def other_of_pairs(x: torch.Tensor) -> torch.Tensor:
    """Give each channel the one that is rotated into it, of neighbours."""
    import torch

    return torch.stack([-x[..., 1::2], x[..., ::2]], dim=-1).flatten(-2)
