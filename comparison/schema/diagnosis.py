"""The verdict on a candidate: who is wrong, where, how badly, and what that rests on."""

from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never

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
    """

    step: int
    row: int
    position: int | None


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
        evidence: what shows it, in words.
        residual: what the cause leaves over, in units of rounding; None where there is none.
    """

    id: str = "unknown"
    evidence: str = ""
    residual: float | None = None


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
        excess: how many times rounding, at the worst place.
        where: what is wrong within the tensor, one phrase each.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Harmless:
    """A difference beyond rounding that is no fault.

    Attributes:
        tensor: by the reference's name.
        reason: why it does no harm.
    """

    tensor: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InputDifference:
    """Something the two runs were given that is not the same.

    Attributes:
        kind: `tokens`, `config`, `weights`, `rows`.
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
class Diagnosis:
    """Everything a diagnosis found.

    Attributes:
        verdict: what it amounts to.
        sentence: the same in one sentence.
        reference_engine: the reference's engine.
        candidate_engine: the candidate's engine.
        culprit: None unless something diverges in a module.
        cause: why; None unless something diverges.
        guilty: all modules that are wrong by themselves, in order of execution.
        harmless: differences that are no faults.
        inputs: what the two runs were given that is not the same.
        growth: errors over the depth of the model.
        choices: tokens that the sides choose differently.
        coverage: what it rests on.
        missing: what could not be checked, and why; the reason where it is inconclusive.
        notes: what a reader should know.
        candidates: one diagnosis a candidate, where there were several; this one joins them.
    """

    verdict: Judgement
    sentence: str
    reference_engine: str
    candidate_engine: str
    coverage: Coverage
    culprit: Culprit | None = None
    cause: Cause | None = None
    guilty: tuple[Guilty, ...] = ()
    harmless: tuple[Harmless, ...] = ()
    inputs: tuple[InputDifference, ...] = ()
    growth: tuple[Growth, ...] = ()
    choices: tuple[TokenChoice, ...] = ()
    missing: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    candidates: tuple["Diagnosis", ...] = ()

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
