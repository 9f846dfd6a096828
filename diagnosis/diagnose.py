"""The verdict on one dump: replay, judge, clear what is harmless, and name the culprit."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from comparison.align.pairing import Pairing
from comparison.chunks import with_stretches
from comparison.schema.diagnosis import (
    Calibration,
    Cause,
    Coverage,
    Culprit,
    Diagnosis,
    Guilty,
    Harmless,
    InputDifference,
    Judgement,
)
from comparison.schema.manifest import Manifest
from comparison.schema.outcome import Side
from comparison.store.dump import Dump
from diagnosis.calibration import Rerun, calibrated
from diagnosis.candidate_tensors import CandidateTensors
from diagnosis.causes.naming import cause_of, likelier
from diagnosis.causes.reference_not_causal import cause_of_look_ahead
from diagnosis.check import Check
from diagnosis.checks import Checker
from diagnosis.choice_checks import harmless_choices, settled_choices
from diagnosis.choices import token_choices
from diagnosis.decoded_text import Decode
from diagnosis.drill.drill import Drill
from diagnosis.drill.dump import without_operations
from diagnosis.finding import Finding
from diagnosis.guilt import is_guilty
from diagnosis.guilty_modules import guilty_of, merged
from diagnosis.healing import harmless_differences, without_absorbed
from diagnosis.inputs import input_differences, observed_differences, other_layer_counts
from diagnosis.layer_match import match_layers
from diagnosis.manifest_fit import require_fit
from diagnosis.name_map import NameMap
from diagnosis.rank_blame import earliest
from diagnosis.replay.causality import LookAhead, look_ahead, said_of
from diagnosis.replay.module_watch import module_of
from diagnosis.replay.reference_calls import ReferenceCall
from diagnosis.replay.reference_trace import TracedTensor, fingerprints_of, trace_reference
from diagnosis.replay.sound_reference import no_numbers, unrepeated
from diagnosis.run_figures import coverage_of, drift_of, growth_of
from diagnosis.sentence import sentence_of
from diagnosis.side_errors import side_errors
from diagnosis.weights.inputs import (
    ruled_out,
    weight_cause,
    weight_differences,
    weights_against,
    weights_first,
)

if TYPE_CHECKING:
    import torch

_NOT_ALIKE = (
    "run both sides on the same, with debug_model's options for prompts, layers and configuration, "
    "or give --keep-going to hold what they have in common against each other"
)
_NO_WEIGHTS = (
    "weights were not compared, as the candidate's dump does not tell them: make it with "
    "debug_model --weights"
)
_EXPLAINED = 2  # guilty modules whose cause is sought
_LEAST_COVERAGE = 0.05  # of the reference's modules; below that nothing can be said


@dataclass(frozen=True, slots=True, kw_only=True)
class DiagnoseOptions:
    """How to diagnose.

    Attributes:
        keep_going: replay also where the runs were given unlike inputs.
        reference_engine: name of the engine whose model is replayed.
        names: pairs that the user gives, instead of those found.
        inputs: differences of what the two runs were given, found by their dumps.
        on_paired: is told what was paired.
        reruns: further runs of the candidate, which tell its own jitter.
        least_modules: how many modules have to be checked for a verdict of agreement; None for a
            share of all of them.
        causes: whether to say why modules are wrong, which takes further replays of these.
        progress: is told what is under way.
        decode: gives the text of token ids that differ; None where there is no tokenizer.
        dump_called: what the dump is called where it is not complete.
    """

    keep_going: bool = False
    reference_engine: str = "torch"
    names: NameMap = field(default_factory=dict)
    inputs: tuple[InputDifference, ...] = ()
    on_paired: Callable[[Pairing], None] = lambda pairing: None
    reruns: tuple[Rerun, ...] = ()
    least_modules: int | None = None
    causes: bool = True
    progress: Callable[[str], None] = lambda text: None
    decode: Decode | None = None
    dump_called: str = "the candidate's dump"


def diagnose(
    model: torch.nn.Module,
    dump: Dump,
    calls: Sequence[ReferenceCall],
    *,
    reference: Manifest | None = None,
    options: DiagnoseOptions | None = None,
) -> Diagnosis:
    """Say whether a candidate's dump is what the reference computes, and where it is not.

    Args:
        model: the reference, in the run's dtype and evaluation mode.
        dump: the candidate's.
        calls: the dump's rows.
        reference: of the reference's own run, where there was one.
        options: how to diagnose.
    """
    return find(model, dump, calls, reference=reference, options=options).diagnosis


def find(
    model: torch.nn.Module,
    dump: Dump,
    calls: Sequence[ReferenceCall],
    *,
    reference: Manifest | None = None,
    options: DiagnoseOptions | None = None,
) -> Finding:
    """Do as `diagnose`, and keep the guilty checks."""
    return _Diagnosing(model, dump, calls, reference, options or DiagnoseOptions()).result()


class _Diagnosing:
    def __init__(
        self,
        model: torch.nn.Module,
        dump: Dump,
        calls: Sequence[ReferenceCall],
        reference: Manifest | None,
        options: DiagnoseOptions,
    ) -> None:
        dump = without_operations(dump)
        self._model, self._dump, self._calls = model, with_stretches(dump), calls
        require_fit(self._dump, fed=True)
        self._options = options
        both = reference is not None and dump.manifest is not None
        self._inputs: tuple[InputDifference, ...] = (
            tuple(input_differences(reference, dump.manifest, options.decode)) if both else ()  # type: ignore[arg-type]  # both are there
        )
        self._inputs += options.inputs
        if dump.manifest is not None:
            self._inputs += tuple(observed_differences(dump.manifest))
        self._ahead: LookAhead | None = None  # where the reference looks ahead, and should not
        self._doubts: tuple[str, ...] = ()  # why it is not to be judged by
        self._weights = weights_against(model, dump)
        self._inputs += tuple(weight_differences(self._weights))

    def result(self) -> Finding:
        decisive = [difference for difference in self._inputs if difference.decisive]
        if decisive and not self._options.keep_going:
            return Finding(diagnosis=self._only_inputs(decisive), guilty={})
        self._options.progress("replaying the reference on what the candidate computed ...")
        # Runs before the tensors of the replay are in memory beside their own.
        with side_errors("the replay of the reference"):
            self._doubts = tuple(unrepeated(self._model, self._calls))
            self._ahead = look_ahead(self._model, self._calls[0]) if self._calls else None
        traced = trace_reference(self._model, self._calls)
        found, unlike = self._of_rank(traced, None)
        ranks = sorted({entry.rank for entry in self._dump.entries if entry.rank is not None})
        others = [self._of_rank(traced, rank)[0] for rank in ranks[1:]] if unlike else []
        return earliest([found, *others])

    def _of_rank(
        self, traced: Mapping[str, TracedTensor], rank: int | None
    ) -> tuple[Finding, bool]:
        """Diagnose with the copies that one rank holds; tell whether other ranks hold others."""
        candidate, layers = match_layers(
            self._tensors_of(self._dump, traced, rank),
            lambda other: Checker(self._model, self._calls, traced, other),
        )
        self._options.on_paired(candidate.pairing)
        checker = Checker(self._model, self._calls, traced, candidate)
        checks, calibration = self._calibrated(checker, traced, rank)
        suspects = [check for check in checks if is_guilty(check)]
        harmless = tuple(harmless_differences(checker, checks, suspects)) if suspects else ()
        unbroken = checker.checks(unpinned=set(candidate.names()) - settled_choices(checks))
        guilty = _left(suspects, harmless)
        if not guilty and drift_of(unbroken, harmless) is not None:
            harmless = without_absorbed(harmless)
            guilty = _left(suspects, harmless)
        harmless += tuple(harmless_choices(checks))
        # What goes into a layer that only one side has is wrong for that, and nothing else.
        to_explain = [check for check in guilty if not (layers and check.is_input)]
        reasons = self._reasons(checker, checks, to_explain)
        diagnosis = self._judge(traced, candidate, checks, guilty, harmless, unbroken, reasons)
        finding = Finding(
            diagnosis=sentence_of(
                replace(diagnosis, calibration=calibration, notes=(*diagnosis.notes, *layers))
            ),
            guilty={check.name: check for check in guilty},
            drill=Drill(checker, checks, guilty[0]) if guilty else None,
        )
        return finding, bool(candidate.ranks.unlike)

    def _tensors_of(
        self, dump: Dump, traced: Mapping[str, TracedTensor], rank: int | None
    ) -> CandidateTensors:
        return CandidateTensors(
            dump,
            traced,
            engine=self._options.reference_engine,
            place=lambda: fingerprints_of(self._model, self._calls[0], traced),
            names=self._options.names,
            rank=rank,
        )

    def _calibrated(
        self, checker: Checker, traced: Mapping[str, TracedTensor], rank: int | None
    ) -> tuple[tuple[Check, ...], Calibration | None]:
        """Judge every tensor, by limits that the candidate's own jitter may have raised."""
        checks = checker.checks()
        manifest = self._dump.manifest
        if not self._options.reruns or manifest is None:
            return checks, None
        return calibrated(
            checker,
            checks,
            self._options.reruns,
            manifest,
            lambda dump: self._tensors_of(with_stretches(without_operations(dump)), traced, rank),
        )

    def _judge(
        self,
        traced: Mapping[str, TracedTensor],
        candidate: CandidateTensors,
        checks: Sequence[Check],
        guilty: Sequence[Check],
        harmless: tuple[Harmless, ...],
        unbroken: Sequence[Check],
        reasons: Mapping[str, Cause],
    ) -> Diagnosis:
        records = merged(
            [
                replace(
                    guilty_of(check, traced, candidate, checks, self._calls),
                    cause=reasons.get(check.name),
                )
                for check in guilty
            ]
        )
        coverage = coverage_of(traced, candidate, checks)
        drift = None if guilty else drift_of(unbroken, harmless)
        doubts = (*self._doubts, *no_numbers(checks))
        missing = (*doubts, *self._missing(coverage, candidate))
        verdict = Judgement.DIVERGE if records or drift else Judgement.AGREE
        unseen = candidate.unreadable or candidate.misshapen or doubts
        enough = self._enough(coverage) and not unseen
        if verdict is Judgement.AGREE and not enough:
            verdict = Judgement.INCONCLUSIVE
        culprit = self._culprit(records[0]) if records else None
        judged = {check.name.rpartition("-")[0] for check in checks if not check.is_input}
        cause = (
            likelier(records[0].cause, weight_cause(self._weights, culprit, judged))
            if records
            else None
        )
        if cause is not None and culprit is not None and self._weights is None:
            cause = weights_first(cause, dict(self._model.named_modules()).get(culprit.module))
        if cause is not None:  # of the first one, wherever it is told
            records = [replace(records[0], cause=cause), *records[1:]]
        notes = self._dump.notes
        manifest = self._dump.manifest
        if manifest is not None and manifest.layers_left_out is not None:
            notes = (*notes, manifest.layers_left_out)
        if records and self._weights is None:
            notes = (*notes, _NO_WEIGHTS)
        if records:
            notes = (*notes, *other_layer_counts(self._inputs))
        ahead = self._ahead
        if ahead is not None:
            notes = (*notes, f"the reference looks ahead: {said_of(ahead)}")
            if culprit is not None and culprit.module == ahead.module:
                engine = self._options.reference_engine
                culprit = replace(culprit, side=Side.REFERENCE, engine=engine)
                cause = cause_of_look_ahead(ahead)
        if drift is not None:
            cause = Cause(id="drift", evidence=f"{drift:.3g} times the reference's own rounding")
        draft = Diagnosis(
            verdict=verdict,
            sentence="",
            reference_engine=self._options.reference_engine,
            candidate_engine=self._engine,
            coverage=coverage,
            culprit=culprit,
            cause=cause,
            guilty=tuple(records),
            harmless=harmless,
            inputs=self._inputs,
            growth=tuple(growth_of(checks, unbroken)),
            choices=tuple(token_choices(unbroken, self._calls)),
            missing=missing,
            unpaired=tuple(item.tensor for item in candidate.pairing.unpaired),
            notes=notes,
        )
        return sentence_of(draft)

    def _reasons(
        self, checker: Checker, checks: Sequence[Check], guilty: Sequence[Check]
    ) -> dict[str, Cause]:
        """Say why the first guilty modules are wrong."""
        if not self._options.causes:
            return {}
        first_of: dict[str, Check] = {}
        for check in guilty:
            first_of.setdefault(check.owner, check)
        found = {}
        for check in list(first_of.values())[:_EXPLAINED]:
            module = module_of(check.owner)
            if self._ahead is not None and self._ahead.module == module:
                continue  # not the candidate's computation is to be explained there
            self._options.progress(f"trying what explains {module} ...")
            not_so = ruled_out(self._weights, module)
            found[check.name] = cause_of(checker, checks, check, ruled_out=not_so)
        return found

    @property
    def _engine(self) -> str:
        return self._dump.engine or "candidate"

    def _only_inputs(self, decisive: Sequence[InputDifference]) -> Diagnosis:
        kinds = {difference.kind for difference in decisive}
        first = "tokens" if kinds & {"tokens", "rows"} else decisive[0].kind
        draft = Diagnosis(
            verdict=Judgement.DIVERGE,
            sentence="",
            reference_engine=self._options.reference_engine,
            candidate_engine=self._engine,
            coverage=Coverage(paired=0, unpaired=0, replayed=0, modules=0, modules_checked=0),
            cause=Cause(id=first, evidence=f"{decisive[0].what} differs"),
            inputs=self._inputs,
            notes=(*self._dump.notes, _NOT_ALIKE),
        )
        return sentence_of(draft)

    def _culprit(self, first: Guilty) -> Culprit:
        return Culprit(
            side=Side.CANDIDATE,
            engine=self._engine,
            module=first.module,
            candidate_module=first.candidate_module,
            tensor=first.tensor,
            between=first.between,
            spot=first.spot,
        )

    def _missing(self, coverage: Coverage, candidate: CandidateTensors) -> tuple[str, ...]:
        missing = [f"{name}: {reason}" for name, reason in sorted(candidate.unusable.items())]
        if not self._covers(coverage):
            checked = f"{coverage.modules_checked} of {coverage.modules}"
            missing.insert(0, f"only {checked} modules could be checked")
        if candidate.misshapen:
            name, why = next(iter(candidate.misshapen.items()))
            missing = [text for text in missing if text != f"{name}: {why}"]
            missing.insert(0, f"{name} has another shape than the reference's: {why}")
        if candidate.unreadable:
            first = next(iter(candidate.unreadable.values()))
            count = len(candidate.unreadable)
            what = "one tensor" if count == 1 else f"{count} tensors"
            missing.insert(0, f"{what} cannot be read: {first}")
        if not self._dump.complete:
            why = "; ".join(self._dump.notes) or "the run was cut off"
            missing.insert(0, f"{self._options.dump_called} is not complete: {why}")
        return tuple(missing)

    def _enough(self, coverage: Coverage) -> bool:
        return self._covers(coverage) and self._dump.complete

    def _covers(self, coverage: Coverage) -> bool:
        least = self._options.least_modules
        if least is None:
            return coverage.modules_checked > _LEAST_COVERAGE * coverage.modules
        return coverage.modules_checked >= max(least, 1)


def _left(suspects: Sequence[Check], harmless: Collection[Harmless]) -> list[Check]:
    cleared = {item.tensor for item in harmless}
    return [check for check in suspects if check.name not in cleared]
