"""Each band's rotary frequency by itself, read off the candidate's tables or its attention.

Legend: n positions, P pairs of channels that are rotated together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from comparison.numerics.dtypes import Array
from diagnosis.causes.rope import TableRecipe, makes_tables, with_tables
from diagnosis.causes.trial import RunTrial, Trial

if TYPE_CHECKING:
    from diagnosis.causes.region import Region

_SHOWN = 6
_SAME = 1e-5  # relative
_GRID = np.concatenate([[0.0], np.geomspace(1e-7, np.pi, 9001)])  # radians a token
_MOST_BANDS = 64
_STEP = 1e-5  # of a finite difference
_ROUNDS = 10
_WARM = 2  # rounds, after which one that is right converges fast
_DONE = 1e-12  # of the square of the error
_HELPFUL = 1e-3  # of the same; what leaves more over is no explanation


def bands(region: Region, recipe: TableRecipe) -> Iterator[Trial]:
    """Yield rotations with the frequencies that the candidate's values tell.

    Args:
        region: the guilty computation.
        recipe: of the reference's tables.
    """
    found = _found(region, recipe)
    if found is None:
        return
    right = recipe.frequencies.numpy()
    wrong = np.flatnonzero(np.abs(found - right) > _SAME * np.abs(right))
    if not wrong.size:
        return
    shown = ", ".join(f"{band}: {found[band] / right[band]:.5g}" for band in wrong[:_SHOWN])
    yield RunTrial(
        cause="rope_frequency",
        says=f"rotates {wrong.size} of {len(right)} bands at another speed, times {shown}",
        change=lambda: with_tables(region, lambda old: _with(old, found).tables()),
        numbers=int(wrong.size),
    )


def _with(recipe: TableRecipe, frequencies: Array) -> TableRecipe:
    import torch

    return replace(recipe, frequencies=torch.from_numpy(frequencies))


def _found(region: Region, recipe: TableRecipe) -> Array | None:
    if makes_tables(region):
        width = 2 * len(recipe.frequencies)
        is_table = region.target.ndim > 1 and region.target.shape[-1] == width
        return _of_tables(region, recipe) if is_table else None
    if region.has_attention and len(recipe.frequencies) <= _MOST_BANDS:
        return _of_attention(region, recipe)
    return None


def _of_tables(region: Region, recipe: TableRecipe) -> Array:
    """Seek each band's frequency by the table at all positions, the nearest of equal ones."""
    positions = region.positions[:, 1].astype(float)
    pairs = len(recipe.frequencies)
    columns = slice(None, None, 2) if recipe.in_pairs else slice(pairs)
    table = region.target.reshape(len(positions), -1)[:, columns] / recipe.factor
    first = region.exact.reshape(len(positions), -1)[positions == 0]
    is_cos = np.allclose(first, recipe.factor)
    function = np.cos if is_cos else np.sin
    found = recipe.frequencies.numpy().copy()
    near = np.concatenate([[1.0], np.geomspace(0.02, 50, 4001)])
    for band in range(pairs):
        grid = np.concatenate([found[band] * near, _GRID])
        errors = np.square(function(positions[:, None] * grid) - table[:, [band]]).sum(axis=0)
        best = grid[int(np.argmin(errors))]
        for _ in range(20):  # Newton's method on the sum of squares, as Gauss has it
            angle = positions * best
            slope = positions * (np.cos(angle) if not is_cos else -np.sin(angle))
            square = float(slope @ slope)
            if not square:
                break
            best += float(slope @ (table[:, band] - function(angle))) / square
        found[band] = best
    return found


def _of_attention(region: Region, recipe: TableRecipe) -> Array | None:
    """Seek all frequencies together by what the attention gives; None where none explain it."""
    call, places = region.worst_call
    target, name = region.target[places], region.first.name

    def predict(frequencies: Array) -> Array:
        values = region.values(
            lambda: with_tables(region, lambda old: _with(old, frequencies).tables()), calls=[call]
        )
        return np.asarray(values[name] - target).ravel()

    return _least_squares(predict, recipe.frequencies.numpy().copy())


def _least_squares(residual: Callable[[Array], Array], start: Array) -> Array | None:
    """Bring a residual to nothing by Gauss and Newton's method; None where that fails."""
    here = residual(start)
    first = best = float(here @ here)
    values = start
    for number in range(_ROUNDS):
        if not np.isfinite(best) or best <= _DONE * first:
            break
        steps = _STEP * np.eye(len(values))
        slopes = np.stack([(residual(values + step) - here) / _STEP for step in steps], axis=1)
        if not np.isfinite(slopes).all():
            return None
        moved = values + np.linalg.lstsq(slopes, -here, rcond=None)[0]
        new = residual(moved)
        distance = float(new @ new)
        if not distance < best or (number >= _WARM and distance > 0.5 * best):
            break
        values, here, best = moved, new, distance
    return values if best <= _HELPFUL * first else None
