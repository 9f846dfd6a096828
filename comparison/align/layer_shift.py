"""Stacks of layers of which one side has more, so that equal numbers do not mean the same layer."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from comparison.align.fused import FusedPart
from comparison.align.pairing import Pairing, PlannedPair
from comparison.schema.tensor_entry import TensorEntry

_LAYER = re.compile(r"^(?P<stack>.*?\.)(?P<number>[0-9]{1,9})(?P<rest>[.\-(].*)$", re.DOTALL)
Place = tuple[int | None, int, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """One stack of layers, on both sides.

    Attributes:
        reference: what stands before the number in the reference's names.
        candidate: what stands before it in the candidate's.
        reference_layers: number of the reference's layers.
        candidate_layers: number of the candidate's.
    """

    reference: str
    candidate: str
    reference_layers: int
    candidate_layers: int


def uneven_stack(
    pairing: Pairing, reference: Sequence[TensorEntry], candidate: Sequence[TensorEntry]
) -> Stack | None:
    """Find the stack of which both sides have another number of layers, None where there is none.

    Args:
        pairing: by equal numbers.
        reference: all of the reference's tensors.
        candidate: all of the candidate's tensors.
    """
    found: Counter[tuple[str, str]] = Counter()
    for pair in pairing.pairs:
        left, right = _LAYER.match(pair.reference.name), _LAYER.match(pair.candidate.name)
        if left is not None and right is not None:
            found[left["stack"], right["stack"]] += 1
    if not found:
        return None
    (mine, theirs), _ = found.most_common(1)[0]
    counts = _count(mine, reference), _count(theirs, candidate)
    if counts[0] == counts[1] or None in counts:
        return None
    return Stack(
        reference=mine,
        candidate=theirs,
        reference_layers=counts[0] or 0,
        candidate_layers=counts[1] or 0,
    )


def _count(stack: str, entries: Sequence[TensorEntry]) -> int | None:
    """Count layers that are numbered through; None where numbers are left out."""
    numbers = {
        int(match["number"])
        for entry in entries
        if (match := _LAYER.match(entry.name)) is not None and match["stack"] == stack
    }
    return len(numbers) if numbers == set(range(len(numbers))) else None


def shifted_from(stack: Stack, layer: int) -> dict[int, int]:
    """Say which of the candidate's layers are which of the reference's.

    Args:
        stack: the stack.
        layer: the first one that only one side has.
    """
    more = stack.candidate_layers - stack.reference_layers
    if more > 0:
        return {n if n < layer else n + more: n for n in range(stack.reference_layers)}
    return {n: n if n < layer else n - more for n in range(stack.candidate_layers)}


def unmatched_layers(stack: Stack, layer: int) -> str:
    """Say in words which layers have no counterpart."""
    more = stack.candidate_layers - stack.reference_layers
    last = layer + abs(more) - 1
    name = (stack.candidate if more > 0 else stack.reference).rstrip(".")
    which = f"{name}.{layer}" if last == layer else f"{name}.{layer} to {last}"
    end = "" if more > 0 else "'s dump"
    side, other = ("candidate", "reference") if more > 0 else ("reference", "candidate")
    return f"the {side}'s {which} has no counterpart in the {other}{end}"


def shifted(
    pairing: Pairing,
    reference: Sequence[TensorEntry],
    candidate: Sequence[TensorEntry],
    *,
    stack: Stack,
    layers: Mapping[int, int],
) -> Pairing:
    """Pair the layers of a stack otherwise, and leave everything else as it is.

    Args:
        pairing: by equal numbers.
        reference: all of the reference's tensors.
        candidate: all of the candidate's tensors.
        stack: the stack.
        layers: the reference's layer by the candidate's.
    """
    mine, theirs = _by_place(reference), _by_place(candidate)
    inside = [pair for pair in pairing.pairs if _in_stack(pair, stack)]
    kept = [pair for pair in pairing.pairs if not _in_stack(pair, stack)]
    moved: dict[tuple[Place, Place], PlannedPair] = {}
    for pair in inside:
        for number, wanted in layers.items():
            other = _moved(pair, number, wanted, mine, theirs)
            if other is not None:
                moved.setdefault((_place(other.reference), _place(other.candidate)), other)
    pairs = (*kept, *moved.values())
    used = {pair.reference for pair in pairs} | {pair.candidate for pair in pairs}
    return Pairing(
        pairs=tuple(sorted(pairs, key=lambda pair: (pair.reference.step, pair.reference.order))),
        unpaired=tuple(item for item in pairing.unpaired if item.entry not in used),
    )


def _in_stack(pair: PlannedPair, stack: Stack) -> bool:
    left, right = _LAYER.match(pair.reference.name), _LAYER.match(pair.candidate.name)
    return (
        left is not None
        and right is not None
        and (left["stack"], right["stack"]) == (stack.reference, stack.candidate)
    )


def _moved(
    pair: PlannedPair,
    number: int,
    wanted: int,
    mine: Mapping[Place, TensorEntry],
    theirs: Mapping[Place, TensorEntry],
) -> PlannedPair | None:
    reference = _in_layer(pair.reference, wanted, mine)
    candidate = _in_layer(pair.candidate, number, theirs)
    if reference is None or candidate is None:
        return None
    addend = None if pair.addend is None else _in_layer(pair.addend, number, theirs)
    if pair.addend is not None and addend is None:
        return None
    fused = pair.fused
    if fused is not None:
        whose, layer = (mine, wanted) if fused.fused_is_candidate else (theirs, number)
        fused = replace(fused, parts=tuple(_parts(fused, layer, whose)))
    reason = f"{pair.reason}; layer {number} is the reference's {wanted}"
    return PlannedPair(
        reference=reference,
        candidate=candidate,
        reason=pair.reason if number == wanted else reason,
        fused=fused,
        addend=addend,
    )


def _parts(
    fused: FusedPart, layer: int, entries: Mapping[Place, TensorEntry]
) -> Iterator[TensorEntry | None]:
    for part in fused.parts:
        yield None if part is None else _in_layer(part, layer, entries)


def _in_layer(
    entry: TensorEntry, layer: int, entries: Mapping[Place, TensorEntry]
) -> TensorEntry | None:
    match = _LAYER.match(entry.name)
    assert match is not None  # asked for before
    return entries.get((entry.rank, entry.step, f"{match['stack']}{layer}{match['rest']}"))


def _place(entry: TensorEntry) -> Place:
    return entry.rank, entry.step, entry.name


def _by_place(entries: Sequence[TensorEntry]) -> dict[Place, TensorEntry]:
    return {_place(entry): entry for entry in entries}
