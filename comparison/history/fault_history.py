"""Which faults are fixed, new, moved or unchanged between two results."""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import replace

from comparison.schema.errors import BadInputError
from comparison.schema.fault_history import UNKNOWN_CAUSE, Fault, FaultHistory, SavedResult

_NUMBER = re.compile(r"\d+")


def fault_history(old: SavedResult, new: SavedResult) -> FaultHistory:
    """Hold two results against each other.

    A fault is the same where module, or of a comparison tensor and step, are the same. One that is
    gone from there has moved where the later result has the same cause in the same module of
    another layer.

    Args:
        old: the earlier one.
        new: the later one.

    Raises:
        BadInputError: they are of different commands.
    """
    if old.kind is not new.kind:
        raise BadInputError(
            f"{old.path} is a {old.kind} and {new.path} a {new.kind}: expected two of one command"
        )
    old, new = _named_beside(old, new), _named_beside(new, old)
    before, after = list(old.faults), list(new.faults)
    same = list(_matches(before, after, _subject))
    elsewhere = list(_matches(before, after, _cause_anywhere))
    gone = [(fault, _is_checked(fault, new)) for fault in before]
    stayed = tuple(pair for pair in same if pair[0].place == pair[1].place)
    displaced = (pair for pair in same if pair[0].place != pair[1].place)
    return FaultHistory(
        old=old,
        new=new,
        fixed=tuple(fault for fault, checked in gone if checked),
        added=tuple(after),
        moved=(*displaced, *elsewhere),
        unchanged=stayed,
        unchecked=tuple(fault for fault, checked in gone if not checked),
        notes=tuple(_notes(old, new)),
    )


def _named_beside(result: SavedResult, other: SavedResult) -> SavedResult:
    """Name the one candidate of a result as the other one, which has several, names it."""
    if len(result.candidates) != 1 or len(other.candidates) < 2:
        return result
    (name,) = result.candidates
    return replace(
        result,
        faults=tuple(replace(fault, candidate=name) for fault in result.faults),
        checked=frozenset((name, tensor) for _, tensor in result.checked),
    )


def _matches(
    before: list[Fault], after: list[Fault], key: Callable[[Fault], tuple[str, ...] | None]
) -> Iterator[tuple[Fault, Fault]]:
    """Take out of both lists what has one key, each in order; None is like nothing."""
    waiting: defaultdict[tuple[str, ...], deque[int]] = defaultdict(deque)
    for number, fault in enumerate(after):
        found = key(fault)
        if found is not None:
            waiting[found].append(number)
    left, taken = [], set()
    for fault in before:
        found = key(fault)
        same = waiting.get(found) if found is not None else None
        if not same:
            left.append(fault)
            continue
        taken.add(same[0])
        yield fault, after[same.popleft()]
    before[:] = left
    after[:] = [fault for number, fault in enumerate(after) if number not in taken]


def _subject(fault: Fault) -> tuple[str, ...]:
    return fault.candidate, fault.subject


def _cause_anywhere(fault: Fault) -> tuple[str, ...] | None:
    if not fault.module or fault.cause in ("", UNKNOWN_CAUSE):
        return None
    return fault.candidate, fault.cause, _anywhere(fault.module)


def _anywhere(module: str) -> str:
    return _NUMBER.sub("*", module)


def _is_checked(fault: Fault, new: SavedResult) -> bool:
    """Tell whether a fault's place was judged again and nothing in front of it hides it."""
    if not new.conclusive or new.hides_later:
        return False
    return not fault.tensor or (fault.candidate, fault.tensor) in new.checked


def _notes(old: SavedResult, new: SavedResult) -> Iterator[str]:
    if old.tolerance != new.tolerance:
        yield f"the tolerances differ: {old.tolerance}; then {new.tolerance}"
    gone = sorted({*old.candidates} - {*new.candidates})
    if gone and max(len(old.candidates), len(new.candidates)) > 1:
        yield f"{new.path} has no candidate {', '.join(gone)}"
    if not old.conclusive:
        yield f"{old.path} was inconclusive or cut short: what is new may have been there before"
    if not new.conclusive:
        yield f"{new.path} is inconclusive or cut short: nothing counts as fixed"
    elif new.hides_later:
        yield f"{new.path} was made without a replay: its first fault may hide others"
