"""The accuracy of a model as something that passes or fails: for CI targets and test code."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from comparison.pipeline import CompareOptions, compare
from comparison.report.diagnosis_json import diagnosis_to_json
from comparison.report.diagnosis_text import diagnosis_lines
from comparison.report.html.page import report_page
from comparison.report.report_model import Report
from comparison.report.text import comparison_lines, summary_lines
from comparison.schema.comparison import Comparison
from comparison.schema.diagnosis import Diagnosis, Judgement
from comparison.schema.tolerance import Tolerance
from comparison.store.atomic_file import write_text
from comparison.store.dump import Dump, open_dump
from diagnosis.diagnosis_report import report_of
from diagnosis.diff_models import diff_sides
from diagnosis.diff_options import DiffOptions
from diagnosis.kept_options import run_as_kept
from diagnosis.side_runs import RunOptions, run_side
from diagnosis.sides import DumpSide, EngineSide, SideSpec
from diagnosis.two_dumps import diagnose_dumps

TEXT_REPORT = "verdict.txt"
JSON_REPORT = "verdict.json"
COMPARISON_REPORT = "comparison.txt"
PAGE = "report.html"


@dataclass(frozen=True, slots=True, kw_only=True)
class AccuracyCheck:
    """What is to agree with what.

    Attributes:
        reference: an engine, or a dump that was kept: then no reference is loaded.
        candidate: the engine in question.
        run: how the sides are run.
        tolerance: differences that are accepted though rounding does not explain them.
    """

    reference: SideSpec
    candidate: EngineSide
    run: RunOptions = field(default_factory=RunOptions)
    tolerance: Tolerance | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AccuracyResult:
    """How a check ended.

    Attributes:
        diagnosis: the verdict.
        comparison: all pairs by the tolerance; None where there is none, or no need to look.
        report: what the page shows; None where the sides agree.
    """

    diagnosis: Diagnosis
    comparison: Comparison | None = None
    report: Report | None = None

    @property
    def exit_code(self) -> int:
        """The verdict's, unless the tolerance allows all that differs."""
        if self.is_tolerated:
            return 0
        return self.diagnosis.exit_code

    @property
    def is_tolerated(self) -> bool:
        """Whether the sides diverge by no more than the tolerance allows.

        That they were given unlike inputs, such as token ids, no tolerance allows.
        """
        return (
            self.diagnosis.verdict is Judgement.DIVERGE
            and not any(difference.decisive for difference in self.diagnosis.inputs)
            and self.comparison is not None
            and self.comparison.exit_code == 0
        )

    @property
    def sentence(self) -> str:
        """The verdict in one sentence, and whether it is accepted."""
        if not self.is_tolerated:
            return self.diagnosis.sentence
        return f"Accepted, since every pair is within the tolerance: {self.diagnosis.sentence}"

    def lines(self) -> Iterator[str]:
        """Give the verdict with its evidence as text."""
        if self.is_tolerated:
            yield "Every pair is within the tolerance, so this verdict is accepted:"
            yield ""
        yield from diagnosis_lines(self.diagnosis)
        if self.comparison is not None and not self.is_tolerated:
            yield ""
            yield f"By the tolerance ({COMPARISON_REPORT} has all pairs):"
            yield from (f"  {line}" for line in summary_lines(self.comparison))


def check_accuracy(check: AccuracyCheck, folder: Path) -> AccuracyResult:
    """Run what has to be run, and judge.

    Args:
        check: what is to agree with what.
        folder: new folder for the dumps.

    Raises:
        BadInputError: a side cannot be read, or nothing can be compared.
        EngineError: an engine cannot run a side.
    """
    if isinstance(check.reference, DumpSide):
        right = open_dump(check.reference.path)
        run = run_as_kept(check.run, right)
        wrong = run_side(check.candidate, folder / "candidate", run).dump
        found, dumps = _against_kept(right, wrong), (right.path, wrong.path)
    else:
        options = DiffOptions(run=check.run, output=folder)
        found = diff_sides(check.reference, [check.candidate], options)
        dumps = (folder / "reference", folder / "candidate")
    if found.verdict is not Judgement.DIVERGE or not all(path.exists() for path in dumps):
        return AccuracyResult(diagnosis=found)
    compared = None
    if check.tolerance is not None:
        compared = compare(*dumps, CompareOptions(tolerance=check.tolerance))
    report = report_of(open_dump(dumps[0]), open_dump(dumps[1]), found)
    return AccuracyResult(diagnosis=found, comparison=compared, report=report)


def write_reports(result: AccuracyResult, folder: Path) -> None:
    """Write the verdict, and the comparison and a page where they were made.

    Args:
        result: of a check.
        folder: where to; it is made.
    """
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / TEXT_REPORT, "\n".join(result.lines()) + "\n")
    write_text(folder / JSON_REPORT, diagnosis_to_json(result.diagnosis))
    if result.comparison is not None:
        lines = comparison_lines(result.comparison)
        write_text(folder / COMPARISON_REPORT, "\n".join(lines) + "\n")
    if result.report is not None:
        write_text(folder / PAGE, report_page([result.report]))


def _against_kept(right: Dump, wrong: Dump) -> Diagnosis:
    found = diagnose_dumps(right, wrong)
    if found.verdict is not Judgement.DIVERGE:
        return found
    advice = "give the test an engine as its reference to learn which module is wrong, and why"
    return replace(found, notes=(*found.notes, advice))
