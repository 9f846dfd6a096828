"""The records of the benchmark: faults, harmless changes, and what a tool should say of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.faults.disguise import PLAIN, Disguise, accepted
from tests.faults.models import module_name

Rows = tuple[tuple[int, ...], ...]
Change = Callable[[Any], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a fault shows first; None for what is not asked."""

    step: int | None = None
    row: int | None = None
    position: int | None = None


ANYWHERE = Place()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plant:
    """A fault, and the architectures that it is planted in.

    Attributes:
        kind: one of the kinds in the README.
        name: which variant of the kind.
        archs: names for `models.reference`.
        role: the part to be blamed, a role of `models`.
        change: changes the part `at` of the copy in place; may return another model instead.
        at: the part that is changed, where it is not the one to be blamed.
        layer: number of the layer.
        also: other roles that are right too.
        also_lean: roles that are right too where the dump holds no positions and masks.
        cause: id of the cause.
        place: where it shows first.
        rows: `short` or `long`.
        subtle: it moves the logits by no more than rounding does, and still is systematic.
        blames: False where the inputs differ, and no module is to be blamed.
        candidate_rows: what the candidate is run on, None for the same.
        own_config: the candidate's own configuration goes into the dump.
    """

    kind: str
    name: str
    archs: tuple[str, ...]
    role: str = "root"
    change: Change
    at: str | None = None
    layer: int = 1
    also: tuple[str, ...] = ()
    also_lean: tuple[str, ...] = ()
    cause: str
    place: Place = ANYWHERE
    rows: str = "short"
    subtle: bool = False
    blames: bool = True
    candidate_rows: Rows | None = None
    own_config: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One reference with one candidate.

    Attributes:
        name: unique, and stable.
        kind: kind of the fault or of the harmless change.
        arch: architecture of the reference.
        change: makes the candidate of a copy of the reference; may return another model.
        disguise: what the dump of the candidate looks like.
        modules: names that are right; empty where nothing is to be blamed.
        verdict: what the tool should say.
        cause: id of the cause, for faults.
        place: where it shows first, as far as asked.
        rows: the token ids.
        candidate_rows: what the candidate is run on.
        subtle: as in Plant.
        own_config: as in Plant.
        run: how the candidate is run: `batch`, `single`, or `right` padded.
        shift: a constant for each token may be added to the logits.
        second: of two faults, names of modules that are right for the later one.
        second_cause: its cause.
        held_out: the pair is of the second or third part, written after the tool and blind to it.
    """

    name: str
    kind: str
    arch: str
    change: Change
    disguise: Disguise = PLAIN
    modules: tuple[str, ...] = ()
    verdict: str = "diverge"
    cause: str = ""
    place: Place = ANYWHERE
    rows: Rows
    candidate_rows: Rows | None = None
    subtle: bool = False
    own_config: bool = False
    run: str = "batch"
    shift: bool = False
    second: tuple[str, ...] = ()
    second_cause: str = ""
    held_out: bool = False
    tags: tuple[str, ...] = field(default=())

    @property
    def is_fault(self) -> bool:
        return self.verdict != "agree"


def names_of(plant: Plant, arch: str, disguise: Disguise) -> tuple[str, ...]:
    """Name the modules that are right, the best first."""
    if not plant.blames:
        return ()
    roles = (plant.role, *plant.also, *(plant.also_lean if disguise.lean else ()))
    names = tuple(module_name(arch, role, plant.layer) for role in roles)
    return accepted(names, disguise)
