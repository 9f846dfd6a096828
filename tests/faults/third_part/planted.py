"""The record of a fault of this part: a plant in one architecture, and the disguise of its dump."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.faults.changes import Change
from tests.faults.disguise import FLOWING, FUSED, PLAIN, RENAMED, SERVED, SPARSE, Disguise
from tests.faults.models import _CONFIGS, path_of
from tests.faults.pair import Plant
from tests.faults.third_part import archs

archs.register()
Planted = tuple[Plant, Disguise]
DISGUISES: dict[str, Disguise] = {
    "P": PLAIN,
    "R": RENAMED,
    "F": FUSED,
    "S": SERVED,
    "X": SPARSE,
    "L": FLOWING,
}


def fault(
    cause: str, name: str, where: str, role: str, change: Change, *, all_layers: bool = False,
    **more: Any,
) -> Planted:  # fmt: skip
    """Plant a fault.

    Args:
        cause: id of the cause, and the kind.
        name: which variant.
        where: architecture and letter of the disguise, `glm4/S`.
        role: the part to be blamed.
        change: changes that part, or `at`.
        all_layers: the mistake is made in every layer, as a port makes it; the first is blamed.
        more: fields of `Plant`.
    """
    arch, _, letter = where.partition("/")
    if all_layers:
        more = {"at": "root", "layer": 0, **more}
        change = in_all_layers(arch, role, change)
    plant = Plant(
        kind=cause, name=name, archs=(arch,), role=role, change=change, cause=cause, **more
    )
    return plant, DISGUISES[letter]


def in_all_layers(arch: str, role: str, change: Change) -> Callable[[Any], None]:
    """Apply a change to the part of each layer that has it."""

    def apply(root: Any) -> None:
        modules = dict(root.named_modules())
        paths = [path_of(arch, role, number) for number in range(layers_of(arch))]
        for path in paths:
            if path in modules:
                change(modules[path])

    return apply


def layers_of(arch: str) -> int:
    """Return how many layers an architecture has."""
    fields = _CONFIGS[arch.partition("@")[0].removesuffix("_loud")][2]
    names = ("num_hidden_layers", "n_layer", "n_layers")
    return int(next(fields[name] for name in names if name in fields))
