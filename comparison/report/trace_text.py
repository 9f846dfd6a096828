"""A comparison of traces as text: two trees side by side, folded where they are equal."""

from collections.abc import Iterator

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
LEGEND = "= equal  ! differs  < > on one side only  ~ left out of a trace  | calls inside differ"


def trace_lines(comparison: TraceComparison) -> Iterator[str]:
    """Give the lines of both trees, then what was found."""
    yield f"Reference: {printable(comparison.reference)}"
    yield f"Candidate: {printable(comparison.candidate)}"
    yield LEGEND
    yield ""
    yield from _call_lines(comparison.root, ("", ""), 0)
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


def numbered_name(path: str, call: ComparedCall, around: str) -> str:
    """Shorten a module path to what the one around it does not say, with the call's number."""
    number = f"({call.number})" if call.number > 1 else ""
    return (path.removeprefix(f"{around}.") if around else path) + number


def both_paths(call: ComparedCall) -> tuple[str, str]:
    """Give the module path of each side, where one has none that of the other."""
    return call.reference or call.candidate or "", call.candidate or call.reference or ""


def _call_lines(call: ComparedCall, around: tuple[str, str], depth: int) -> Iterator[str]:
    yield _row(call, around, depth)
    indent = "  " * (depth + 2)
    for difference in call.differences:
        yield f"{indent}{printable(difference.name)}: {printable(difference.what)}"
    if call.has_difference and call.verdict not in _LONE:
        for child in call.children:
            yield from _call_lines(child, both_paths(call), depth + 1)


_LONE = (CallVerdict.REFERENCE_ONLY, CallVerdict.CANDIDATE_ONLY)


def _row(call: ComparedCall, around: tuple[str, str], depth: int) -> str:
    indent = "  " * depth
    folded = call.size > 1 and (not call.has_difference or call.verdict in _LONE)
    more = f"  (+{call.size - 1} calls)" if folded else ""
    sides = [
        f"{indent}{printable(numbered_name(path, call, outer))}" if path is not None else ""
        for path, outer in zip((call.reference, call.candidate), around, strict=True)
    ]
    return f"{sides[0]:<{_WIDTH}} {mark(call)} {sides[1]}{more}".rstrip()
