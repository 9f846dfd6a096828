"""A report as a table for a terminal: in order of execution, folding what agrees."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from comparison.report.figures import figure
from comparison.report.markdown_report import rows_that_matter
from comparison.report.names import printable
from comparison.report.report_model import Report, ReportRow, RowKind

if TYPE_CHECKING:
    from rich.table import Table

FIRST_MARK = "▶"
_WIDE = 10_000
_HEADINGS = (
    "", "step", "reference", "candidate", "max abs", "max rel", "rel L2", "cosine", "times",
    "finding",
)  # fmt: skip
_MARK, _STEP, _REFERENCE, _CANDIDATE, _FINDING = 0, 1, 2, 3, 9
_FIGURES = (4, 5, 6, 7, 8)
_OF_NARROW_TERMINALS = (4, 6, 8)  # of the figures
_NARROW = 110
_GAP, _LEAST_NAME, _LEAST_FINDING = 2, 12, 14
_STYLES = {"differs": "red", "not compared": "yellow", "unpaired": "dim"}


def report_to_table(report: Report, *, width: int, is_terminal: bool, color: bool) -> str:
    """Draw the rows; neighbours that agree, or that have no counterpart, are one line each.

    Args:
        report: what to show.
        width: columns of the terminal.
        is_terminal: whether lines are drawn and names are cut to the width; else, and where the
            width has no room for the figures, each row is a plain line of its own length.
        color: whether to colour.
    """
    from rich.console import Console

    layout = _layout(report, width if is_terminal else None)
    text = io.StringIO()
    console = Console(
        file=text,
        width=width if layout.is_drawn else _WIDE,
        force_terminal=is_terminal,
        color_system="standard" if color and is_terminal else None,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
    )
    console.print(_table(layout))
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines()) + "\n"


_ALL = tuple(range(len(_HEADINGS)))
_ONE_NAME = {"reference": "tensor"}
_Line = tuple[tuple[str, ...], ReportRow | None]
_Lines = tuple[_Line, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layout:
    """What the table shows.

    Attributes:
        headings: of all columns.
        lines: cells under all of the headings, cut to their columns, each with its row; None for a
            fold.
        columns: numbers of the headings that are shown.
        is_drawn: whether it keeps to the width of a terminal.
    """

    headings: tuple[str, ...]
    lines: _Lines
    columns: tuple[int, ...]
    is_drawn: bool


def _layout(report: Report, width: int | None) -> _Layout:
    """Share a terminal's width: figures are never cut, so names and words take what they leave.

    Where that is too little for two columns of names there is one; where it is too little for one,
    as without a terminal, each row is a plain line.
    """
    first = next(iter(rows_that_matter(report)), None)
    lines = tuple(_cells(report.rows, first))
    whole = _Layout(headings=_HEADINGS, lines=lines, columns=_ALL, is_drawn=False)
    if width is None:
        return whole
    two = any(row.candidate not in (row.reference, None) for row in report.rows)
    found = _shared(lines, width, is_wide=width >= _NARROW, two=two)
    if found is None and two:
        found = _shared(tuple(map(_in_one, lines)), width, is_wide=False, two=False)
    return found or whole


def _shared(lines: _Lines, width: int, *, is_wide: bool, two: bool) -> _Layout | None:
    names = (_REFERENCE, _CANDIDATE) if two or is_wide else (_REFERENCE,)
    figures = _FIGURES if is_wide else _OF_NARROW_TERMINALS
    columns = (_MARK, _STEP, *names, *figures, _FINDING)
    headings = _HEADINGS if len(names) == 2 else tuple(_ONE_NAME.get(n, n) for n in _HEADINGS)
    widest = [
        max(map(len, column))
        for column in zip(headings, *(cells for cells, _ in lines), strict=True)
    ]
    left = width - sum(widest[number] for number in (_MARK, _STEP, *figures))
    left -= _GAP * (len(columns) - 1) + 1  # a mark that no row has takes a column as well
    equals = widest[_CANDIDATE] if is_wide and not two else 0  # no names, just `=`
    each = (left - _LEAST_FINDING - equals) // (2 if two else 1)
    if each < _LEAST_NAME:
        return None
    finding = left - sum(min(widest[number], each) for number in names)
    cut = tuple((_cut(cells, each, finding), row) for cells, row in lines)
    return _Layout(headings=headings, lines=cut, columns=columns, is_drawn=True)


def _in_one(line: _Line) -> _Line:
    """Put the name of what only the candidate has where the reference's names are."""
    cells, row = line
    shown = list(cells)
    shown[_REFERENCE] = cells[_REFERENCE] or cells[_CANDIDATE]
    return tuple(shown), row


def _cut(cells: tuple[str, ...], name: int, finding: int) -> tuple[str, ...]:
    shown = list(cells)
    for number in (_REFERENCE, _CANDIDATE):
        shown[number] = _end(cells[number], name)
    said = cells[_FINDING]
    shown[_FINDING] = said if len(said) <= finding else f"{said[: finding - 1]}…"
    return tuple(shown)


def _table(layout: _Layout) -> Table:
    """Lay out the rows: for a terminal within its width, else plain."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(
        box=box.SIMPLE_HEAD if layout.is_drawn else None,
        show_edge=False,
        pad_edge=False,
        padding=(0, _GAP - 1, 0, 0) if layout.is_drawn else (0, 1),
    )
    for number in layout.columns:
        table.add_column(
            layout.headings[number], justify="right" if number in _FIGURES else "left", no_wrap=True
        )
    for cells, row in layout.lines:
        kept = (Text(cells[number]) for number in layout.columns)
        table.add_row(*kept, style="" if row is None else _style(row))
    return table


def _end(name: str, limit: int) -> str:
    """Cut a name at its begin: what it ends with tells it from others."""
    return name if len(name) <= limit else f"…{name[len(name) - limit + 1 :]}"


def _cells(rows: Sequence[ReportRow], first: ReportRow | None) -> Iterator[_Line]:
    for fold, group in groupby(rows, key=_fold):
        kept = list(group)
        if fold and len(kept) > 1:
            yield (
                ("", _steps(kept), _span(kept), "", "", "", "", "", "", f"{len(kept)} {fold}"),
                None,
            )
            continue
        for row in kept:
            yield _cells_of(row, FIRST_MARK if row is first else ""), row


def _fold(row: ReportRow) -> str:
    """Say what neighbours are folded under; empty for what is shown by itself."""
    if row.guilty or row.kind is RowKind.UNREADABLE:
        return ""
    if row.kind is RowKind.PAIR:
        return "agree" if row.finding == "agrees" or _is_equal(row) else ""
    return f"in the {str(row.kind).removesuffix(' only')} only"


def _is_equal(row: ReportRow) -> bool:
    return row.finding == "measured" and row.severity == 0


def _steps(rows: Sequence[ReportRow]) -> str:
    first, last = rows[0].step, rows[-1].step
    return str(first) if first == last else f"{first}..{last}"


def _span(rows: Sequence[ReportRow]) -> str:
    first, last = rows[0], rows[-1]
    return printable(f"{first.reference or first.candidate} ... {last.reference or last.candidate}")


def _cells_of(row: ReportRow, mark: str) -> tuple[str, ...]:
    metrics = row.metrics
    figures = (
        ("", "", "", "")
        if metrics is None
        else (
            figure(metrics.absolute.value),
            figure(metrics.relative.value),
            figure(metrics.relative_l2),
            figure(metrics.cosine),
        )
    )
    same = row.reference == row.candidate
    alone = row.finding if row.kind is RowKind.PAIR else str(row.kind)
    said = "guilty" if row.guilty else alone
    return (
        mark,
        str(row.step),
        printable(row.reference or ""),
        "=" if same else printable(row.candidate or ""),
        *figures,
        figure(row.severity),
        printable("; ".join((said, *row.outcome))),
    )


def _style(row: ReportRow) -> str:
    return "bold red" if row.guilty else _STYLES.get(row.finding, "")
