"""Pairs that were measured before: what modules pass on has several names, and is read once."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

from comparison.align.pairing import PlannedPair
from comparison.schema.comparison import Pair
from comparison.schema.outcome import Compared
from comparison.schema.tensor_entry import TensorEntry
from comparison.store.dump import Dump
from comparison.store.file_stamp import stamp_at


class KnownPairs:
    """What pairs came to, by the places of their two tensors in files."""

    def __init__(self, reference: Dump, candidate: Dump) -> None:
        """Know none.

        Args:
            reference: one of the dumps.
            candidate: the other one.
        """
        self._dumps = reference, candidate
        self._known: dict[Hashable, Pair] = {}

    def place(self, planned: PlannedPair) -> Hashable | None:
        """Return what tells a pair's numbers from those of all others; None where more goes in.

        Args:
            planned: the pair.
        """
        if planned.fused is not None or planned.addend is not None:
            return None
        sides = zip(self._dumps, (planned.reference, planned.candidate), strict=True)
        places = tuple(_place(dump, entry) for dump, entry in sides)
        return None if None in places else places

    def find(self, place: Hashable | None, planned: PlannedPair) -> Pair | None:
        """Give what the same two tensors came to, under this pair's names.

        Args:
            place: of the pair.
            planned: the pair.
        """
        found = None if place is None else self._known.get(place)
        if found is None:
            return None
        return replace(
            found,
            reference=planned.reference,
            candidate=planned.candidate,
            reason=planned.reason,
        )

    def keep(self, place: Hashable | None, pair: Pair) -> None:
        """Keep a pair, if it was measured.

        Args:
            place: of it, as it was before it was read.
            pair: what it came to.
        """
        if place is not None and isinstance(pair.outcome, Compared):
            self._known[place] = pair


def _place(dump: Dump, entry: TensorEntry) -> Hashable | None:
    """Return file, key and step of a tensor; None of one that is put together from several."""
    if type(dump) is not Dump or entry.rank is not None or entry in dump.problems:
        return None
    stamp = stamp_at(entry.path)
    if stamp is None:
        return None
    return stamp, entry.path.suffix, entry.key, entry.step, dump.raw_of(entry)
