"""The verdict on a candidate: who is wrong, where, how badly, and what that rests on."""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, assert_never

from comparison.schema.comparison import UnpairedTensor
from comparison.schema.html_summary import html_summary
from comparison.schema.outcome import Side

DIAGNOSIS_SCHEMA_VERSION = 1


class Judgement(StrEnum):
    """What a diagnosis amounts to."""

    AGREE = "agree"  # rounding explains every difference
    DIVERGE = "diverge"
    INCONCLUSIVE = "inconclusive"  # too little could be checked


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """Where in a run a difference begins.

    Attributes:
        step: 0 for the prefill, 1.. for decode steps.
        row: number of the sequence.
        position: token position from the row's start; None where no axis counts tokens.
        rank: of several, the one that is wrong; None where that is not known, or all are.
    """

    step: int
    row: int
    position: int | None
    rank: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Culprit:
    """The first module in order of execution that is wrong by itself.

    Attributes:
        side: which side is wrong.
        engine: the engine of that side.
        module: the module, by the reference's name.
        candidate_module: what the candidate calls it; None where it has no such module.
        tensor: the tensor that shows it, by the reference's name.
        between: where the module's own code is guilty and the modules inside it are not, the
            candidate's tensors right before and right behind it; else None.
        spot: where it begins.
    """

    side: Side
    engine: str
    module: str
    candidate_module: str | None
    tensor: str
    between: tuple[str, str] | None
    spot: Spot


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """Why the culprit is wrong.

    Attributes:
        id: a name from the table of causes; `unknown` where none was found or looked for.
        evidence: what shows it, in words; of a cause that was tried, what the candidate does.
        expected: what the reference does, in words; empty where the evidence says it.
        residual: what the cause leaves over, in units of rounding; None where it was not tried.
        unexplained: what is wrong without it, in the same units; None where it was not tried.
        confidence: how often a cause with such evidence is right, from 0 to 1; None where that
            was not counted.
        value: the factor, size or other number that the evidence names; None where there is none.
        alternatives: other causes that give the candidate's values as well, each with its evidence.
        advice: what to look at.
    """

    id: str = "unknown"
    evidence: str = ""
    expected: str = ""
    residual: float | None = None
    unexplained: float | None = None
    confidence: float | None = None
    value: float | None = None
    alternatives: tuple[str, ...] = ()
    advice: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Guilty:
    """A module that is wrong by itself, whatever went into it.

    Attributes:
        module: by the reference's name.
        candidate_module: what the candidate calls it; None where it has no such module.
        tensor: the tensor that shows it, by the reference's name.
        candidate_tensor: the candidate's name of it.
        between: as in Culprit.
        spot: where it begins.
        local_error: relative root mean square of the error that the module itself made.
        bound: what rounding explains of it, in the same unit.
        reference_error: the error that the reference's own run makes there, on the same inputs and
            in the same unit, against float64 as well; None where equality is exact, and without a
            replay.
        excess: how many times rounding, at the worst place.
        where: what is wrong within the tensor, one phrase each.
        cause: why; None where that was not sought.
    """

    module: str
    candidate_module: str | None
    tensor: str
    candidate_tensor: str
    between: tuple[str, str] | None
    spot: Spot
    local_error: float
    bound: float
    excess: float
    where: tuple[str, ...] = ()
    cause: Cause | None = None
    reference_error: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """The operation below the culprit that is wrong by itself, or the first without a counterpart.

    Attributes:
        name: what the candidate's dump calls it, `<module>@<nnn>.<op>`.
        op: the engine's full name of it, with its arguments; empty where the module passes on what
            it is given.
        inputs: what goes into it, by the candidate's names.
        source: `file:line` in the candidate's code; empty where that is not known.
        last: the last operation from there to the culprit's tensor without a counterpart.
        step: the step that was looked at.
        is_missing: the operation itself is right, and what the reference does next is left out.
        reference: the reference's operation in its place; empty where it has none there, and goes
            on with what the candidate's operation is given.
        reference_op: that operation with its arguments.
        reference_inputs: what goes into that one, by the reference's names.
        reference_source: `file:line` of it.
        local_error: relative root mean square of its error; None where the two are of unlike
            shapes.
        bound: what rounding explains of it, in the same unit.
        operations: how many tensors of operations the candidate has there.
        paired: how many of these have a counterpart in the reference, by their values.
        is_proven: the reference computes something else of the very same inputs, so that the
            operation is wrong by itself; else it is only the first one without a counterpart.
        unproven: those of `inputs` that were not shown to be the reference's, weights among them.
    """

    name: str
    op: str
    inputs: tuple[str, ...]
    source: str
    last: str
    step: int
    is_missing: bool
    reference: str
    reference_op: str
    reference_inputs: tuple[str, ...]
    reference_source: str
    local_error: float | None
    bound: float | None
    operations: int
    paired: int
    is_proven: bool = False
    unproven: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Harmless:
    """A difference beyond rounding that is no fault.

    Attributes:
        tensor: by the reference's name.
        reason: why it does no harm.
        is_absorbed: whether it only is no longer seen further on, where more is added to it.
    """

    tensor: str
    reason: str
    is_absorbed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class InputDifference:
    """Something the two runs were given that is not the same.

    Attributes:
        kind: `tokens`, `rows`, `positions`, `mask`, `preprocessing`, `config`, `weights`; or
            `observer` where a run gives something else when it is captured.
        what: which of them, such as a field of the configuration.
        reference: the reference's value, shortened.
        candidate: the candidate's value, shortened.
        decisive: whether it alone explains a difference, so that no module is blamed.
    """

    kind: str
    what: str
    reference: str
    candidate: str
    decisive: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """The error of one tensor, in order of execution.

    Attributes:
        tensor: by the reference's name.
        inherited: relative L2 distance from the reference's own run.
        local: relative error made right there.
        excess: the local error in units of rounding.
    """

    tensor: str
    inherited: float
    local: float
    excess: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenChoice:
    """The tokens with the greatest logit, where the sides choose unlike ones.

    Attributes:
        spot: the step and row.
        reference: token id that the reference chooses.
        candidate: token id that the candidate chooses.
        margin: the reference's logit of its token less that of the candidate's.
        noise: by how much rounding may move that margin.
    """

    spot: Spot
    reference: int
    candidate: int
    margin: float
    noise: float

    @property
    def is_tie(self) -> bool:
        """Whether rounding alone decides between the two."""
        return self.margin <= self.noise


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """What a verdict rests on.

    Attributes:
        paired: tensors of the candidate that have a counterpart.
        unpaired: tensors of the candidate that have none.
        replayed: paired tensors that were judged by a replay.
        modules: modules of the reference that were called.
        modules_checked: modules of these whose output was judged.
    """

    paired: int
    unpaired: int
    replayed: int
    modules: int
    modules_checked: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigField:
    """A field of the configuration that the reference reads and that does not reach the candidate.

    Attributes:
        field: path of the field, `rope_parameters.rope_theta`.
        value: what this checkpoint sets, a JSON value.
        default: what the class of the configuration gives without a checkpoint.
        reference_reads: modules of the reference that read it.
        candidate_reads: modules of the candidate that read it; None where that was not watched.
        graph_changes: whether another value changes the candidate's graph or weights; None where
            that was not tried.
    """

    field: str
    value: Any
    default: Any
    reference_reads: tuple[str, ...]
    candidate_reads: tuple[str, ...] | None = None
    graph_changes: bool | None = None

    @property
    def non_default(self) -> bool:
        """Whether the checkpoint sets something else than the default."""
        return bool(self.value != self.default)


@dataclass(frozen=True, slots=True, kw_only=True)
class Jitter:
    """How much the local error of one tensor differs between runs of the same engine.

    Attributes:
        tensor: by the reference's name.
        whole: root mean square, in units of what rounding explains.
        worst: at the worst token or channel, in the same units.
        limit: greatest error that is no fault, as a whole, without calibration.
        raised: the same with it.
    """

    tensor: str
    whole: float
    worst: float
    limit: float
    raised: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What further runs of the candidate told of its own jitter.

    Attributes:
        runs: what was run again, one phrase each.
        tensors: how many tensors were held against each other.
        greatest: the tensor that differs most; None where none differs.
        raised: tensors whose limit was raised.
        beyond: tensors that differ more than jitter can; their limits stay.
    """

    runs: tuple[str, ...]
    tensors: int
    greatest: Jitter | None = None
    raised: tuple[Jitter, ...] = ()
    beyond: tuple[Jitter, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """Everything a diagnosis found.

    Attributes:
        verdict: what it amounts to.
        sentence: the same in one sentence.
        reference_engine: the reference's engine.
        candidate_engine: the candidate's engine.
        culprit: None unless something diverges in a module.
        cause: why; None unless something diverges.
        operation: the operation of the culprit that is wrong; None where none was looked for or
            found.
        guilty: all modules that are wrong by themselves, in order of execution.
        harmless: differences that are no faults.
        inputs: what the two runs were given that is not the same.
        growth: errors over the depth of the model.
        choices: tokens that the sides choose differently.
        coverage: what it rests on.
        missing: what could not be checked, and why; the reason where it is inconclusive.
        unpaired: tensors of either side that have no counterpart.
        notes: what a reader should know.
        config_audit: fields of the configuration that do not reach the candidate; None where
            that was not asked for.
        calibration: the candidate's own jitter; None where that was not asked for.
        candidates: one diagnosis a candidate, where there were several; this one joins them.
        reference_name: what the user called the reference; empty where only the engine is known.
        candidate_name: what the user called the candidate, likewise.
    """

    verdict: Judgement
    sentence: str
    reference_engine: str
    candidate_engine: str
    coverage: Coverage
    culprit: Culprit | None = None
    cause: Cause | None = None
    operation: Operation | None = None
    guilty: tuple[Guilty, ...] = ()
    harmless: tuple[Harmless, ...] = ()
    inputs: tuple[InputDifference, ...] = ()
    growth: tuple[Growth, ...] = ()
    choices: tuple[TokenChoice, ...] = ()
    missing: tuple[str, ...] = ()
    unpaired: tuple[UnpairedTensor, ...] = ()
    notes: tuple[str, ...] = ()
    config_audit: tuple[ConfigField, ...] | None = None
    calibration: Calibration | None = None
    candidates: tuple["Diagnosis", ...] = ()
    reference_name: str = ""
    candidate_name: str = ""

    @property
    def reference_called(self) -> str:
        """What to call the reference: its engine says nothing where the candidate has the same."""
        return self._called(self.reference_engine, self.reference_name, "the reference")

    @property
    def candidate_called(self) -> str:
        """What to call the candidate."""
        return self._called(self.candidate_engine, self.candidate_name, "the candidate")

    def _called(self, engine: str, name: str, role: str) -> str:
        if self.reference_engine != self.candidate_engine:
            return engine
        return name if name and self.reference_name != self.candidate_name else role

    @property
    def exit_code(self) -> int:
        """The exit code of contract 2."""
        match self.verdict:
            case Judgement.AGREE:
                return 0
            case Judgement.DIVERGE:
                return 1
            case Judgement.INCONCLUSIVE:
                return 2
            case _:
                assert_never(self.verdict)

    def noting(self, *notes: str) -> "Diagnosis":
        """Return the same with further notes."""
        return replace(self, notes=(*self.notes, *notes))

    def _repr_html_(self) -> str:
        """Show the verdict and the guilty modules in a notebook."""
        heading = ("module", "step", "row", "local error", "rounding explains", "cause")
        rows = [
            (
                item.module,
                item.spot.step,
                item.spot.row,
                item.local_error,
                item.bound,
                "" if item.cause is None else item.cause.id,
            )
            for item in self.guilty
        ]
        is_good = {Judgement.AGREE: True, Judgement.DIVERGE: False}.get(self.verdict)
        return html_summary(self.verdict, self.sentence, is_good=is_good, rows=[heading, *rows])
