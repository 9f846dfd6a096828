"""A report as JSON for its page: short, since it may hold thousands of rows."""

import math
from collections.abc import Mapping
from typing import Any

from comparison.report.names import printable
from comparison.report.report_model import Report, ReportRow, ReportSide, RowError, RowMetrics
from comparison.schema.detail import HeatMap, TensorDetail
from comparison.schema.json_values import strict_json_value
from comparison.schema.outcome import Extreme

_FIGURE_DIGITS, _MAP_DIGITS, _POINT_DIGITS = 7, 3, 4
# The fields of a row in the order of its list; what is empty at the end of a list is left out.
ROW_FIELDS = (
    "id", "kind", "reference", "candidate", "module", "leaf", "step", "rank", "finding", "reason",
    "severity", "metrics", "shapes", "dtypes", "error", "outcome", "guilty", "harmless", "detail",
)  # fmt: skip
_SAME = 0  # in place of a candidate's name that is the reference's


def run_data(report: Report) -> dict[str, Any]:
    """Give everything of a report but its details."""
    table = _Table()
    rows = [_trimmed(_row(row, table)) for row in report.rows]
    value = {
        "verdict": report.verdict,
        "tone": str(report.tone),
        "sentence": report.sentence,
        "evidence": report.evidence,
        "sides": [_side(report.reference), _side(report.candidate)],
        "unit": report.severity_unit,
        "judged": report.is_judged,
        "replayed": report.is_replayed,
        "detailed": report.detailed,
        "differing": report.differing,
        "notes": report.notes,
        "fields": ROW_FIELDS,
        "texts": table.texts,
        "rows": rows,
        "depth": [[point.name, point.row, _error(point.error)] for point in report.depth],
    }
    return _shown(value)


def detail_data(detail: TensorDetail) -> dict[str, Any]:
    """Give what is shown of single elements."""
    window, histogram = detail.window, detail.histogram
    value = {
        "shape": detail.shape,
        "axes": detail.axes,
        "center": detail.center,
        "window": {
            "row": window.row_start,
            "column": window.column_start,
            "reference": window.reference,
            "candidate": window.candidate,
        },
        "maps": [_map(item) for item in detail.maps],
        "histogram": {
            "equal": histogram.equal,
            "exponent": histogram.exponent,
            "counts": histogram.counts,
        },
        "scatter": [[_short(part, _POINT_DIGITS) for part in point] for point in detail.scatter],
        "worst": detail.worst,
        "ulp": None
        if detail.ulp is None
        else [detail.ulp.dtype, *map(_figure, (detail.ulp.greatest, detail.ulp.mean))],
    }
    return _shown(value)


class _Table:
    """Texts that many rows share, each written once."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._numbers: dict[str, int] = {}

    def number(self, text: str) -> int:
        if text not in self._numbers:
            self._numbers[text] = len(self.texts)
            self.texts.append(text)
        return self._numbers[text]


def _row(row: ReportRow, table: _Table) -> list[Any]:
    candidate = _SAME if row.reference == row.candidate else row.candidate
    return [
        row.id,
        str(row.kind),
        row.reference,
        candidate,
        table.number(row.module),
        table.number(row.leaf),
        row.step,
        row.rank,
        table.number(row.finding),
        table.number(row.reason),
        None if row.severity is None else _figure(row.severity),
        None if row.metrics is None else _metrics(row.metrics),
        row.shapes if any(shape is not None for shape in row.shapes) else None,
        None if row.dtypes is None else [table.number(name) for name in row.dtypes],
        None if row.error is None else _error(row.error),
        [table.number(text) for text in row.outcome] or None,
        row.guilty or None,
        row.harmless or None,
        1 if row.detail is not None else None,
    ]


def _trimmed(values: list[Any]) -> list[Any]:
    while values and values[-1] is None:
        values.pop()
    return values


def _metrics(metrics: RowMetrics) -> list[Any]:
    return [
        metrics.elements,
        _extreme(metrics.absolute, metrics.absolute_allowed),
        _extreme(metrics.relative, metrics.relative_allowed),
        _figure(metrics.mean_absolute),
        _figure(metrics.relative_l2),
        _short(metrics.cosine, 10),
        _short(metrics.snr_db, 4),
        metrics.mismatched or None,
    ]


def _extreme(extreme: Extreme, allowed: float | None) -> list[Any]:
    sides = [
        str(value) if isinstance(value, complex | int) else _short(value, 9)
        for value in (extreme.reference, extreme.candidate)
    ]
    known = None if allowed is None else _figure(allowed)
    return [_figure(extreme.value), extreme.index, *sides, known]


def _error(error: RowError) -> list[Any]:
    """Give inherited, local, its excess, and rounding; None for what is not known."""
    parts = (error.inherited, error.local, error.excess, error.rounding)
    return [None if math.isnan(part) else _short(part, 4) for part in parts]


def _side(side: ReportSide) -> dict[str, Any]:
    return {
        "name": side.name,
        "path": "" if side.path is None else str(side.path),
        "tensors": side.tensors,
        "notes": side.notes,
    }


def _map(item: HeatMap) -> dict[str, Any]:
    return {
        "rows": item.rows,
        "columns": item.columns,
        "rowSize": item.row_size,
        "columnSize": item.column_size,
        "values": [[_short(value, _MAP_DIGITS) for value in row] for row in item.values],
    }


def _figure(value: int | float) -> int | float | str:
    # A browser reads numbers as doubles: larger integers stay exact as text.
    if isinstance(value, int):
        return value if abs(value) <= 2**53 else str(value)
    return _short(value, _FIGURE_DIGITS)


def _short(value: float, digits: int) -> float | int:
    """Round to significant digits, and leave out the point of whole numbers."""
    if not math.isfinite(value):
        return value
    rounded = float(f"{value:.{digits}g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded


def _shown(value: dict[str, Any]) -> dict[str, Any]:
    """Spell what JSON lacks, and what must not steer a page, at any depth."""
    shown: dict[str, Any] = _printable(strict_json_value(value))
    return shown


def _printable(value: Any) -> Any:
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, Mapping):
        return {key: _printable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_printable(item) for item in value]
    return value
