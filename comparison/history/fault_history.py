"""Which faults are fixed, new, moved or unchanged between two results."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

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
    before, after = list(old.faults), list(new.faults)
    same = list(_matches(before, after, _same_subject))
    elsewhere = list(_matches(before, after, _same_cause_elsewhere))
    gone = [(fault, _is_checked(fault, new)) for fault in before]
    stayed = [pair for pair in same if pair[0].place == pair[1].place]
    return FaultHistory(
        old=old,
        new=new,
        fixed=tuple(fault for fault, checked in gone if checked),
        added=tuple(after),
        moved=(*(pair for pair in same if pair not in stayed), *elsewhere),
        unchanged=tuple(stayed),
        unchecked=tuple(fault for fault, checked in gone if not checked),
        notes=tuple(_notes(old, new)),
    )


def _matches(
    before: list[Fault], after: list[Fault], alike: Callable[[Fault, Fault], bool]
) -> Iterator[tuple[Fault, Fault]]:
    """Take out of both lists what is alike."""
    for fault in list(before):
        found = next((other for other in after if alike(fault, other)), None)
        if found is not None:
            before.remove(fault)
            after.remove(found)
            yield fault, found


def _same_subject(one: Fault, other: Fault) -> bool:
    return (one.candidate, one.subject) == (other.candidate, other.subject)


def _same_cause_elsewhere(one: Fault, other: Fault) -> bool:
    if not one.module or one.cause in ("", UNKNOWN_CAUSE) or one.cause != other.cause:
        return False
    return one.candidate == other.candidate and _anywhere(one.module) == _anywhere(other.module)


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
    if not old.conclusive:
        yield f"{old.path} was inconclusive or cut short: what is new may have been there before"
    if not new.conclusive:
        yield f"{new.path} is inconclusive or cut short: nothing counts as fixed"
    elif new.hides_later:
        yield f"{new.path} was made without a replay: its first fault may hide others"
