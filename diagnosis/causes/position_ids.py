"""Positions that are off: shifted, stretched, stuck, or counted with the padding."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from comparison.numerics.dtypes import Array
from diagnosis.causes.changes import with_arguments
from diagnosis.causes.position_lookups import of_lookups
from diagnosis.causes.rope import TableRecipe, Tables, read_recipe, recipe_of, with_tables
from diagnosis.causes.rotations import Turn, can_rotate, with_rotation
from diagnosis.causes.sliding_window import first_wrong
from diagnosis.causes.trial import OutputTrial, RunTrial, Sign, Trial

if TYPE_CHECKING:
    import torch

    from diagnosis.causes.region import Region

Positions = Callable[[Array, int, int], Array]


def _ways() -> dict[str, Positions]:
    """Name what may be done to positions: of these, the prompt's tokens, and the row's padding."""
    return {
        "counts positions from one": lambda p, prompt, pad: p + 1,
        "counts positions from two": lambda p, prompt, pad: p + 2,
        "counts the padding as positions": lambda p, prompt, pad: p + pad,
        "takes position 0 in each decode step": lambda p, prompt, pad: np.where(p < prompt, p, 0),
        "is one position behind in decode steps": lambda p, prompt, pad: np.where(
            p < prompt, p, p - 1
        ),
        "is one position ahead in decode steps": lambda p, prompt, pad: np.where(
            p < prompt, p, p + 1
        ),
        "counts positions of decode steps from the longest row's": lambda p, prompt, pad: np.where(
            p < prompt, p, p + pad
        ),
        "stays at the last position of the prompt in decode steps": lambda p, prompt, pad: (
            np.minimum(p, prompt - 1)
        ),
        "doubles positions": lambda p, prompt, pad: p * 2,
        "halves positions": lambda p, prompt, pad: p // 2,
        "takes position 0 throughout": lambda p, prompt, pad: p * 0,
        "counts positions backwards": lambda p, prompt, pad: p.max(initial=0) - p,
        "takes position 0 twice, and is one behind from then on": lambda p, prompt, pad: np.maximum(
            p - 1, 0
        ),
        "counts from 0 again in decode steps": lambda p, prompt, pad: np.where(
            p < prompt, p, p - prompt
        ),
    }


def _all_ways(region: Region) -> dict[str, Positions]:
    """Add those that begin anew every so many tokens, as where the first error is."""
    ways = _ways()
    for size in dict.fromkeys(first_wrong(region)):
        if size > 1:
            ways[f"counts from 0 again every {size} tokens"] = partial(_in_chunks, size)
    return ways


def _in_chunks(size: int, p: Array, prompt: int, pad: int) -> Array:
    return p % size


def trials(region: Region) -> Iterator[Trial]:
    """Change integers that are positions, then the tables of the rotation, then slopes."""
    if _is_positions(region):
        for says, way in _all_ways(region).items():
            yield OutputTrial(
                cause="position_ids", says=says, predict=partial(_predicted, region, way)
            )
        return
    if region.has_attention and recipe_of(region) is not None:
        for says, way in _all_ways(region).items():
            yield RunTrial(
                cause="position_ids",
                says=says,
                change=partial(with_tables, region, partial(_rotated, region, way)),
            )
    if can_rotate(region):
        yield from _of_one_side(region)
    yield from of_lookups(region, _all_ways(region))
    yield from _of_slopes(region)


def _of_one_side(region: Region) -> Iterator[Trial]:
    """Rotate queries alone, or keys alone, by other positions."""
    for says, way in _all_ways(region).items():
        for side, keys in (("queries", False), ("keys", True)):
            yield RunTrial(
                cause="position_ids",
                says=f"{says}, of the {side} only",
                change=partial(with_rotation, region, partial(_of_side, region, way, keys)),
            )


def _of_side(
    region: Region, way: Positions, keys: bool, q: torch.Tensor, k: torch.Tensor, turn: Turn
) -> tuple[torch.Tensor, torch.Tensor]:
    recipe = read_recipe((turn.cos, turn.sin))
    if recipe is None:
        raise ValueError("no tables of positions")  # the hypothesis cannot be run
    other = turn.by(*_rotated(region, way, recipe))
    return (turn.right(q), other.right(k)) if keys else (other.right(q), turn.right(k))


def signs(region: Region) -> Iterator[Sign]:
    """Tell integers that count tokens and are wrong."""
    if _is_positions(region):
        wrong = np.flatnonzero(
            (region.exact != region.target).reshape(len(region.exact), -1).any(1)
        )
        first = int(wrong[0]) if wrong.size else 0
        yield Sign(
            cause="position_ids",
            says=f"has position {region.target.ravel()[first]:g} where "
            f"{region.exact.ravel()[first]:g} belongs",
            weight=0.9,
        )


def _is_positions(region: Region) -> bool:
    """Tell whether the guilty tensor is integer and counts the tokens of each row."""
    if region.first.floor is not None or not region.exact.size:
        return False
    flat = region.exact.reshape(len(region.exact), -1)[:, 0]
    return bool(np.array_equal(flat, region.positions[:, 1]))


def _predicted(region: Region, way: Positions, exact: Array) -> Array:
    new = exact.copy()
    for row in np.unique(region.positions[:, 0]):
        places = region.positions[:, 0] == row
        prompt, pad = region.prompt_tokens(int(row)), region.padding(int(row))
        new[places] = way(exact[places], prompt, pad)
    return new


def _rotated(region: Region, way: Positions, recipe: TableRecipe) -> Tables:
    import torch

    row = region.running.row
    positions = way(recipe.positions.numpy(), region.prompt_tokens(row), region.padding(row))
    return replace(recipe, positions=torch.from_numpy(np.asarray(positions, np.float64))).tables()


def _of_slopes(region: Region) -> Iterator[Trial]:
    """Change the bias that grows with the distance, which some models have for positions."""
    ways: dict[str, Callable[..., object]] = {
        "doubles the slopes of the bias by distance": lambda alibi: alibi * 2,
        "halves the slopes of the bias by distance": lambda alibi: alibi / 2,
        "has the slopes of the heads in reversed order": lambda alibi: alibi.flip(0),
        "leaves the bias by distance out": lambda alibi: alibi * 0,
    }
    if not any("alibi" in call.kwargs for call in region.calls):
        return
    for says, way in ways.items():
        yield RunTrial(cause="position_ids", says=says, change=partial(_with_alibi, region, way))


def _with_alibi(region: Region, way: Callable[..., object]) -> AbstractContextManager[None]:
    return with_arguments(
        region.module, lambda args, kwargs: (args, {**kwargs, "alibi": way(kwargs["alibi"])})
    )
