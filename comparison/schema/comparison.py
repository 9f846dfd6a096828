"""The result of comparing two dumps, and what it amounts to."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import assert_never

from comparison.schema.estimate import Estimated
from comparison.schema.html_summary import html_summary
from comparison.schema.outcome import (
    Compared,
    Judged,
    KindDiffers,
    Metrics,
    NotComparable,
    Outcome,
    Shape,
    ShapeDiffers,
    Side,
)
from comparison.schema.tensor_entry import TensorEntry
from comparison.schema.tolerance import Tolerance

RESULT_SCHEMA_VERSION = 1
_ROWS_IN_NOTEBOOKS = 20


class Finding(StrEnum):
    """What one pair amounts to."""

    AGREES = "agrees"  # within the tolerance
    MEASURED = "measured"  # no tolerance was given, and no attribute differs
    DIFFERS = "differs"  # beyond tolerance, or shape, dtype or NaN class differ
    UNDECIDED = "undecided"  # a tolerance was given, and sketches cannot tell
    NOT_COMPARED = "not compared"


_OPEN = (Finding.NOT_COMPARED, Finding.UNDECIDED)


class Verdict(StrEnum):
    """What a whole comparison amounts to."""

    AGREE = "agree"  # every pair is within the tolerance
    MEASURED = "measured"  # no tolerance was given, and no attribute differs
    DIFFER = "differ"
    INCONCLUSIVE = "inconclusive"  # nothing was compared, or the result was cut short


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two tensors that mean the same thing, and what came of them.

    Attributes:
        reference: the reference's tensor.
        candidate: the candidate's tensor.
        reason: why these two are a pair.
        reference_shape: shape as stored; None where it could not be read.
        candidate_shape: shape as stored, or of the slice that was taken; None where it could
            not be read.
        adjustments: what was done to make the shapes equal, one sentence each.
        outcome: what came of it.
    """

    reference: TensorEntry
    candidate: TensorEntry
    reason: str
    outcome: Outcome
    reference_shape: Shape | None = None
    candidate_shape: Shape | None = None
    adjustments: tuple[str, ...] = ()

    @property
    def finding(self) -> Finding:
        """What the outcome amounts to."""
        match self.outcome:
            case Compared() as compared:
                return _finding_of_compared(compared)
            case Estimated() as estimated:
                return _finding_of_estimated(estimated)
            case ShapeDiffers() | KindDiffers():
                return Finding.DIFFERS
            case NotComparable():
                return Finding.NOT_COMPARED
            case _:
                assert_never(self.outcome)


def lacks_step(side: Side, step: int | str) -> str:
    """Say why no tensor of a step, or of a range of steps, has a counterpart."""
    return f"the {side} has no step {step}"


@dataclass(frozen=True, slots=True, kw_only=True)
class UnpairedTensor:
    """A tensor without a counterpart, on which no verdict rests.

    Attributes:
        side: which side has it.
        tensor: its name there.
        step: the step that it is of.
        rank: the rank that it is of; None where there is one only.
        reason: why it has no counterpart.
    """

    side: Side
    tensor: str
    step: int
    rank: int | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unpaired:
    """A tensor without a counterpart.

    Attributes:
        side: which dump holds it.
        entry: the tensor.
        reason: why it has no counterpart.
        is_gap: whether it should have one: the other side lacks its step, or is of one engine with
            its own and was captured whole.
    """

    side: Side
    entry: TensorEntry
    reason: str
    is_gap: bool = False

    @property
    def tensor(self) -> UnpairedTensor:
        """The same apart from its file."""
        return UnpairedTensor(
            side=self.side,
            tensor=self.entry.name,
            step=self.entry.step,
            rank=self.entry.rank,
            reason=self.reason,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreadable:
    """A file without a counterpart that cannot be read.

    Attributes:
        side: which dump holds it.
        entry: the file, by the name it would have.
        reason: what is wrong with it.
    """

    side: Side
    entry: TensorEntry
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpSummary:
    """One side of a comparison.

    Attributes:
        path: the file or folder as given.
        engine: `torch`, `max`, `vllm`, or None where it is not known.
        tensors: number of tensors found.
        complete: False where the run was cut off or its dump lacks files.
        notes: what a reader of the result should know about this dump.
    """

    path: Path
    engine: str | None
    tensors: int
    complete: bool = True
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Everything that comparing two dumps gave; every tensor of either side is in it.

    Attributes:
        reference: the reference's dump.
        candidate: the candidate's dump.
        tolerance: None where none was given.
        pairs: in order of execution where that is known.
        unpaired: tensors without counterpart, the reference's first.
        unreadable: unreadable files without counterpart, the reference's first.
        notes: what a reader of the result should know about the two dumps together.
        order_known: whether the pairs are in order of execution; else they are by name.
    """

    reference: DumpSummary
    candidate: DumpSummary
    tolerance: Tolerance | None
    pairs: tuple[Pair, ...]
    unpaired: tuple[Unpaired, ...] = ()
    unreadable: tuple[Unreadable, ...] = ()
    notes: tuple[str, ...] = ()
    order_known: bool = True

    @property
    def compared(self) -> int:
        """Number of pairs on which something was found out.

        Nothing is of tensors without elements, nor, without a tolerance, of those without a finite
        element.
        """
        return sum(_tells_something(pair) for pair in self.pairs)

    @property
    def gaps(self) -> int:
        """Number of tensors that should have a counterpart, and have none."""
        return sum(item.is_gap for item in self.unpaired)

    @property
    def differing(self) -> Iterator[Pair]:
        """The pairs that differ, in order of execution."""
        return (pair for pair in self.pairs if pair.finding is Finding.DIFFERS)

    @property
    def cut_short(self) -> bool:
        """Whether something that should have been compared was not."""
        return (
            bool(self.unreadable)
            or self.gaps > 0
            or not (self.reference.complete and self.candidate.complete)
            or any(pair.finding in _OPEN for pair in self.pairs)
        )

    @property
    def verdict(self) -> Verdict:
        """What the whole amounts to.

        A difference outranks a result that was cut short: what was not compared cannot take it
        back. A result that was cut short without a difference is inconclusive, since the rest
        might differ.
        """
        if self.compared == 0:
            return Verdict.INCONCLUSIVE
        if any(True for _ in self.differing):
            return Verdict.DIFFER
        if self.cut_short:
            return Verdict.INCONCLUSIVE
        return Verdict.MEASURED if self.tolerance is None else Verdict.AGREE

    @property
    def exit_code(self) -> int:
        """The exit code of contract 2."""
        match self.verdict:
            case Verdict.AGREE | Verdict.MEASURED:
                return 0
            case Verdict.DIFFER:
                return 1
            case Verdict.INCONCLUSIVE:
                return 2
            case _:
                assert_never(self.verdict)

    def _repr_html_(self) -> str:
        """Show the verdict and the first pairs that differ in a notebook."""
        differing = list(self.differing)
        told = (
            f"{len(self.pairs)} pairs, {len(differing)} that differ, "
            f"{len(self.unpaired)} tensors without counterpart"
        )
        heading = ("step", "reference", "candidate", "greatest absolute", "relative L2")
        rows = [
            (pair.reference.step, pair.reference.name, pair.candidate.name, *_figures(pair))
            for pair in differing[:_ROWS_IN_NOTEBOOKS]
        ]
        is_good = {Verdict.AGREE: True, Verdict.DIFFER: False}.get(self.verdict)
        return html_summary(self.verdict, told, is_good=is_good, rows=[heading, *rows])


def _tells_something(pair: Pair) -> bool:
    if pair.finding is Finding.NOT_COMPARED:
        return False
    if not isinstance(pair.outcome, Compared) or isinstance(pair.outcome.metrics, Metrics):
        return True
    if pair.finding is Finding.AGREES:  # all elements are NaN or infinite, and these may pass
        return math.prod(pair.outcome.shape) > 0
    return pair.finding is Finding.DIFFERS


def _finding_of_compared(compared: Compared) -> Finding:
    if compared.dtype_differs or compared.non_finite.differing:
        return Finding.DIFFERS
    match compared.judgement:
        case Judged(failed=0):
            return Finding.AGREES
        case Judged():
            return Finding.DIFFERS
        case _:
            return Finding.MEASURED


def _finding_of_estimated(estimated: Estimated) -> Finding:
    if estimated.certain:
        return Finding.DIFFERS
    if not estimated.is_judged:
        return Finding.MEASURED
    return Finding.AGREES if estimated.identical else Finding.UNDECIDED


def _figures(pair: Pair) -> tuple[object, object]:
    if isinstance(pair.outcome, Estimated):
        return None, pair.outcome.relative_l2.value
    metrics = getattr(pair.outcome, "metrics", None)
    if not isinstance(metrics, Metrics):
        return None, None
    return metrics.greatest_absolute.value, metrics.relative_l2
