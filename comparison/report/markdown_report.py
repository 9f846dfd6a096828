"""A report as Markdown, for the summary of a CI run, and as the annotations of GitHub's."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from comparison.report.figures import figure
from comparison.report.names import printable
from comparison.report.report_model import Report, ReportRow, RowKind, Tone

ROWS_SHOWN = 25
_MARKS = {Tone.GOOD: "✅", Tone.BAD: "❌", Tone.UNSURE: "❔", Tone.NEUTRAL: "📏"}
_SPECIAL = re.compile(r"([\\`*_{}\[\]()<>#+!|~&$@:-]|(?<=[wW]{3})\.)")  # www. becomes a link
_HEADING = (
    "| step | reference | candidate | finding | max abs | relative L2 | times |",
    "|---|---|---|---|---|---|---|",
)


def report_to_markdown(report: Report) -> str:
    """Write the verdict, its evidence, and the rows that matter, at most `ROWS_SHOWN` of them."""
    return "\n".join(_lines(report)) + "\n"


def github_annotations(report: Report) -> Iterator[str]:
    """Yield the workflow command that shows the verdict beside a GitHub run; none if all is well.

    Text of a dump can neither end the command nor begin another.
    """
    kind = {Tone.BAD: "error", Tone.UNSURE: "warning"}.get(report.tone)
    if kind is not None:
        title = f"{report.candidate.name} against {report.reference.name}: {report.verdict}"
        yield f"::{kind} title={_property(title)}::{_data(report.sentence)}"


def rows_that_matter(report: Report) -> list[ReportRow]:
    """Give the rows that are guilty, differ, or could not be compared, in order."""
    return [
        row
        for row in report.rows
        if row.guilty
        or row.kind is RowKind.UNREADABLE
        or (row.kind is RowKind.PAIR and row.finding in ("differs", "undecided", "not compared"))
    ]


def _lines(report: Report) -> Iterator[str]:
    yield f"## {_MARKS[report.tone]} {_plain(report.verdict)}"
    yield ""
    yield f"**{_plain(report.sentence)}**"
    rows = rows_that_matter(report)
    if rows:
        yield ""
        yield from _table(rows)
    for paragraph in report.evidence:
        yield ""
        yield from _quoted(paragraph)
    for note in report.notes:
        yield ""
        yield f"Note: {_plain(note)}"


def _table(rows: Sequence[ReportRow]) -> Iterator[str]:
    yield from _HEADING
    for row in rows[:ROWS_SHOWN]:
        metrics = row.metrics
        cells = (
            str(row.step),
            _plain(row.reference or ""),
            _plain(row.candidate or ""),
            "guilty" if row.guilty else _plain(row.finding),
            "" if metrics is None else figure(metrics.absolute.value),
            "" if metrics is None else figure(metrics.relative_l2),
            figure(row.severity),
        )
        yield f"| {' | '.join(cells)} |"
    if len(rows) > ROWS_SHOWN:
        yield ""
        yield f"{len(rows) - ROWS_SHOWN} more of these rows are not shown."


def _quoted(lines: Sequence[str]) -> Iterator[str]:
    """Show lines as they are; no text in them can end the block."""
    text = [printable(line) for line in lines]
    longest = max((len(run) for line in text for run in re.findall("`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    yield f"{fence}text"
    yield from text
    yield fence


def _plain(text: str) -> str:
    """Escape what Markdown or HTML would read as more than text."""
    return _SPECIAL.sub(r"\\\1", printable(text))


def _data(text: str) -> str:
    return printable(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
