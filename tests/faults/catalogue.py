"""All pairs of the benchmark, and the smaller choice of them that every run of the tests takes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from typing import Any

from tests.faults import (
    harmless,
    plants_attention,
    plants_inputs,
    plants_layers,
    plants_positions,
    plants_sides,
    plants_weights,
    stacked,
)
from tests.faults.disguise import PLAIN, Disguise, disguise_of
from tests.faults.held_out import harmless as held_out_harmless
from tests.faults.held_out.plants import PLANTS as HELD_OUT_PLANTS
from tests.faults.models import LONG_ROWS, SHORT_ROWS, path_of
from tests.faults.pair import Change, Pair, Plant, names_of
from tests.faults.third_part import harmless as third_harmless
from tests.faults.third_part.plants import PLANTS as THIRD_PLANTS

PLANTS: tuple[Plant, ...] = (
    *plants_attention.PLANTS,
    *plants_layers.PLANTS,
    *plants_positions.PLANTS,
    *plants_weights.PLANTS,
    *plants_inputs.PLANTS,
    *plants_sides.PLANTS,
)
FAST_FAULTS, FAST_HARMLESS = 36, 16


@cache
def all_pairs() -> tuple[Pair, ...]:
    """List the pairs of the first part, faults first; every other one of a kind is disguised."""
    return _unique((*_faults(PLANTS), *stacked.pairs(), *harmless.pairs()))


@cache
def held_out_pairs() -> tuple[Pair, ...]:
    """List the pairs that were not there while the tool was made, in the same order."""
    faults = [
        replace(pair, name=f"held_out/{pair.name}", held_out=True)
        for pair in _faults(HELD_OUT_PLANTS)
    ]
    others = [replace(pair, held_out=True) for pair in held_out_harmless.pairs()]
    return _unique((*faults, *others))


@cache
def third_part_pairs() -> tuple[Pair, ...]:
    """List the pairs of the third part, each of which has a disguise of its own choice."""
    faults = [_pair(plant, plant.archs[0], disguise) for plant, disguise in THIRD_PLANTS]
    named = [replace(pair, name=f"third/{pair.name}", held_out=True) for pair in faults]
    return _unique((*named, *third_harmless.pairs()))


def _unique(pairs: tuple[Pair, ...]) -> tuple[Pair, ...]:
    names = [pair.name for pair in pairs]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise ValueError(f"pairs of the same name: {sorted(twice)}")
    return pairs


def fast_pairs() -> tuple[Pair, ...]:
    """Choose evenly across kinds, the same ones each time."""
    faults = [pair for pair in all_pairs() if pair.is_fault]
    others = [pair for pair in all_pairs() if not pair.is_fault]
    return (*_spread(faults, FAST_FAULTS), *_spread(others, FAST_HARMLESS))


def _spread(pairs: Iterable[Pair], count: int) -> list[Pair]:
    """Take pairs of all kinds in turn."""
    kinds: dict[str, list[Pair]] = defaultdict(list)
    for pair in pairs:
        kinds[pair.kind].append(pair)
    in_turn = [
        (place, number, pair)
        for number, found in enumerate(kinds.values())
        for place, pair in enumerate(_from_both_ends(found))
    ]
    return [pair for _, _, pair in sorted(in_turn, key=lambda entry: entry[:2])[:count]]


def _from_both_ends(pairs: list[Pair]) -> list[Pair]:
    """Take every third first, so that the first ones are unlike."""
    return [pair for start in range(3) for pair in pairs[start::3]]


def _faults(plants: Iterable[Plant]) -> list[Pair]:
    counts: dict[str, int] = defaultdict(int)
    found = []
    for plant in plants:
        for arch in plant.archs:
            number = counts[plant.kind]
            counts[plant.kind] += 1
            found.append(_pair(plant, arch, _disguise(plant, arch, number)))
    return found


def _disguise(plant: Plant, arch: str, number: int) -> Disguise:
    if plant.kind == "config" or number % 2 == 0:
        return PLAIN
    return disguise_of(number // 2, arch, plant.role)


def _pair(plant: Plant, arch: str, disguise: Disguise) -> Pair:
    return Pair(
        name=f"{plant.kind}/{plant.name}/{arch}/{disguise.name}",
        kind=plant.kind,
        arch=arch,
        change=_on_module(plant.change, path_of(arch, plant.at or plant.role, plant.layer)),
        disguise=disguise,
        modules=names_of(plant, arch, disguise),
        cause=plant.cause,
        place=plant.place,
        rows=LONG_ROWS if plant.rows == "long" else SHORT_ROWS,
        candidate_rows=plant.candidate_rows,
        subtle=plant.subtle,
        own_config=plant.own_config,
    )


def _on_module(change: Change, path: str) -> Callable[[Any], Any]:
    """Apply a change of a part to the whole model, which it may return anew."""
    return lambda root: change(root.get_submodule(path))
