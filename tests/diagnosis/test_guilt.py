"""When a tensor is wrong, where in it, what is said of that, and what several candidates tell."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from comparison.schema.diagnosis import (
    Calibration,
    Cause,
    Coverage,
    Culprit,
    Diagnosis,
    Guilty,
    Harmless,
    InputDifference,
    Jitter,
    Judgement,
    Spot,
)
from diagnosis.check import Check, Place
from diagnosis.finding import Finding
from diagnosis.gaps import gap_before
from diagnosis.guilt import is_guilty, limits_of
from diagnosis.healing import CONSTANT_SHIFT, harmless_differences
from diagnosis.location import bad_channels, bad_places, describe_where, spot_of
from diagnosis.replay.reference_calls import ReferenceCall
from diagnosis.replay.reference_trace import TracedTensor
from diagnosis.run_figures import drift_of
from diagnosis.sentence import sentence_of
from diagnosis.vote import vote
from tests.diagnosis.causes.made_region import LENGTHS, check_of, numbers

N = sum(LENGTHS)
EXACT = numbers(N, 40)
CALLS = tuple(ReferenceCall(kwargs={}, tokens=n, prompt_tokens=n - 1) for n in LENGTHS)
NAME = "model.layers.1.mlp-output"


def wrong(places: Any, channels: Any = slice(None), *, by: float = 1.0, name: str = NAME) -> Check:
    target = EXACT.copy()
    target[np.ix_(np.arange(N)[places], np.arange(40)[channels])] += by
    return check_of(name, EXACT, target)


@pytest.mark.parametrize(
    ("check", "phrases"),
    [
        (wrong(slice(None)), ("at all tokens",)),
        (wrong(slice(6, 11)), ("only in row 1 of 2", "at all tokens")),
        (wrong([2, 3, 4, 5]), ("only in row 0 of 2", "from token 2 on, exact before")),
        (wrong([1, 3]), ("only in row 0 of 2", "at tokens 1, 3")),
        (
            wrong([5, 10]),
            (
                "only in decode steps, from step 1 on",
                "from token 5 on, exact before",
                "from token 4 on, exact before",
            ),
        ),
        (wrong(slice(None), slice(8, 12)), ("at all tokens", "in channels 8 to 11 of 40")),
        (
            wrong(slice(None), slice(0, 20, 2)),
            ("at all tokens", "in channels 0, 2, 4, 6, 8, 10, 12, 14 and 2 more of 40"),
        ),
    ],
)
def test_where_a_tensor_is_wrong(check: Check, phrases: tuple[str, ...]) -> None:
    assert describe_where(check, CALLS) == phrases
    assert is_guilty(check)


def test_where_nothing_stands_out_the_worst_place_is_told() -> None:
    tiny = np.full(EXACT.shape, 1e-8)
    tiny[7] *= 3
    check = check_of(NAME, EXACT, EXACT + tiny)
    assert bad_places(check) == (Place(row=1, position=1),)
    assert not is_guilty(check)


def test_integers_are_wrong_where_they_are_unequal_and_have_no_channels() -> None:
    ids = np.arange(N)
    check = check_of("model-input_ids", ids, ids[::-1].copy(), is_exact=True)
    places = (Place(row=0, position=2),)
    check = replace(check, unequal=places)
    assert bad_places(check) == places
    assert bad_channels(check).size == 0
    assert describe_where(check, CALLS) == ("only in row 0 of 2", "at tokens 2")


def test_inputs_without_tokens_have_no_positions() -> None:
    images = tuple(ReferenceCall(kwargs={}) for _ in LENGTHS)
    assert spot_of(Place(row=1, position=3), images) == Spot(step=0, row=1, position=None)
    assert describe_where(wrong([1]), images) == ()


@pytest.mark.parametrize(
    ("changes", "whole"),
    [
        ({}, 8.0),
        ({"dtype": "bfloat16", "longest_sum": 9}, 3.0),
        ({"dtype": "bfloat16"}, 1.3),  # it only rounds its result
        ({"dtype": "float16", "since": ("a", "b")}, 6.0),
        ({"dtype": "bfloat16", "name": "model.layers.1-input_0"}, 6.0),
        ({"raised": (9.0, 9.0, 9.0)}, 9.0),
    ],
)
def test_limits(changes: dict[str, Any], whole: float) -> None:
    assert limits_of(replace(wrong([1]), **changes)).whole == whole


def drifting(by: float, name: str = NAME) -> Check:
    return wrong(slice(None), by=by, name=name)


def test_an_end_that_is_off_though_no_module_is_wrong() -> None:
    assert drift_of([drifting(1e-8)], ()) is None
    assert drift_of([], ()) is None
    far = drift_of([drifting(0.5)], ())
    assert far is not None
    assert far > 8
    known = Harmless(tensor=NAME, reason="permuted")
    assert drift_of([drifting(0.5)], [known]) is None
    logits = drifting(0.5, "model-output_logits")
    assert drift_of([logits], ()) is not None
    shifted = Harmless(tensor="model.lm_head-output", reason=CONSTANT_SHIFT)
    assert drift_of([logits], [shifted]) is None


class NoReplay:
    """A checker that is asked for nothing."""

    def again(self, checks: Sequence[Check], *, unpinned: object) -> dict[str, Check]:
        return {check.name: check for check in checks}


def test_logits_that_are_off_by_a_constant_are_right() -> None:
    shift = numbers(N, 1, seed=2)
    check = check_of("model.lm_head-output", EXACT, EXACT + shift)
    assert is_guilty(check)
    (found,) = harmless_differences(NoReplay(), [check], [check])  # type: ignore[arg-type]  # asked for nothing
    assert found == Harmless(tensor="model.lm_head-output", reason=CONSTANT_SHIFT)
    for other in (
        check_of(NAME, EXACT, EXACT + shift),  # no logits
        check_of("model.lm_head-output", EXACT, EXACT * 2),
        check_of("model.lm_head-output", EXACT, np.where(EXACT > 2, np.inf, EXACT + shift)),
    ):
        assert list(harmless_differences(NoReplay(), [other], [other])) == []  # type: ignore[arg-type]  # as above


def traced(*names: str, dtype: str = "float32") -> dict[str, TracedTensor]:
    return {
        name: TracedTensor(name=name, owner=name.rpartition("-")[0], dtype=dtype) for name in names
    }


BETWEEN = traced(
    "model.embed-input_0",
    "model.embed-output",
    *(f"model.layers.{n}-{side}" for n in range(5) for side in ("input_0", "output")),
    "model.norm-input_0",
    "model.norm-output",
)


@pytest.mark.parametrize(
    ("last", "name", "phrase"),
    [
        ("model.layers.0-output", "model.layers.2-output", "layer 1 is absent from this dump"),
        ("model.layers.0-output", "model.layers.4-output", "layers 1..3 are absent from this dump"),
        ("model.layers.3-output", "model.norm-output", "1 module in between are absent"),
        ("model.embed-output", "model.norm-output", "5 modules in between are absent"),
    ],
)
def test_stretches_without_a_tensor(last: str, name: str, phrase: str) -> None:
    check = replace(wrong([1], name=name), order=9)
    before = replace(wrong([], name=last), order=2)
    found = gap_before(check, [before, check], BETWEEN)
    assert found is not None
    assert (found.owner, found.last) == ("model", last)
    assert found.phrases[0].endswith(phrase) or phrase in found.phrases[0]


def test_no_gap_where_nothing_is_missing_or_known() -> None:
    check = replace(wrong([1], name="model.layers.1-output"), order=9)
    before = replace(wrong([], name="model.layers.0-output"), order=2)
    assert gap_before(check, [before, check], BETWEEN) is None
    assert gap_before(check, [check], BETWEEN) is None
    ids = traced("model.embed-input_0", "model.embed-output", dtype="int64")
    embedding = replace(wrong([1], name="model.embed-output"), order=9)
    assert gap_before(embedding, [before, embedding], ids) is None


COVERAGE = Coverage(paired=9, unpaired=0, replayed=9, modules=7, modules_checked=7)
GUILTY = Guilty(
    module="model.mlp",
    candidate_module="model.mlp",
    tensor=NAME,
    candidate_tensor=NAME,
    between=None,
    spot=Spot(step=1, row=0, position=4),
    local_error=0.5,
    bound=1e-6,
    excess=9,
)


def said(**found: Any) -> str:
    told = {"verdict": Judgement.DIVERGE, "reference_engine": "torch", "candidate_engine": "max"}
    return sentence_of(Diagnosis(sentence="", coverage=COVERAGE, **{**told, **found})).sentence


def given(kind: str, what: str, reference: str, candidate: str) -> InputDifference:
    return InputDifference(
        kind=kind, what=what, reference=reference, candidate=candidate, decisive=True
    )


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        (
            {"guilty": (GUILTY,)},
            "max first goes wrong in model.mlp (step 1, row 0, token 4): its own error there is "
            "0.5 of the tensor's size, 5e+05 times what rounding explains.",
        ),
        (
            {"guilty": (replace(GUILTY, local_error=float("inf")),)},
            "max first goes wrong in model.mlp (step 1, row 0, token 4): there are values that are "
            "no numbers, or infinite, where the reference has others.",
        ),
        (
            {
                "guilty": (
                    replace(
                        GUILTY, bound=0.0, spot=Spot(step=0, row=0, position=None, rank=1),
                        between=("a-output", "b-output"),
                    ),
                )
            },
            "max first goes wrong in model.mlp, in its own computation between a-output and "
            "b-output (step 0, row 0, rank 1): integers and masks have to be equal, and are not.",
        ),
        (
            {"cause": Cause(id="drift", evidence="9 times rounding")},
            "max drifts away from torch without any one module to blame (7 of 7 modules were "
            "checked): its end is off by 9 times rounding.",
        ),
        (
            {"inputs": (given("observer", "hooks", "7", "8"),)},
            "Capture changes what max computes: without hooks its first step is 8, so what was "
            "captured is not what it does by itself; no module is blamed.",
        ),
        (
            {"inputs": (given("config", "rope_theta", "1e4", "5e5"),)},
            "The two runs were not given the same: rope_theta is 1e4 for the reference and 5e5 for "
            "the candidate; no module is blamed.",
        ),
        (
            {"verdict": Judgement.INCONCLUSIVE},
            "Nothing can be said: nothing could be checked.",
        ),
    ],
)  # fmt: skip
def test_sentences(found: dict[str, Any], sentence: str) -> None:
    assert said(**found) == sentence


@pytest.mark.parametrize(("whole", "is_noise"), [(4e5, True), (200.0, False)])
def test_the_sentence_says_that_the_candidates_own_runs_differ_there(
    whole: float, is_noise: bool
) -> None:
    own = Jitter(tensor=NAME, whole=whole, worst=9e5, limit=8.0, raised=8.0)
    calibration = Calibration(runs=("once more",), tensors=9, beyond=(own,))
    sentence = said(guilty=(GUILTY,), calibration=calibration)
    assert f"; but its own runs differ there by {whole:,.3g} times what rounding" in sentence
    assert ("it may be noise" in sentence) == is_noise
    other = replace(calibration, beyond=(replace(own, tensor="model.a-output"),))
    assert "its own runs" not in said(guilty=(GUILTY,), calibration=other)


def finding(check: Check, *, culprit: Culprit | None = None) -> Finding:
    diagnosis = Diagnosis(
        verdict=Judgement.DIVERGE,
        sentence="max is wrong.",
        reference_engine="torch",
        candidate_engine="max",
        coverage=COVERAGE,
        culprit=culprit,
    )
    return Finding(diagnosis=diagnosis, guilty={check.name: check})


def test_candidates_of_one_error_speak_against_the_reference_and_others_do_not() -> None:
    one = finding(wrong([1]))
    found = vote([one, finding(wrong([1], by=1.01))])
    assert "is the odd one out" in found.sentence
    assert found.sentence.startswith("torch, the reference, is the odd one out: candidate 1 and ")
    ids = np.arange(N)
    others = [
        wrong([1], by=-1.0),
        replace(wrong([1]), places=wrong([1]).places[::-1]),
        check_of(NAME, EXACT[:, :3], EXACT[:, :3] + 1),
        check_of(NAME, ids, ids + 1, is_exact=True),
    ]
    for other in others:
        assert "odd one out" not in vote([one, finding(other)]).sentence
    assert vote([one]) is one.diagnosis
    nothing = Finding(diagnosis=one.diagnosis, guilty={})
    assert vote([nothing, one]).sentence == "max is wrong. max is wrong."
