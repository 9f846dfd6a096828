"""The options that write a result in other forms: one report, several files."""

from __future__ import annotations

import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tools.path_type import PathType

if TYPE_CHECKING:
    from comparison.report.report_model import Report, ReportSide

F = TypeVar("F", bound=Callable[..., Any])


def report_options(command: F) -> F:
    """Add `--html`, `--csv`, `--junit`, `--markdown` and `--table` to a command."""
    for option in (
        click.option("--table", is_flag=True, help="Print a table that folds what agrees."),
        click.option("--markdown", type=PathType(), help="Write a summary for a CI run."),
        click.option("--junit", type=PathType(), help="Write test cases for a CI service."),
        click.option("--csv", type=PathType(), help="Write a line for each pair of tensors."),
        click.option("--html", type=PathType(), help="Write a page that shows it all."),
    ):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportFiles:
    """What a user asked for.

    Attributes:
        html: the page.
        csv: a line a row.
        junit: a test case a row.
        markdown: a summary.
        table: whether a table is printed.
    """

    html: Path | None
    csv: Path | None
    junit: Path | None
    markdown: Path | None
    table: bool

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> ReportFiles:
        """Take them from a command's options."""
        return cls(**{field.name: given[field.name] for field in fields(cls)})

    @property
    def files(self) -> dict[str, Path | None]:
        """The files by the name of their option."""
        names = ("html", "csv", "junit", "markdown")
        return {name: getattr(self, name) for name in names}

    @property
    def is_asked(self) -> bool:
        """Whether a report has to be made."""
        return self.table or self._annotates or any(self.files.values())

    @property
    def _annotates(self) -> bool:
        return os.environ.get("GITHUB_ACTIONS") == "true"

    def write(self, reports: Sequence[Report]) -> None:
        """Write the files, and print the table and GitHub's annotations.

        Args:
            reports: one a candidate; without any nothing is written.

        Raises:
            UnwritableOutputError: a file cannot be written.
        """
        from comparison.report.markdown_report import github_annotations
        from comparison.report.names import printable
        from comparison.store.atomic_file import write_text

        reports = list(_told_apart(_without_gone(report) for report in reports))
        for path, make in self._texts() if reports else ():
            if path is not None:
                write_text(path, make(reports))
        for report in reports:
            if self.table:
                title = f"\n{printable(report.candidate.name)}:" if len(reports) > 1 else ""
                print(f"{title}\n{_table(report)}", end="")
            if self._annotates:
                print(*github_annotations(report), sep="\n")

    def _texts(self) -> Sequence[tuple[Path | None, Callable[[Sequence[Report]], str]]]:
        from comparison.report.csv_report import reports_to_csv
        from comparison.report.html.page import report_page
        from comparison.report.junit_report import reports_to_junit
        from comparison.report.markdown_report import report_to_markdown

        return (
            (self.html, report_page),
            (self.csv, reports_to_csv),
            (self.junit, reports_to_junit),
            (self.markdown, lambda reports: "\n".join(map(report_to_markdown, reports))),
        )


def _table(report: Report) -> str:
    from comparison.report.table_report import report_to_table

    is_terminal = sys.stdout.isatty()
    width = shutil.get_terminal_size().columns  # of COLUMNS, if that is set
    color = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return report_to_table(report, width=width, is_terminal=is_terminal, color=color)


def _told_apart(reports: Iterable[Report]) -> Iterator[Report]:
    """Number all but the first of several candidates with one name."""
    seen: Counter[str] = Counter()
    for report in reports:
        side = report.candidate
        seen[side.name] += 1
        number = seen[side.name]
        name = side.name if number == 1 else f"{side.name} ({number})"
        yield replace(report, candidate=replace(side, name=name))


def _without_gone(report: Report) -> Report:
    """Leave out where a dump lay that is not kept."""

    def kept(side: ReportSide) -> ReportSide:
        is_there = side.path is not None and side.path.exists()
        return side if is_there else replace(side, path=None)

    return replace(report, reference=kept(report.reference), candidate=kept(report.candidate))
