"""Adds pairs by place and value to those that names give."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

import numpy as np

from comparison.align.fingerprint import Fingerprint, fingerprint
from comparison.align.fused import FusedPart
from comparison.align.pairing import Pairing, PlannedPair
from comparison.align.renames import canonical_name
from comparison.align.structure import Match, Placed, match_by_structure
from comparison.align.token_rows import row_readings
from comparison.numerics.dtypes import Array
from comparison.schema.errors import BadInputError
from comparison.schema.outcome import Side
from comparison.schema.tensor_entry import TensorEntry
from comparison.schema.tensor_names import parse_tensor_name
from comparison.store.dump import Dump
from diagnosis.dump_layout import layout_of
from diagnosis.name_map import entries_by_name

_KNOWN = 0.2  # of the reference's outputs; names that pair so many are the engine's known ones


def with_structure(
    pairing: Pairing,
    dump: Dump,
    place: Callable[[], Sequence[Placed]],
    *,
    reference_engine: str | None = None,
) -> Pairing:
    """Pair what names leave over, by place and value; a guess says that it is one.

    Where names are known, those that no other engine has a counterpart for get none by a guess:
    an engine's cache lengths are not another's positions because both lie in one layer.

    Args:
        pairing: by names.
        dump: the candidate's.
        place: gives the reference's tensors with their values.
        reference_engine: whose names the reference's are.
    """
    loose = {side: [item.entry for item in pairing.unpaired if item.side is side] for side in Side}
    if not loose[Side.REFERENCE] or not loose[Side.CANDIDATE] or dump.manifest is None:
        return pairing
    paired = {pair.reference.name for pair in pairing.pairs}
    missing = {entry.name for entry in loose[Side.REFERENCE]} - paired
    reference = [placed for placed in place() if placed.name in missing]
    matches = match_by_structure(reference, list(_placed(loose[Side.CANDIDATE], dump)))
    if _names_are_known(pairing, missing):
        matches = [match for match in matches if _may_be(match, reference_engine, dump.engine)]
    return _joined(pairing, tuple(_planned(matches, loose)))


def _names_are_known(pairing: Pairing, missing: Collection[str]) -> bool:
    """Tell whether names pair enough of the reference's outputs to be trusted."""
    paired = {pair.reference.name for pair in pairing.pairs if _is_output(pair.reference.name)}
    loose = {name for name in missing if _is_output(name)}
    return len(paired) >= _KNOWN * (len(paired) + len(loose)) > 0


def _is_output(name: str) -> bool:
    parsed = parse_tensor_name(name)
    return parsed is not None and parsed.side == "output"


def _may_be(match: Match, reference_engine: str | None, engine: str | None) -> bool:
    """Tell whether a match is proven, or both names may have a counterpart."""
    if match.proven:
        return True
    left = canonical_name(match.reference, engine=reference_engine, other=engine)
    right = canonical_name(match.candidate, engine=engine, other=reference_engine)
    return left is not None and right is not None


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
    found: dict[int, Fingerprint] = {}
    for rows in row_readings(array, layout_of(dump, entry.step)):
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
