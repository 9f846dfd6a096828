"""A comparison of traces as one page of HTML that needs nothing else."""

from collections.abc import Iterator
from html import escape

from comparison.report.names import printable
from comparison.report.trace_text import LEGEND, both_paths, found_lines, mark, numbered_name
from comparison.schema.trace_comparison import CallVerdict, ComparedCall, TraceComparison

_STYLE = """
body { font: 14px/1.4 system-ui, sans-serif; margin: 1.5em; }
.trees { display: grid; grid-template-columns: 1fr 1fr; gap: 2em; }
.trees > section { overflow-x: auto; }
details, .call { margin-left: 1.1em; white-space: nowrap; }
.equal { color: #1a6b35; }
.differs, .reference-only, .candidate-only { color: #a40000; font-weight: 600; }
.absent, .not-compared { color: #666; }
.inside { color: #8a5200; }
.what { margin-left: 2.2em; font: 12px/1.4 ui-monospace, monospace; color: #a40000; }
"""
# Nothing of a trace can run or be fetched, whatever its names are.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def trace_page(comparison: TraceComparison) -> str:
    """Write the page: what was found, then both trees, open where they differ."""
    return "\n".join(_page_lines(comparison)) + "\n"


def _page_lines(comparison: TraceComparison) -> Iterator[str]:
    yield '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">'
    yield f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
    yield f"<title>compare_traces</title>\n<style>{_STYLE}</style>\n</head>\n<body>"
    yield "<h1>compare_traces</h1>"
    for line in (*comparison.notes, *found_lines(comparison)):
        yield f"<p>{_text(line)}</p>"
    yield f"<p>{_text(LEGEND)}</p>"
    yield '<div class="trees">'
    for title, path, is_reference in (
        ("Reference", comparison.reference, True),
        ("Candidate", comparison.candidate, False),
    ):
        yield f"<section><h2>{title}: {_text(path)}</h2>"
        yield from _call_lines(comparison.root, "", is_reference=is_reference)
        yield "</section>"
    yield "</div>\n</body>\n</html>"


def _call_lines(call: ComparedCall, around: str, *, is_reference: bool) -> Iterator[str]:
    path = call.reference if is_reference else call.candidate
    shown = both_paths(call)[not is_reference]
    name = numbered_name(shown, call, around)
    label = f"{mark(call)} {name}" if path is not None else f"{mark(call)} ({name} is not here)"
    css = _css(call)
    if not call.children:
        yield f'<div class="call {css}">{_text(label)}</div>'
        yield from _difference_lines(call)
        return
    is_open = " open" if call.has_difference else ""
    yield f'<details{is_open}><summary class="{css}">{_text(label)}</summary>'
    yield from _difference_lines(call)
    for child in call.children:
        yield from _call_lines(child, shown, is_reference=is_reference)
    yield "</details>"


def _difference_lines(call: ComparedCall) -> Iterator[str]:
    for difference in call.differences:
        yield f'<div class="what">{_text(f"{difference.name}: {difference.what}")}</div>'


def _css(call: ComparedCall) -> str:
    inside = call.has_difference and not call.differences
    if inside and call.verdict is not CallVerdict.ABSENT:
        return "inside"
    return call.verdict.value.replace(" ", "-")


def _text(text: str) -> str:
    return escape(printable(text), quote=True)
