"""A few lines of HTML, for results that a notebook shows by themselves."""

import math
from collections.abc import Sequence
from html import escape

_COLORS = {True: "#1a7f37", False: "#cf222e", None: "#9a6700"}


def html_summary(
    verdict: str, sentence: str, *, is_good: bool | None, rows: Sequence[Sequence[object]] = ()
) -> str:
    """Write a verdict with a table below it; all text is escaped.

    Args:
        verdict: one word.
        sentence: the same in one sentence.
        is_good: its colour; None for what is neither good nor bad.
        rows: of the table, the heading first; floats are shown in four digits.
    """
    head = (
        f'<div><b style="color:{_COLORS[is_good]}">{_escaped(verdict)}</b> '
        f"{_escaped(sentence)}</div>"
    )
    if len(rows) < 2:
        return head
    first, *rest = rows
    body = "".join(_row(row, "td") for row in rest)
    return f"{head}<table><thead>{_row(first, 'th')}</thead><tbody>{body}</tbody></table>"


def _row(cells: Sequence[object], tag: str) -> str:
    inside = "".join(f"<{tag}>{_escaped(_text(cell))}</{tag}>" for cell in cells)
    return f"<tr>{inside}</tr>"


def _text(cell: object) -> str:
    if cell is None:
        return ""
    if isinstance(cell, float):
        return f"{cell:.4g}" if math.isfinite(cell) else str(cell)
    return str(cell)


def _escaped(text: str) -> str:
    """Escape a text, and spell out what no notebook can store, or what turns a line around."""
    spelled = (
        part if part.isprintable() else part.encode("unicode_escape").decode() for part in text
    )
    return escape("".join(spelled))
