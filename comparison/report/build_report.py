"""From a comparison, and a diagnosis if there is one, to what a report says."""

import math
from collections.abc import Iterable, Iterator, Mapping

from comparison.report.diagnosis_text import diagnosis_lines
from comparison.report.report_model import (
    DepthPoint,
    Report,
    ReportRow,
    ReportSide,
    RowError,
    RowKind,
    Tone,
)
from comparison.report.report_places import first_row_of
from comparison.report.report_rows import Details, replayed, rows_of
from comparison.report.text import side_words, summary_lines
from comparison.schema.comparison import Comparison, DumpSummary, Finding, Verdict
from comparison.schema.diagnosis import Diagnosis, Judgement

_TONES: Mapping[str, Tone] = {
    Verdict.AGREE: Tone.GOOD,
    Verdict.MEASURED: Tone.NEUTRAL,
    Verdict.DIFFER: Tone.BAD,
    Verdict.INCONCLUSIVE: Tone.UNSURE,
    Judgement.DIVERGE: Tone.BAD,
}
_OF_TOLERANCE = "times the tolerance, at the worst element"
_NO_CAUSE = "Cause: unknown"
_OF_ROUNDING = "relative L2 distance, in roundings of the dtype"


def build_report(
    comparison: Comparison,
    *,
    diagnosis: Diagnosis | None = None,
    details: Details | None = None,
) -> Report:
    """Put together what a report says.

    Args:
        comparison: of both dumps.
        diagnosis: of the candidate; None for none, so that the verdict is the comparison's.
        details: of some of the pairs, by `DetailKeeper`.
    """
    rows = tuple(rows_of(comparison, diagnosis, details or {}))
    lines = list(summary_lines(comparison))
    verdict = str(comparison.verdict if diagnosis is None else diagnosis.verdict)
    words = _words(comparison, diagnosis)
    return Report(
        verdict=verdict,
        tone=_TONES[verdict],
        sentence=_sentence(comparison, rows) if diagnosis is None else diagnosis.sentence,
        evidence=tuple(_evidence(diagnosis, lines)),
        reference=_side(words[0], comparison.reference),
        candidate=_side(words[1], comparison.candidate),
        severity_unit=_OF_ROUNDING if comparison.tolerance is None else _OF_TOLERANCE,
        is_judged=comparison.tolerance is not None,
        is_replayed=any(row.error is not None and row.error.excess >= 0 for row in rows),
        rows=rows,
        depth=tuple(_depth(rows, diagnosis)),
        detailed=sum(row.detail is not None for row in rows),
        differing=sum(bool(row.severity) for row in rows),
        notes=_notes(comparison, diagnosis),
    )


def _words(comparison: Comparison, diagnosis: Diagnosis | None) -> tuple[str, str]:
    if diagnosis is None:
        return side_words(comparison)
    return diagnosis.reference_called, diagnosis.candidate_called


def _sentence(comparison: Comparison, rows: tuple[ReportRow, ...]) -> str:
    """Say the verdict of a comparison in one sentence."""
    lines = list(summary_lines(comparison))
    verdict = lines[1].removeprefix("Verdict: ")
    match comparison.verdict:
        case Verdict.MEASURED:
            measured = _measured(rows)
            # What stands behind the verdict in the text: on what it does not rest.
            reserved = verdict.partition("; ")[2]
            return f"{measured} But {reserved}." if reserved else measured
        case Verdict.DIFFER:
            first = lines[2].removeprefix("First ")
            return f"The dumps {verdict}; first {first}."
        case _:
            return f"The dumps {verdict}." if verdict.startswith("agree") else f"{verdict}."


def _measured(rows: tuple[ReportRow, ...]) -> str:
    worst = max(rows, key=lambda row: row.severity or 0.0)
    if not worst.severity:
        return "Every pair is equal in value, in all that was compared."
    furthest = f"furthest apart is {worst.reference} (step {worst.step})"
    if worst.metrics is not None:
        told = f"its relative L2 distance is {worst.metrics.relative_l2:.3g}"
    elif math.isinf(worst.severity):
        return f"Measured without a tolerance; {worst.reference} cannot be measured."
    else:
        told = "sketches give no more than an estimate"
    return f"Measured without a tolerance: {furthest}, by {_distance(worst.severity)}; {told}."


def _distance(severity: float) -> str:
    if math.isinf(severity):
        return "numbers that have to be equal"
    return f"{severity:.3g} roundings of its dtype"


def _evidence(diagnosis: Diagnosis | None, summary: Iterable[str]) -> Iterator[tuple[str, ...]]:
    """Give the paragraphs of the text below the verdict."""
    if diagnosis is None:
        yield tuple(summary)
        return
    paragraph: list[str] = []
    for line in [*list(diagnosis_lines(diagnosis))[2:], ""]:
        if line:
            paragraph.append(line)
        elif paragraph:
            if paragraph != [_NO_CAUSE]:
                yield tuple(paragraph)
            paragraph = []


def _side(word: str, dump: DumpSummary) -> ReportSide:
    notes = dump.notes
    if not dump.complete:
        notes = (*notes, "this dump is partial, so the result is cut short")
    return ReportSide(name=word, path=dump.path, tensors=dump.tensors, notes=notes)


def _depth(rows: tuple[ReportRow, ...], diagnosis: Diagnosis | None) -> Iterator[DepthPoint]:
    """Give the errors over depth: a replay's, else the distances between both sides."""
    growth = replayed(diagnosis)
    row_of = first_row_of([row.reference for row in rows])
    for item in growth:
        error = RowError(inherited=item.inherited, local=item.local, excess=item.excess)
        yield DepthPoint(name=item.tensor, row=row_of.get(item.tensor), error=error)
    if growth:
        return
    for number, row in enumerate(rows):
        if row.kind is RowKind.PAIR and row.metrics is not None:
            error = RowError(inherited=row.metrics.relative_l2, local=math.nan, excess=math.nan)
            yield DepthPoint(name=row.reference or "", row=number, error=error)


def _notes(comparison: Comparison, diagnosis: Diagnosis | None) -> tuple[str, ...]:
    said = () if diagnosis is None else diagnosis.notes
    skipped = sum(pair.finding is Finding.NOT_COMPARED for pair in comparison.pairs)
    own = (f"{skipped} pair(s) could not be compared",) if skipped else ()
    return tuple(dict.fromkeys((*own, *comparison.notes, *said)))
