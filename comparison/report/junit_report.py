"""A report as JUnit XML, as CI services read it: a test case a pair, and one for the verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from xml.etree import ElementTree

from comparison.report.figures import figure
from comparison.report.names import printable
from comparison.report.report_model import Report, ReportRow, RowKind, Tone

_VERDICT = "verdict"


def reports_to_junit(reports: Sequence[Report]) -> str:
    """Write a suite for each report: the verdict first, then the rows in order.

    A pair that is guilty, differs, or could not be compared is a failure, but for a difference
    that the verdict clears: one that is harmless, or all where the sides agree. A tensor without
    counterpart is skipped, with the reason. The verdict fails unless the sides agree or were only
    measured, so that a report of a model that is wrong is red even where no tolerance judges
    single pairs.
    """
    suites = ElementTree.Element("testsuites", _counts([]))
    every = []
    for report in reports:
        agree = report.tone is Tone.GOOD
        cases = [_verdict_case(report), *(_case(row, agree=agree) for row in report.rows)]
        every += cases
        name = printable(f"{report.candidate.name} against {report.reference.name}")
        suite = ElementTree.SubElement(suites, "testsuite", {"name": name, **_counts(cases)})
        suite.extend(cases)
    suites.attrib.update(_counts(every))
    ElementTree.indent(suites)
    body = ElementTree.tostring(suites, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{body}\n'


def _counts(cases: Sequence[ElementTree.Element]) -> dict[str, str]:
    kinds = Counter(child.tag for case in cases for child in case)
    counts = {"tests": len(cases), "failures": kinds["failure"], "skipped": kinds["skipped"]}
    return {**{name: str(count) for name, count in counts.items()}, "errors": "0"}


def _verdict_case(report: Report) -> ElementTree.Element:
    case = ElementTree.Element("testcase", {"classname": _VERDICT, "name": _VERDICT})
    if report.tone in (Tone.BAD, Tone.UNSURE):
        said = {"message": printable(report.sentence), "type": report.verdict}
        failure = ElementTree.SubElement(case, "failure", said)
        lines = [line for paragraph in report.evidence for line in paragraph]
        failure.text = "\n".join(map(printable, lines))
    return case


def _case(row: ReportRow, *, agree: bool) -> ElementTree.Element:
    names = {"classname": printable(row.module or "(no module)"), "name": printable(row.id)}
    case = ElementTree.Element("testcase", names)
    if row.kind is RowKind.PAIR and _has_failed(row, agree=agree):
        said = {"message": printable(_message(row)), "type": _said(row)}
        failure = ElementTree.SubElement(case, "failure", said)
        failure.text = printable("; ".join((*row.outcome, *row.guilty)))
    elif row.kind is RowKind.UNREADABLE:
        said = {"message": printable(row.reason), "type": str(row.kind)}
        ElementTree.SubElement(case, "failure", said)
    elif row.kind is not RowKind.PAIR:
        ElementTree.SubElement(case, "skipped", {"message": printable(f"{row.kind}: {row.reason}")})
    return case


def _has_failed(row: ReportRow, *, agree: bool) -> bool:
    if row.guilty or row.finding in ("undecided", "not compared"):
        return True
    return row.finding == "differs" and not (agree or row.harmless)


def _said(row: ReportRow) -> str:
    return "guilty" if row.guilty else row.finding


def _message(row: ReportRow) -> str:
    if row.metrics is None:
        return "; ".join(row.outcome) or _said(row)
    metrics = row.metrics
    where = ", ".join(map(str, metrics.absolute.index))
    return (
        f"{_said(row)}: greatest absolute difference {figure(metrics.absolute.value)} at "
        f"[{where}], relative {figure(metrics.relative.value)}, relative L2 "
        f"{figure(metrics.relative_l2)}"
    )
