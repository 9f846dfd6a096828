"""Positions, frequencies, angles or tables of the rotation in a dtype that cannot hold them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from diagnosis.causes.changes import rounded
from diagnosis.causes.rope import TableRecipe, Tables, recipe_of, with_tables
from diagnosis.causes.trial import RunTrial, Trial

if TYPE_CHECKING:
    from diagnosis.causes.region import Region

_DTYPES = ("bfloat16", "float16")
_STEPS = (*(2**bits for bits in range(4, 16)), 127, 255, 32767)  # a unit, of fixed-point tables
_PLACES = ("positions", "frequencies", "angles", "tables")


def trials(region: Region) -> Iterator[Trial]:
    """Round each of them."""
    if recipe_of(region) is None:
        return
    for dtype in _DTYPES:
        for place in _PLACES:
            yield RunTrial(
                cause="rope_precision",
                says=f"rounds the {place} of the rotation to {dtype}",
                change=partial(with_tables, region, partial(_made, place, dtype)),
            )
        yield RunTrial(
            cause="rope_precision",
            says=f"rounds positions and frequencies of the rotation to {dtype}",
            change=partial(with_tables, region, partial(_both, dtype)),
        )
    for steps in _STEPS:
        yield RunTrial(
            cause="rope_precision",
            says=f"rounds the tables of the rotation to steps of 1/{steps}",
            change=partial(with_tables, region, partial(_in_steps, steps)),
        )


def _both(dtype: str, recipe: TableRecipe) -> Tables:
    return _made(
        "positions", dtype, replace(recipe, frequencies=rounded(recipe.frequencies, dtype))
    )


def _made(place: str, dtype: str, recipe: TableRecipe) -> Tables:
    if place in ("positions", "frequencies"):
        return replace(recipe, **{place: rounded(getattr(recipe, place), dtype)}).tables()
    if place == "tables":
        cos, sin = recipe.tables()
        return rounded(cos, dtype), rounded(sin, dtype)
    return recipe.tables_of(rounded(recipe.positions[:, None] * recipe.frequencies, dtype))


def _in_steps(steps: float, recipe: TableRecipe) -> Tables:
    cos, sin = recipe.tables()
    return (cos * steps).round() / steps, (sin * steps).round() / steps
