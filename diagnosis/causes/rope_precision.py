"""Positions, frequencies, angles or tables of the rotation in a dtype that cannot hold them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations
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
        for count in range(1, len(_PLACES) + 1):
            for places in combinations(_PLACES, count):
                yield RunTrial(
                    cause="rope_precision",
                    says=f"rounds the {_listed(places)} of the rotation to {dtype}",
                    change=partial(with_tables, region, partial(_made, places, dtype)),
                )
    for steps in _STEPS:
        yield RunTrial(
            cause="rope_precision",
            says=f"rounds the tables of the rotation to steps of 1/{steps}",
            change=partial(with_tables, region, partial(_in_steps, steps)),
        )


def _listed(places: Sequence[str]) -> str:
    *first, last = places
    return f"{', '.join(first)} and {last}" if first else last


def _made(places: Sequence[str], dtype: str, recipe: TableRecipe) -> Tables:
    """Round what is named, in the order in which it is computed."""
    given = {
        name: rounded(getattr(recipe, name), dtype)
        for name in ("positions", "frequencies")
        if name in places
    }
    recipe = replace(recipe, **given)
    if "angles" in places:
        angles = rounded(recipe.positions[:, None] * recipe.frequencies, dtype)
        cos, sin = recipe.tables_of(angles)
    else:
        cos, sin = recipe.tables()
    return (rounded(cos, dtype), rounded(sin, dtype)) if "tables" in places else (cos, sin)


def _in_steps(steps: float, recipe: TableRecipe) -> Tables:
    cos, sin = recipe.tables()
    return (cos * steps).round() / steps, (sin * steps).round() / steps
