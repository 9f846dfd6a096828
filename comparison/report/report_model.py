"""What a report says, before it is written as a page or in another form: one set of numbers."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from comparison.schema.detail import TensorDetail
from comparison.schema.outcome import Extreme, Shape


class Tone(StrEnum):
    """How a verdict reads."""

    GOOD = "good"
    BAD = "bad"
    UNSURE = "unsure"
    NEUTRAL = "neutral"


class RowKind(StrEnum):
    """What a row of a report is."""

    PAIR = "pair"
    REFERENCE_ONLY = "reference only"
    CANDIDATE_ONLY = "candidate only"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True, kw_only=True)
class RowMetrics:
    """The figures of one pair.

    Attributes:
        elements: number of elements that they rest on.
        absolute: the greatest absolute difference.
        absolute_allowed: what the tolerance grants there; None without one.
        relative: the greatest relative difference.
        relative_allowed: what the tolerance grants there, relative as well; None without one.
        mean_absolute: as in Metrics.
        relative_l2: as in Metrics.
        cosine: as in Metrics.
        snr_db: signal to noise, -20 log10 of the relative L2 distance; infinity where it is 0.
        mismatched: elements beyond tolerance, `3 / 48 (6.2%)`; empty without one.
    """

    elements: int
    absolute: Extreme
    absolute_allowed: float | None
    relative: Extreme
    relative_allowed: float | None
    mean_absolute: float
    relative_l2: float
    cosine: float
    snr_db: float
    mismatched: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RowError:
    """What a replay told of one tensor, over all steps.

    Attributes:
        inherited: relative distance from the reference's own run.
        local: relative error made right there; NaN without a replay.
        excess: the local error in units of rounding; NaN without a replay.
    """

    inherited: float
    local: float
    excess: float

    @property
    def rounding(self) -> float:
        """What rounding explains of the local error, in its unit; NaN where that is not known."""
        return self.local / self.excess if self.excess > 0 else float("nan")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportRow:
    """One tensor of either side, or a pair.

    Attributes:
        id: unique within the report, and the same in every report of these tensors.
        kind: what the row is.
        reference: the reference's name; None where only the candidate has it.
        candidate: the candidate's name; None where only the reference has it.
        module: path of the module in the reference's tree, where it is known there.
        leaf: the rest of the name: `output`, `input_0`, `@003.mul`.
        step: 0 for the prefill.
        rank: of several; else None.
        finding: `agrees`, `measured`, `differs`, `undecided`, `not compared`, or `unpaired`.
        reason: why they are a pair, why there is none, or what is wrong with the file.
        outcome: what came of it beyond the figures, one sentence each.
        shapes: of both sides as stored.
        dtypes: of both sides; None where that was not read.
        metrics: None where nothing was measured.
        severity: how many times what is allowed it is apart; infinity for what cannot be allowed,
            None where that is not known.
        error: what a replay told; None without one.
        guilty: what is wrong there by itself, one phrase each; empty for what is not.
        harmless: why a difference does no harm; empty where none was cleared.
        detail: what is shown of single elements; None where none is kept.
    """

    id: str
    kind: RowKind
    reference: str | None
    candidate: str | None
    module: str
    leaf: str
    step: int
    rank: int | None
    finding: str
    reason: str
    outcome: tuple[str, ...] = ()
    shapes: tuple[Shape | None, Shape | None] = (None, None)
    dtypes: tuple[str, str] | None = None
    metrics: RowMetrics | None = None
    severity: float | None = None
    error: RowError | None = None
    guilty: tuple[str, ...] = ()
    harmless: str = ""
    detail: TensorDetail | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportSide:
    """One side of a report.

    Attributes:
        name: what to call it: its engine, or its role.
        path: the dump; None where it is not kept.
        tensors: number of tensors found.
        notes: what a reader should know of this dump.
    """

    name: str
    path: Path | None
    tensors: int
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DepthPoint:
    """The errors of one tensor, for a plot over the depth of the model.

    Attributes:
        name: the reference's name.
        row: number of its row in the report; None where there is none.
        error: its errors.
    """

    name: str
    row: int | None
    error: RowError


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Everything that a report of two dumps says.

    Attributes:
        verdict: in one word.
        tone: how it reads.
        sentence: the verdict in one sentence.
        evidence: what it rests on, in paragraphs of lines; the first line of each is its heading.
        reference: the reference's side.
        candidate: the candidate's side.
        severity_unit: what a row's severity counts, such as `times the tolerance`.
        is_judged: whether a tolerance was given.
        is_replayed: whether local errors are known.
        rows: pairs in order of execution, then what is left over.
        depth: errors in order of execution.
        detailed: number of rows with details.
        differing: number of pairs that have any difference in numbers.
        notes: what a reader should know.
    """

    verdict: str
    tone: Tone
    sentence: str
    evidence: tuple[tuple[str, ...], ...]
    reference: ReportSide
    candidate: ReportSide
    severity_unit: str
    is_judged: bool
    is_replayed: bool
    rows: tuple[ReportRow, ...]
    depth: tuple[DepthPoint, ...]
    detailed: int
    differing: int
    notes: tuple[str, ...]
