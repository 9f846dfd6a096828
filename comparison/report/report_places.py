"""Where each row of a report stands: in the reference's tree of modules, with an id of its own."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from comparison.schema.comparison import Pair
from comparison.schema.outcome import Side
from comparison.schema.tensor_entry import TensorEntry
from comparison.schema.tensor_names import parse_tensor_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a tensor stands.

    Attributes:
        module: dotted path of its module; empty for a name of another form.
        leaf: the rest of its name.
    """

    module: str
    leaf: str


def place_of(name: str) -> Place:
    """Take a name apart into a module and the rest; a hand-given name is a leaf of its own."""
    parsed = parse_tensor_name(name)
    if parsed is not None:
        return Place(module=parsed.module, leaf=name[len(parsed.module) :].removeprefix("-"))
    module, mark, operation = name.rpartition("@")
    if mark and module:
        return Place(module=module, leaf=f"@{operation}")
    module, _, leaf = name.rpartition(".")
    return Place(module=module, leaf=leaf)


class ModulePaths:
    """Finds where the candidate's modules stand in the reference's tree."""

    def __init__(self, pairs: Iterable[Pair]) -> None:
        """Learn from what was paired.

        Args:
            pairs: of one comparison.
        """
        self._known: dict[str, str] = {}
        for pair in pairs:
            ours, theirs = place_of(pair.reference.name), place_of(pair.candidate.name)
            if pair.reference.name == pair.candidate.name or ours.leaf == theirs.leaf:
                self._known.setdefault(theirs.module, ours.module)
                self._learn_around(theirs.module.split("."), ours.module.split("."))

    def _learn_around(self, theirs: list[str], ours: list[str]) -> None:
        """Take what lies around two modules of one name for the same, as far as names agree."""
        while len(theirs) > 1 and len(ours) > 1 and theirs[-1] == ours[-1]:
            theirs, ours = theirs[:-1], ours[:-1]
            self._known.setdefault(".".join(theirs), ".".join(ours))

    def place(self, name: str) -> Place:
        """Give the place of a candidate's tensor that has no counterpart."""
        place = place_of(name)
        parts = place.module.split(".")
        for end in range(len(parts), 0, -1):
            known = self._known.get(".".join(parts[:end]))
            if known is not None:
                module = ".".join([known, *parts[end:]]) if known else ".".join(parts[end:])
                return Place(module=module, leaf=place.leaf)
        return place


class RowIds:
    """Gives each row an id that says where it is: `0/model.layers.0.mlp-output`."""

    def __init__(self) -> None:
        """Begin with no id taken."""
        self._taken: set[str] = set()

    def take(self, entry: TensorEntry, side: Side) -> str:
        """Give the id of a tensor, or of the pair whose reference it is."""
        rank = "" if entry.rank is None else f"r{entry.rank}"
        mark = "" if side is Side.REFERENCE else "candidate:"
        base = unique = f"{entry.step}{rank}/{mark}{entry.name}"
        number = 2
        while unique in self._taken:
            unique = f"{base}~{number}"
            number += 1
        self._taken.add(unique)
        return unique


def first_row_of(names: Sequence[str | None]) -> dict[str, int]:
    """Give the number of the first row of each name."""
    found: dict[str, int] = {}
    for number, name in enumerate(names):
        if name is not None:
            found.setdefault(name, number)
    return found
