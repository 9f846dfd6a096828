"""Adds pairs by place and value to those that names give."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from comparison.align.fingerprint import Fingerprint, fingerprint
from comparison.align.fused import FusedPart
from comparison.align.pairing import Pairing, PlannedPair
from comparison.align.rows import Layout
from comparison.align.structure import Match, Placed, match_by_structure
from comparison.align.token_rows import row_readings
from comparison.numerics.dtypes import Array
from comparison.schema.errors import BadInputError
from comparison.schema.outcome import Side
from comparison.schema.tensor_entry import TensorEntry
from comparison.store.dump import Dump
from diagnosis.name_map import entries_by_name


def with_structure(pairing: Pairing, dump: Dump, place: Callable[[], Sequence[Placed]]) -> Pairing:
    """Pair what names leave over, by place and value; a guess says that it is one.

    Args:
        pairing: by names.
        dump: the candidate's.
        place: gives the reference's tensors with their values.
    """
    loose = {side: [item.entry for item in pairing.unpaired if item.side is side] for side in Side}
    if not loose[Side.REFERENCE] or not loose[Side.CANDIDATE] or dump.manifest is None:
        return pairing
    paired = {pair.reference.name for pair in pairing.pairs}
    missing = {entry.name for entry in loose[Side.REFERENCE]} - paired
    reference = [placed for placed in place() if placed.name in missing]
    matches = match_by_structure(reference, list(_placed(loose[Side.CANDIDATE], dump)))
    return _joined(pairing, tuple(_planned(matches, loose)))


def _placed(entries: Sequence[TensorEntry], dump: Dump) -> Iterator[Placed]:
    """Read the first step's tensors."""
    first = min(entry.step for entry in entries)
    for order, entry in enumerate(entry for entry in entries if entry.step == first):
        try:
            array = dump.read(entry)
        except BadInputError:  # it is listed among the dump's problems
            continue
        exact = array.dtype.kind in "biu"
        sizes = _readings(array, entry, dump)
        yield Placed(name=entry.name, order=order, sizes=sizes, is_integer=exact)


def _readings(array: Array, entry: TensorEntry, dump: Dump) -> dict[int, Fingerprint]:
    assert dump.manifest is not None  # its rows are needed to come here
    lengths = tuple(len(row.token_ids) for row in dump.manifest.rows)
    layout = Layout(padding=dump.manifest.padding, lengths=lengths, step=entry.step)
    found: dict[int, Fingerprint] = {}
    for rows in row_readings(array, layout):
        size = int(np.prod(rows[0].values.shape[1:]))
        if size not in found:
            found[size] = fingerprint(rows[0].positions, rows[0].values)
    return found


def _planned(
    matches: Sequence[Match], loose: dict[Side, list[TensorEntry]]
) -> Iterator[PlannedPair]:
    """Spell matches out for each step and rank."""
    mine, theirs = (entries_by_name(loose[side]) for side in (Side.REFERENCE, Side.CANDIDATE))
    for match in matches:
        for at, candidate in theirs[match.candidate].items():
            reference = mine[match.reference].get(at)
            if reference is None:
                continue
            fused = None
            if match.parts:
                parts = tuple(mine[name].get(at) for name in match.parts)
                position = match.parts.index(match.reference)
                fused = FusedPart(position=position, parts=parts, fused_is_candidate=True)
            yield PlannedPair(
                reference=reference, candidate=candidate, reason=match.reason, fused=fused
            )


def _joined(pairing: Pairing, added: Sequence[PlannedPair]) -> Pairing:
    used = {pair.reference for pair in added} | {pair.candidate for pair in added}
    return Pairing(
        pairs=(*pairing.pairs, *added),
        unpaired=tuple(item for item in pairing.unpaired if item.entry not in used),
    )
