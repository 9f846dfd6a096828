"""What became of faults, as text."""

from __future__ import annotations

from collections.abc import Iterator

from comparison.report.names import printable
from comparison.schema.fault_history import Fault, FaultHistory


def history_lines(history: FaultHistory) -> Iterator[str]:
    """Write the verdict of both results, then each fault under what became of it."""
    yield _summary(history)
    yield printable(f"Verdict: {history.old.verdict}, then {history.new.verdict}")
    for title, faults in (
        ("New", history.added),
        ("Fixed", history.fixed),
        ("Not checked again", history.unchecked),
    ):
        yield from _group(title, [_shown(fault) for fault in faults])
    yield from _group("Moved", [_both(before, now) for before, now in history.moved])
    yield from _group("Unchanged", [_both(before, now) for before, now in history.unchanged])
    for note in history.notes:
        yield f"note: {printable(note)}"


def _summary(history: FaultHistory) -> str:
    counts = (
        (len(history.added), "new"),
        (len(history.moved), "moved"),
        (len(history.fixed), "fixed"),
        (len(history.unchanged), "unchanged"),
        (len(history.unchecked), "not checked again"),
    )
    told = [f"{count} {what}" for count, what in counts if count]
    return f"Faults: {', '.join(told) or 'none in either result'}"


def _group(title: str, lines: list[str]) -> Iterator[str]:
    if lines:
        yield ""
        yield f"{title}:"
        yield from (f"  {line}" for line in lines)


def _shown(fault: Fault) -> str:
    told = [fault.place, f"cause {fault.cause}" if fault.cause else "", fault.evidence]
    where = f"{fault.candidate}: {fault.subject}" if fault.candidate else fault.subject
    return printable(f"{where}: {', '.join(filter(None, told))}")


def _both(before: Fault, now: Fault) -> str:
    changes = []
    if before.subject != now.subject:
        changes.append(f"was in {before.subject}")
    elif before.place != now.place:
        changes.append(f"was at {before.place}")
    if before.cause != now.cause:
        changes.append(f"the cause was said to be {before.cause or 'not sought'}")
    if before.evidence != now.evidence:
        changes.append(f"was {before.evidence}")
    return _shown(now) + (f" ({printable('; '.join(changes))})" if changes else "")
