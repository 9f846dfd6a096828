"""Why a tensor has no counterpart."""

import re
from dataclasses import dataclass

from comparison.align.renames import CanonicalName
from comparison.schema.comparison import lacks_step
from comparison.schema.outcome import Side
from comparison.schema.tensor_entry import TensorEntry

_OF_ENGINES = "which engines have as modules of different kinds"  # no reason within one engine
# Modules that only one engine has, and what they are.
_KNOWN = (
    (re.compile(r"\.allreduce"), "sums over devices, which only MAX has as a module"),
    (re.compile(r"distributed_linear_layers"), "one device's part of a layer, only in MAX"),
    (re.compile(r"Sampler"), "sampling, which only MAX has as a module"),
    (re.compile(r"rotary_emb"), f"the rope, {_OF_ENGINES}"),
    (re.compile(r"act_fn"), f"the activation, {_OF_ENGINES}"),
    (re.compile(r"_shards\.[1-9]"), "a further device's shard; the first one was compared"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnpairedReasons:
    """What is known of the other dump.

    Attributes:
        other_side: its role.
        other_places: its ranks and steps.
        other_modules: its modules by canonical name, each with its place.
        alike: whether both dumps are of one engine, so that neither should lack a tensor.
    """

    other_side: Side
    other_places: set[tuple[int | None, int]]
    other_modules: set[tuple[tuple[int | None, int], str]]
    alike: bool = False

    def is_gap(self, entry: TensorEntry, *, place: tuple[int | None, int]) -> bool:
        """Tell a tensor that should have a counterpart from one that need not have any.

        Args:
            entry: the tensor.
            place: its rank and step, as they were matched.
        """
        if place not in self.other_places:  # a further rank may be told by the first one
            return place[0] in {rank for rank, _ in self.other_places}
        return self.alike and not any(pattern.search(entry.name) for pattern, _ in _KNOWN)

    def reason(
        self, entry: TensorEntry, *, place: tuple[int | None, int], name: CanonicalName | None
    ) -> str:
        """Say why an entry is left over.

        Args:
            entry: the tensor.
            place: its rank and step, as they were matched.
            name: what it means; None where that differs between engines.
        """
        if place not in self.other_places:
            return self._missing_place(place)
        for pattern, reason in _KNOWN:
            if pattern.search(entry.name) and not (self.alike and reason.endswith(_OF_ENGINES)):
                return reason
        if name is None:
            return "the engines pass this differently, so that it has no counterpart"
        if (place, name.module) in self.other_modules:
            return f"the {self.other_side} has this module, but not this input or output"
        return f"the {self.other_side} has no such tensor"

    def _missing_place(self, place: tuple[int | None, int]) -> str:
        rank, step = place
        if rank not in {other for other, _ in self.other_places}:
            if {other for other, _ in self.other_places} == {None}:
                return "a further rank's copy or part; see what is said of the first rank's"
            ranks = "ranks" if rank is None else f"rank {rank}"
            return f"the {self.other_side} {'has several ' if rank is None else 'has no '}{ranks}"
        return lacks_step(self.other_side, step)
