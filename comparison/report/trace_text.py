"""A comparison of traces as text: two trees side by side, folded where they are equal."""

from collections.abc import Iterator, Sequence

from comparison.report.names import printable
from comparison.schema.trace_comparison import CallVerdict, ComparedCall, TraceComparison

_MARKS = {
    CallVerdict.EQUAL: "=",
    CallVerdict.DIFFERS: "!",
    CallVerdict.NOT_COMPARED: " ",
    CallVerdict.REFERENCE_ONLY: "<",
    CallVerdict.CANDIDATE_ONLY: ">",
    CallVerdict.ABSENT: "~",
}
_WIDTH = 46
_LEGEND = "= equal  ! differs  < > on one side only  ~ left out of a trace  | calls inside differ"


def trace_lines(comparison: TraceComparison) -> Iterator[str]:
    """Give the lines of both trees, then what was found."""
    yield f"Reference: {printable(comparison.reference)}"
    yield f"Candidate: {printable(comparison.candidate)}"
    yield _LEGEND
    yield ""
    yield from _call_lines(comparison.root, "", 0)
    yield ""
    yield from (f"Note: {printable(note)}" for note in comparison.notes)
    yield from found_lines(comparison)


def found_lines(comparison: TraceComparison) -> Iterator[str]:
    """Give the verdict, and where the traces first part."""
    tolerance = comparison.tolerance
    limits = f"rtol={tolerance.rtol:g}, atol={tolerance.atol:g}"
    first = comparison.first
    if first is None:
        yield f"Verdict: agree, all {comparison.compared} values are within {limits}"
        return
    calls = sum(bool(call.differences) for call in comparison.root.walk())
    yield f"Verdict: diverge in {calls} calls, of {comparison.compared} values, with {limits}"
    yield (
        f"First in order of execution: {printable(first.path)}, "
        f"{printable(first.difference.name)}: {printable(first.difference.what)}"
    )
    if first.gap:
        yield f"It lies {first.gap}"
    elif first.difference.is_input:
        behind = "the begin" if first.behind is None else printable(first.behind)
        yield f"Its input differs already: computed between {behind} and it"


def mark(call: ComparedCall) -> str:
    """Give the character for what can be said of a call."""
    inside = call.has_difference and not call.differences
    return "|" if inside and call.verdict is not CallVerdict.ABSENT else _MARKS[call.verdict]


def own_name(path: str, around: str) -> str:
    """Shorten a module path to what the one around it does not say."""
    return path.removeprefix(f"{around}.") if around else path


def _call_lines(call: ComparedCall, around: str, depth: int) -> Iterator[str]:
    yield _row(call, around, depth)
    indent = "  " * (depth + 2)
    for difference in call.differences:
        yield f"{indent}{printable(difference.name)}: {printable(difference.what)}"
    if call.has_difference and call.verdict not in _LONE:
        yield from _children_lines(call.children, call.path, depth + 1)


_LONE = (CallVerdict.REFERENCE_ONLY, CallVerdict.CANDIDATE_ONLY)


def _children_lines(calls: Sequence[ComparedCall], around: str, depth: int) -> Iterator[str]:
    for call in calls:
        yield from _call_lines(call, around, depth)


def _row(call: ComparedCall, around: str, depth: int) -> str:
    indent = "  " * depth
    folded = call.size > 1 and (not call.has_difference or call.verdict in _LONE)
    more = f"  (+{call.size - 1} calls)" if folded else ""
    names = [_side(path, call, around) for path in (call.reference, call.candidate)]
    left = f"{indent}{names[0]}" if call.reference is not None else ""
    right = f"{indent}{names[1]}" if call.candidate is not None else ""
    return f"{left:<{_WIDTH}} {mark(call)} {right}{more}".rstrip()


def _side(path: str | None, call: ComparedCall, around: str) -> str:
    if path is None:
        return ""
    number = f"({call.number})" if call.number > 1 else ""
    return printable(own_name(path, around)) + number
