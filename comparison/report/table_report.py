"""A report as a table for a terminal: in order of execution, folding what agrees."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from comparison.report.figures import figure
from comparison.report.markdown_report import rows_that_matter
from comparison.report.names import printable
from comparison.report.report_model import Report, ReportRow, RowKind

if TYPE_CHECKING:
    from rich.table import Table

FIRST_MARK = "▶"
_STYLES = {"differs": "red", "not compared": "yellow", "unpaired": "dim"}


def report_to_table(report: Report, *, width: int, is_terminal: bool, color: bool) -> str:
    """Draw the rows; neighbours that agree, or that have no counterpart, are one line each.

    Args:
        report: what to show.
        width: columns of the terminal.
        is_terminal: whether lines are drawn and text is cut to the width; else each row is a plain
            line of its own length, for files and other programs.
        color: whether to colour.
    """
    from rich.console import Console

    text = io.StringIO()
    console = Console(
        file=text,
        width=width if is_terminal else _WIDE,
        force_terminal=is_terminal,
        color_system="standard" if color and is_terminal else None,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
    )
    console.print(_table(report, width if is_terminal else None))
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines()) + "\n"


_WIDE = 10_000
_FIGURES = ("max abs", "max rel", "rel L2", "cosine", "times")
_OF_NARROW_TERMINALS = (0, 2, 4)  # of the figures
_NARROW = 110
_FIGURE_WIDTH, _FINDING_WIDTH, _GAP, _LEAST_NAME = 10, 14, 2, 12


def _table(report: Report, width: int | None) -> Table:
    """Lay out the rows: for a terminal within its width, else plain."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    shown = _OF_NARROW_TERMINALS if width is not None and width < _NARROW else range(len(_FIGURES))
    table = Table(box=None if width is None else box.SIMPLE_HEAD, pad_edge=False)
    for name, least in (("", 1), ("step", 4), ("reference", _LEAST_NAME), ("candidate", 1)):
        table.add_column(name, no_wrap=True, min_width=least)
    for number in shown:
        table.add_column(
            _FIGURES[number], justify="right", no_wrap=True, min_width=_FIGURE_WIDTH - 1
        )
    table.add_column("finding", overflow="ellipsis", no_wrap=True)
    limit = _WIDE if width is None else _name_width(report, width, len(shown))
    first = next(iter(rows_that_matter(report)), None)
    for cells, row in _cells(report.rows, first):
        mark, step, reference, candidate, *figures, finding = cells
        kept = (figures[number] for number in shown)
        line = (mark, step, _end(reference, limit), _end(candidate, limit), *kept, finding)
        table.add_row(*map(Text, line), style="" if row is None else _style(row))
    return table


def _name_width(report: Report, width: int, figures: int) -> int:
    """Share what the other columns leave of a terminal among the columns of names."""
    two = any(row.candidate not in (row.reference, None) for row in report.rows)
    others = figures * (_FIGURE_WIDTH + _GAP) + _FINDING_WIDTH + 16
    return max(_LEAST_NAME, (width - others) // (2 if two else 1))


def _end(name: str, limit: int) -> str:
    """Cut a name at its begin: what it ends with tells it from others."""
    return name if len(name) <= limit else f"…{name[len(name) - limit + 1 :]}"


def _cells(
    rows: Sequence[ReportRow], first: ReportRow | None
) -> Iterator[tuple[tuple[str, ...], ReportRow | None]]:
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
    said = "guilty" if row.guilty else row.finding
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
