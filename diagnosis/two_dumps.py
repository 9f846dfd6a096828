"""The weaker verdict: two dumps and no model to replay.

Only whole errors are known then, what a tensor inherits and what it adds in one number. The first
tensor whose error stands far above that of all before it is where something went wrong; a second
fault behind it is hidden by the first. On 22 dumps of MAX the error grew by at most a factor of
3.03 from one tensor to the next where nothing was wrong, and by at least 178 at the first fault.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from comparison.chunks import with_stretches
from comparison.pipeline import compare
from comparison.schema.comparison import Comparison, Pair
from comparison.schema.diagnosis import (
    Cause,
    Coverage,
    Culprit,
    Diagnosis,
    Growth,
    Guilty,
    InputDifference,
    Judgement,
    Spot,
)
from comparison.schema.outcome import Compared, KindDiffers, Metrics, ShapeDiffers, Side
from comparison.schema.tensor_names import parse_tensor_name
from comparison.store.dump import Dump
from diagnosis.causes.naming import likelier
from diagnosis.given_inputs import ROOT, TOKEN_IDS
from diagnosis.inputs import input_differences
from diagnosis.manifest_fit import require_fit
from diagnosis.sentence import sentence_of
from diagnosis.weights.inputs import dumped_weights, weight_cause, weight_differences

_IDS = frozenset({*TOKEN_IDS, "ids", "token_type_ids", "0"})  # MAX passes them in the first place
_JUMP = 30.0  # times the greatest error before
_DRIFT = 1e4  # times one rounding; beyond that the end is off without a jump
_ROUNDING = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
_NOTE = (
    "there is no model to replay, so errors that are passed on and errors that are made cannot be "
    "told apart: only the first fault shows, and agreement means less (diff_models replays the "
    "reference, given --pipeline)"
)


def diagnose_dumps(
    reference: Dump, candidate: Dump, *, compared: Comparison | None = None
) -> Diagnosis:
    """Infer the culprit from where the error between two dumps jumps.

    Args:
        reference: what is taken to be right.
        candidate: what is in question.
        compared: the comparison of both, if there is one already.

    Raises:
        BadInputError: a dump does not fit its own manifest, or nothing can be compared.
    """
    for dump in (reference, candidate):
        require_fit(with_stretches(dump), fed=False)
    compared = compared or compare(Path(reference.path), Path(candidate.path))
    inputs: tuple[InputDifference, ...] = ()
    if reference.manifest is not None and candidate.manifest is not None:
        inputs = tuple(input_differences(reference.manifest, candidate.manifest))
    inputs += tuple(_fed_differences(compared))
    weights = dumped_weights(reference, candidate)
    inputs += tuple(weight_differences(weights))
    decisive = next((item for item in inputs if item.decisive), None)
    errors = list(_errors(compared))
    first = None if decisive is not None else _jump(errors)
    draft = _draft(compared, reference, candidate, inputs, errors)
    if decisive is not None:
        return sentence_of(_with(draft, cause=Cause(id=decisive.kind, evidence=decisive.what)))
    if first is not None:
        found = _with(draft, guilty=_guilty(*first), cause=Cause())
        judged = {_module(pair.reference.name) for pair, _ in errors}
        cause = likelier(None, weight_cause(weights, found.culprit, judged))
        return sentence_of(replace(found, cause=cause))
    if errors and errors[-1][1] > _DRIFT * _unit(errors[-1][0]):
        evidence = f"a relative distance of {errors[-1][1]:.2g} at its end"
        return sentence_of(_with(draft, cause=Cause(id="drift", evidence=evidence)))
    return sentence_of(draft)


def _errors(compared: Comparison) -> Iterator[tuple[Pair, float]]:
    """Give each pair of floats with its relative L2 distance, infinity where one is no number."""
    for pair in compared.pairs:
        outcome = pair.outcome
        if _is_ids(pair) and pair.reference.step > 0:
            continue  # chosen by the step before
        if isinstance(outcome, Compared) and isinstance(outcome.metrics, Metrics):
            broken = outcome.non_finite.differing > 0
            yield pair, float("inf") if broken else outcome.metrics.relative_l2


def _fed_differences(compared: Comparison) -> Iterator[InputDifference]:
    """Yield that the two runs were given other token ids, by what their models were given.

    Later ones may be others for what went wrong before.
    """
    for pair in compared.pairs:
        said = _unlike_ids(pair) if pair.reference.step == 0 and _is_ids(pair) else None
        if said is not None:
            yield InputDifference(
                kind="tokens",
                what=f"what the model was given ({pair.reference.name})",
                reference=said[0],
                candidate=said[1],
                decisive=True,
            )
            return


def _is_ids(pair: Pair) -> bool:
    parsed = parse_tensor_name(pair.reference.name)
    return (
        parsed is not None
        and (parsed.module, parsed.side) == (ROOT, "input")
        and parsed.slot in _IDS
    )


def _unlike_ids(pair: Pair) -> tuple[str, str] | None:
    """Say what either side was given, None where that is the same, or not whole numbers."""
    outcome, shapes = pair.outcome, (pair.reference_shape, pair.candidate_shape)
    if isinstance(outcome, ShapeDiffers) and shapes[0] is not None and shapes[1] is not None:
        # Rows behind one another, or as a batch, may be the same tokens.
        return (str(shapes[0]), str(shapes[1])) if len(shapes[0]) == len(shapes[1]) else None
    if not isinstance(outcome, Compared) or not isinstance(outcome.metrics, Metrics):
        return None
    greatest = outcome.metrics.greatest_absolute
    if not greatest.value or not outcome.reference_dtype.startswith(("int", "uint")):
        return None
    where = f"at {list(greatest.index)}"
    return f"{greatest.reference} {where}", f"{greatest.candidate} {where}"


def _jump(errors: list[tuple[Pair, float]]) -> tuple[Pair, float, float] | None:
    greatest = 0.0
    for pair, error in errors:
        floor = max(greatest, _unit(pair))
        if error > _JUMP * floor:
            return pair, error, floor
        greatest = max(greatest, error)
    return None


def _unit(pair: Pair) -> float:
    dtype = pair.outcome.candidate_dtype if isinstance(pair.outcome, Compared) else ""
    return _ROUNDING.get(dtype, 2.0**-24)


def _guilty(pair: Pair, error: float, floor: float) -> Guilty:
    module, candidate = _module(pair.reference.name), _module(pair.candidate.name)
    return Guilty(
        module=module,
        candidate_module=candidate,
        tensor=pair.reference.name,
        candidate_tensor=pair.candidate.name,
        between=None,
        spot=Spot(step=pair.reference.step, row=0, position=None),
        local_error=error,
        bound=floor,
        excess=error / floor,
        where=("by the jump of the whole error, without a replay",),
    )


def _module(name: str) -> str:
    """Return the module whose code computes a tensor: the caller's, for an input."""
    parsed = parse_tensor_name(name)
    if parsed is None:
        return name
    return parsed.module.rpartition(".")[0] if parsed.side == "input" else parsed.module


def _draft(
    compared: Comparison,
    reference: Dump,
    candidate: Dump,
    inputs: tuple[InputDifference, ...],
    errors: list[tuple[Pair, float]],
) -> Diagnosis:
    modules = {_module(entry.name) for entry in reference.entries}
    checked = {_module(pair.reference.name) for pair, _ in errors}
    missing = []
    if not errors or compared.cut_short:
        missing.append("a part of the dumps could not be compared")
    missing += [*_no_numbers(compared), *_unlike(compared)]
    return Diagnosis(
        verdict=Judgement.INCONCLUSIVE if missing else Judgement.AGREE,
        sentence="",
        reference_engine=reference.engine or "reference",
        candidate_engine=candidate.engine or "candidate",
        coverage=Coverage(
            paired=len(compared.pairs),
            unpaired=sum(item.side is Side.CANDIDATE for item in compared.unpaired),
            replayed=0,
            modules=len(modules),
            modules_checked=len(checked & modules),
        ),
        inputs=inputs,
        growth=tuple(
            Growth(
                tensor=pair.reference.name,
                inherited=error,
                local=float("nan"),
                excess=float("nan"),
            )
            for pair, error in errors
        ),
        missing=tuple(missing),
        unpaired=tuple(item.tensor for item in compared.unpaired),
        notes=(*compared.notes, *reference.notes, *candidate.notes, _NOTE),
    )


def _no_numbers(compared: Comparison) -> Iterator[str]:
    """Say where the reference cannot be judged by, as a replay would."""
    for pair in compared.pairs:
        counts = pair.outcome.non_finite if isinstance(pair.outcome, Compared) else None
        parsed = parse_tensor_name(pair.reference.name)
        if counts is None or (parsed is not None and parsed.side == "input"):
            continue
        if counts.nan_both or counts.nan_reference_only:
            name = pair.reference.name
            yield f"the reference itself gives values that are no numbers, first at {name}"
            return


def _unlike(compared: Comparison) -> Iterator[str]:
    """Say which tensors have no distance, being of unlike shape or kind of numbers."""
    names = [
        pair.reference.name
        for pair in compared.pairs
        if isinstance(pair.outcome, ShapeDiffers | KindDiffers)
    ]
    if names:
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        yield f"the sides differ in shape or kind of numbers at {names[0]}{more}"


def _with(draft: Diagnosis, *, cause: Cause, guilty: Guilty | None = None) -> Diagnosis:
    if guilty is None:
        return replace(draft, verdict=Judgement.DIVERGE, cause=cause)
    culprit = Culprit(
        side=Side.CANDIDATE,
        engine=draft.candidate_engine,
        module=guilty.module,
        candidate_module=guilty.candidate_module,
        tensor=guilty.tensor,
        between=None,
        spot=guilty.spot,
    )
    return replace(draft, verdict=Judgement.DIVERGE, cause=cause, culprit=culprit, guilty=(guilty,))
