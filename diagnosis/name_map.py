"""A file that says which tensors belong together, where names and values do not do.

    {
      "model.model.norm-output": "net.ln_f-output",
      "model.model.layers.0.self_attn.q_proj-output": {
        "fused": "net.h.0.qkv-output",
        "parts": ["...q_proj-output", "...k_proj-output", "...v_proj-output"]
      }
    }

Keys are the reference's tensors, values the candidate's; a pair holds in every step.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from comparison.align.fused import FusedPart
from comparison.align.pairing import Pairing, PlannedPair
from comparison.schema.errors import BadInputError, CorruptFileError
from comparison.schema.tensor_entry import TensorEntry
from comparison.store.json_text import parse_json
from comparison.store.regular_file import read_regular

_LARGEST_FILE = 64 << 20
_SHOWN = 5
_LONGEST_NAME = 200  # that is shown as a whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Counterpart:
    """What a tensor of the reference belongs to.

    Attributes:
        candidate: the candidate's tensor.
        parts: where that is a fused one, the reference's tensors that it joins, in block order.
    """

    candidate: str
    parts: tuple[str, ...] = ()


NameMap = Mapping[str, Counterpart]


def read_map(path: Path) -> NameMap:
    """Read a map.

    Raises:
        CorruptFileError: the file is no map, or names a tensor twice; the message says where.
        BadInputError: the file cannot be read.
    """
    try:
        if not path.is_file():
            kind = "no regular file" if path.exists() else "nothing"
            raise BadInputError(f"expected a map, a JSON file, found {kind} at {path}")
        text = read_regular(path, most_bytes=_LARGEST_FILE)
        value: Any = parse_json(text, make_object=_object_without_twins)
    except _TwiceError as error:
        raise CorruptFileError(f"{path}: {error}") from None
    except BadInputError:
        raise
    except OSError as error:
        raise BadInputError(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise CorruptFileError(f"{path} is not JSON: {error!s:.200}") from error
    if not isinstance(value, dict):
        raise CorruptFileError(f"{path}: expected an object of the reference's tensors")
    names = {name: _counterpart(path, name, item) for name, item in value.items()}
    clashes = list(_clashes(names))
    if clashes:
        raise CorruptFileError(f"{path}: {_listed(clashes)}")
    return names


class _TwiceError(BadInputError):
    """A key of a JSON object is there twice, of which Python would keep the last."""


def _object_without_twins(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    counts = Counter(name for name, _ in pairs)
    twice = [f"{name!r:.200} is given twice" for name, count in counts.items() if count > 1]
    if twice:
        raise _TwiceError(f"expected each tensor once: {_listed(twice)}")
    return dict(pairs)


def _clashes(names: NameMap) -> Iterator[str]:
    """Say which of the candidate's tensors would stand for several of the reference's."""
    users: dict[str, list[str]] = {}
    for name, item in names.items():
        users.setdefault(item.candidate, []).append(name)
    for candidate, found in users.items():
        parts = {names[name].parts for name in found}
        if len(found) > 1 and (len(parts) > 1 or () in parts):
            yield (
                f"{candidate!r:.200} is named for {found[0]:.200} and for {found[1]:.200}: a "
                "tensor of the candidate has one counterpart, or is a fused one of the same parts "
                "for each"
            )


def _counterpart(path: Path, name: str, item: object) -> Counterpart:
    if isinstance(item, str):
        return Counterpart(candidate=item)
    if isinstance(item, dict) and set(item) == {"fused", "parts"}:
        fused, parts = item["fused"], item["parts"]
        texts = isinstance(parts, list) and all(isinstance(part, str) for part in parts)
        once = texts and len(set(parts)) == len(parts)
        if isinstance(fused, str) and once and name in parts:
            return Counterpart(candidate=fused, parts=tuple(parts))
    raise CorruptFileError(
        f"{path}: {name!r:.80}: expected a candidate's tensor, or an object of fused and parts, "
        "with this tensor among the parts and each part once"
    )


def map_of(pairing: Pairing) -> dict[str, Any]:
    """Return a pairing as the content of a map: each tensor once, whatever the step.

    Sums of two of the candidate's tensors, and fused tensors of the reference, are left out: a map
    has no words for them, and they are found again where it names neither side.
    """
    found: dict[str, Any] = {}
    for pair in pairing.pairs:
        of_reference = pair.fused is not None and not pair.fused.fused_is_candidate
        if pair.addend is not None or of_reference:
            continue
        value: Any = pair.candidate.name
        if pair.fused is not None and pair.fused.fused_is_candidate:
            parts = [part.name for part in pair.fused.parts if part is not None]
            value = {"fused": pair.candidate.name, "parts": parts}
        found.setdefault(pair.reference.name, value)
    return found


def with_map(
    pairing: Pairing,
    names: NameMap,
    reference: Sequence[TensorEntry],
    candidate: Sequence[TensorEntry],
) -> Pairing:
    """Let a map's pairs replace those that were found.

    Args:
        pairing: as found.
        names: the map.
        reference: all of the reference's tensors.
        candidate: all of the candidate's tensors.

    Raises:
        BadInputError: the map names tensors that do not exist, of which the nearest ones are
            named, or one of the candidate's for several of the reference's.
    """
    if not names:
        return pairing
    clashes = list(_clashes(names))
    if clashes:
        raise BadInputError(f"the map: {_listed(clashes)}")
    mine, theirs = entries_by_name(reference), entries_by_name(candidate)
    _check(names, mine, theirs)
    added = tuple(_pairs(names, mine, theirs))
    taken = set(names)
    wholes = {item.candidate for item in names.values() if not item.parts}
    kept = tuple(
        pair
        for pair in pairing.pairs
        if pair.reference.name not in taken and pair.candidate.name not in wholes
    )
    used = {_place(entry) for pair in (*kept, *added) for entry in (pair.reference, pair.candidate)}
    return Pairing(
        pairs=(*kept, *added),
        unpaired=tuple(item for item in pairing.unpaired if _place(item.entry) not in used),
    )


def _place(entry: TensorEntry) -> tuple[str, str, int, int | None]:
    """Return what tells one entry of two dumps from all others."""
    return str(entry.path), entry.name, entry.step, entry.rank


Places = dict[tuple[int | None, int], TensorEntry]


def entries_by_name(entries: Sequence[TensorEntry]) -> dict[str, Places]:
    """Return each tensor's entries by rank and step."""
    found: dict[str, Places] = {}
    for entry in entries:
        found.setdefault(entry.name, {})[entry.rank, entry.step] = entry
    return found


def _check(names: NameMap, mine: Mapping[str, Places], theirs: Mapping[str, Places]) -> None:
    unknown: list[tuple[str, str, Mapping[str, Places]]] = []
    for name, item in names.items():
        unknown += [("reference", part, mine) for part in (name, *item.parts) if part not in mine]
        if item.candidate not in theirs:
            unknown.append(("candidate", item.candidate, theirs))
    if unknown:
        shown = [
            f"the {side} has no {_with_nearest(name, known)}"
            for side, name, known in unknown[:_SHOWN]
        ]
        raise BadInputError(
            f"the map names tensors that do not exist: {_listed(shown, len(unknown))}"
        )


def _listed(problems: Sequence[str], count: int | None = None) -> str:
    """Join the first problems, and count the others."""
    more = (len(problems) if count is None else count) - _SHOWN
    return "; ".join(problems[:_SHOWN]) + (f"; and {more} more" if more > 0 else "")


def _with_nearest(name: str, known: Mapping[str, Places]) -> str:
    near = difflib.get_close_matches(name[:_LONGEST_NAME], known, n=1)
    shown = f"{name:.{_LONGEST_NAME}}"
    return f"{shown} (nearest: {near[0]:.{_LONGEST_NAME}})" if near else shown


def _pairs(
    names: NameMap, mine: Mapping[str, Places], theirs: Mapping[str, Places]
) -> Iterator[PlannedPair]:
    for name, item in names.items():
        for place, candidate in theirs[item.candidate].items():
            reference = mine[name].get(place)
            if reference is None:
                continue
            fused = None
            if item.parts:
                fused = FusedPart(
                    position=item.parts.index(name),
                    parts=tuple(mine[part].get(place) for part in item.parts),
                    fused_is_candidate=True,
                )
            yield PlannedPair(
                reference=reference, candidate=candidate, reason="given by the map", fused=fused
            )
