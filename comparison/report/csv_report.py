"""A report as CSV: a line for each pair and for each tensor that is left over."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence

from comparison.report.names import printable
from comparison.report.report_model import Report, ReportRow
from comparison.schema.outcome import Shape

COLUMNS = (
    "side", "step", "rank", "kind", "finding", "module", "reference", "candidate",
    "reference_dtype", "candidate_dtype", "reference_shape", "candidate_shape", "elements",
    "max_abs", "max_rel",
    "mean_abs", "relative_l2", "cosine", "snr_db", "mismatched", "severity", "inherited_error",
    "local_error", "times_rounding", "guilty", "reason",
)  # fmt: skip
_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what spreadsheets take for the begin of a formula


def reports_to_csv(reports: Sequence[Report]) -> str:
    """Write all rows in the order of the reports, under `COLUMNS`; `side` names the candidate.

    Numbers are written in full (`repr`), infinities as `inf`; what is not known is empty. Text that
    a spreadsheet would take for a formula begins with an apostrophe.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for report in reports:
        for row in report.rows:
            writer.writerow(map(_cell, (report.candidate.name, *_values(row))))
    return text.getvalue()


def _values(row: ReportRow) -> Iterator[object]:
    finding = "guilty" if row.guilty else row.finding
    yield from (row.step, row.rank, str(row.kind), finding, row.module)
    yield from (row.reference, row.candidate)
    yield from row.dtypes or (None, None)
    yield from map(_shape, row.shapes)
    metrics = row.metrics
    if metrics is None:
        yield from [None] * 8
    else:
        yield from (metrics.elements, metrics.absolute.value, metrics.relative.value)
        yield from (metrics.mean_absolute, metrics.relative_l2, metrics.cosine, metrics.snr_db)
        yield metrics.mismatched or None
    yield row.severity
    error = row.error
    yield from (None,) * 3 if error is None else (error.inherited, error.local, error.excess)
    yield "; ".join(row.guilty) or None
    yield "; ".join((row.reason, *row.outcome)) or None


def _shape(shape: Shape | None) -> str | None:
    if shape is None:
        return None
    return "x".join(map(str, shape)) if shape else "scalar"  # empty is what is not known


def _cell(value: object) -> object:
    if not isinstance(value, str):
        return "" if value is None else repr(value)
    shown = printable(value)
    return f"'{shown}" if shown.startswith(_FORMULA) else shown
