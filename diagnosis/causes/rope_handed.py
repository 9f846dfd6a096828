"""Rotary tables of other layers, handed to a layer by the model's body."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from comparison.numerics.dtypes import Array
from diagnosis.causes.rope import owns_frequencies
from diagnosis.causes.trial import OutputTrial, Trial
from diagnosis.replay.module_watch import module_of

if TYPE_CHECKING:
    from diagnosis.causes.region import Region

_TABLES = "input_position_embeddings"


def trials(region: Region) -> Iterator[Trial]:
    """Hand down each of the tables that the model makes."""
    if _TABLES not in region.first.name or region.target.shape != region.exact.shape:
        return
    for name, table in _tables(region).items():
        if table.shape == region.exact.shape and not np.array_equal(table, region.exact):
            yield OutputTrial(
                cause="rope_frequency",
                says=f"hands down the rotary table of other layers, {name}",
                predict=partial(_given, table),
            )


def _given(table: Array, _: Array) -> Array:
    return table


def _tables(region: Region) -> dict[str, Array]:
    """Return what each module gives that makes tables, at the positions that are judged."""
    parts: dict[str, list[Array]] = {}
    for taken in region.taken():
        if "-output" not in taken.name or not _makes(region, module_of(taken.owner)):
            continue
        at = {int(position): place for place, position in enumerate(taken.positions)}
        wanted = [int(p) for row, p in region.positions if row == taken.row]
        if all(position in at for position in wanted):
            found = taken.reference[[at[position] for position in wanted]]
            parts.setdefault(taken.name, []).append(np.asarray(found, np.float64))
    return {name: np.concatenate(found) for name, found in parts.items()}


def _makes(region: Region, name: str) -> bool:
    try:
        return owns_frequencies(region.checker.submodule(name))
    except AttributeError:
        return False
