"""Which channels are rotated together, in which direction, and by which tables.

Legend: R channels of a head that are rotated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from diagnosis.causes.rope import Make, TableRecipe, Tables, makes_tables, recipe_of, with_tables
from diagnosis.causes.rotations import (
    Turn,
    Way,
    by_halves,
    by_pairs,
    can_rotate,
    other_halves,
    other_of_pairs,
    sided,
    with_rotation,
)
from diagnosis.causes.trial import RunTrial, Trial

if TYPE_CHECKING:
    import torch

    from diagnosis.causes.region import Region


def trials(region: Region) -> Iterator[Trial]:
    """Rotate in other ways, and lay out the tables otherwise."""
    if makes_tables(region):
        yield from _of_tables(region)
    if not can_rotate(region):
        return
    for says, rotate in sided(_ways()):
        yield RunTrial(
            cause="rope_layout", says=says, change=partial(with_rotation, region, rotate)
        )
    yield RunTrial(
        cause="rope_layout",
        says="rotates each key as if it stood one place further",
        change=partial(with_rotation, region, _keys_further),
    )


def _ways() -> dict[str, Way]:
    return {
        "rotates pairs of neighbouring channels (2i, 2i + 1)": lambda x, turn: by_pairs(
            x, turn.cos, turn.sin
        ),
        "rotates channels in halves (i, i + R / 2)": lambda x, turn: by_halves(
            x, turn.cos, turn.sin
        ),
        "rotates channels in halves by tables that are laid out for pairs": lambda x, turn: _by(
            x, turn, other_halves, tables_in_pairs=True
        ),
        "rotates pairs of neighbours by tables that are laid out for halves": lambda x, turn: _by(
            x, turn, other_of_pairs, tables_in_pairs=False
        ),
        "takes cos and sin for each other": lambda x, turn: turn.by(turn.sin, turn.cos).right(x),
        "rotates in the other direction": lambda x, turn: turn.by(turn.cos, -turn.sin).right(x),
        "does not rotate": lambda x, turn: x,
        "rotates twice": lambda x, turn: turn.right(turn.right(x)),
    }


def _by(
    x: torch.Tensor,
    turn: Turn,
    other: Callable[[torch.Tensor], torch.Tensor],
    *,
    tables_in_pairs: bool,
) -> torch.Tensor:
    """Rotate with tables of the other layout than the channels'."""
    import torch

    size = turn.cos.shape[-1]
    turned, rest = x[..., :size], x[..., size:]
    cos, sin = turn.cos, turn.sin
    if tables_in_pairs:
        cos, sin = (table[..., : size // 2].repeat_interleave(2, dim=-1) for table in (cos, sin))
    return torch.cat([turned * cos + other(turned) * sin, rest], dim=-1)


def _keys_further(
    q: torch.Tensor, k: torch.Tensor, turn: Turn
) -> tuple[torch.Tensor, torch.Tensor]:
    """Turn the keys' tables on by the angle between the first two tokens."""
    cos, sin = turn.cos, turn.sin
    if cos.shape[-2] < 2:
        return turn.right(q), turn.right(k)
    step_cos = cos[..., 1:2, :] * cos[..., :1, :] + sin[..., 1:2, :] * sin[..., :1, :]
    step_sin = sin[..., 1:2, :] * cos[..., :1, :] - cos[..., 1:2, :] * sin[..., :1, :]
    further = turn.by(cos * step_cos - sin * step_sin, sin * step_cos + cos * step_sin)
    return turn.right(q), further.right(k)


def _of_tables(region: Region) -> Iterator[Trial]:
    recipe = recipe_of(region)
    if recipe is None:
        return
    old, new = ("pairs", "halves") if recipe.in_pairs else ("halves", "pairs")
    ways: dict[str, Make] = {
        "takes cos and sin for each other": _exchanged,
        "has sin with the other sign": _negative,
        f"lays out the tables for {new} of channels": lambda recipe: replace(
            recipe, in_pairs=not recipe.in_pairs
        ).tables(),
    }
    for says, make in ways.items():
        yield RunTrial(
            cause="rope_layout",
            says=says,
            expects=f"they are laid out for {old}" if "lays out" in says else "",
            change=partial(with_tables, region, make),
        )


def _exchanged(recipe: TableRecipe) -> Tables:
    cos, sin = recipe.tables()
    return sin, cos


def _negative(recipe: TableRecipe) -> Tables:
    cos, sin = recipe.tables()
    return cos, -sin
