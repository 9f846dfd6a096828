"""Which cause is named, and how sure it is, from what was tried and what was seen."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from comparison.schema.diagnosis import Cause
from diagnosis.causes.advice import ADVICE
from diagnosis.causes.changes import with_attributes
from diagnosis.causes.confidence import of_finding, share_of
from diagnosis.causes.judging import is_lost, judged_anew, part_of, size_of
from diagnosis.causes.naming import likelier, named
from diagnosis.causes.search import Explanation
from diagnosis.causes.trial import FittedTrial, OutputTrial, RunTrial, Sign
from diagnosis.causes.trying import Finding, is_neutral, plain, tried
from tests.diagnosis.causes.made_region import LENGTHS, MadeRegion, check_of, numbers

N = sum(LENGTHS)
SCALE = Finding(
    cause="scale", says="doubles it", expects="", residual=0.5, explained=True, numbers=1, value=2.0
)
NOTHING = Explanation(reproducing=(), signs=(), tried=70, nearest=None, unexplained=400.0)


def test_what_gives_the_values_is_named_with_its_alternatives() -> None:
    other = replace(SCALE, cause="bias", says="adds one", value=None)
    found = named(replace(NOTHING, reproducing=(SCALE, other, replace(SCALE, says="again"))))
    assert (found.id, found.evidence, found.value) == ("scale", "doubles it", 2.0)
    assert found.alternatives == ("bias: it adds one",)
    assert (found.residual, found.unexplained) == (0.5, 400.0)
    assert found.confidence == pytest.approx(share_of("scale") * 0.85, abs=0.01)
    assert found.advice == ADVICE["scale"]


def test_a_sign_is_as_sure_as_its_cause_at_most() -> None:
    sure, unsure = (Sign(cause="mask", says="shows keys", weight=w) for w in (0.99, 0.3))
    assert named(replace(NOTHING, signs=(sure,))).confidence == round(share_of("mask"), 2)
    assert named(replace(NOTHING, signs=(unsure,))).confidence == 0.3


def test_without_either_the_nearest_is_told() -> None:
    assert named(NOTHING).evidence.startswith("gives what none of the 70 things that were tried")
    near = named(replace(NOTHING, nearest=replace(SCALE, explained=False)))
    assert near.evidence.endswith("; the nearest: it doubles it")
    assert (near.id, near.confidence) == ("unknown", None)


def test_equal_weights_are_not_to_blame_though_other_ones_give_the_values() -> None:
    rows = replace(SCALE, cause="weights", says="has rows of the weight times a factor", value=None)
    ruled_out = {"weights", "tied_weights"}
    only = replace(NOTHING, reproducing=(rows,))
    assert named(only).id == "weights"
    found = named(only, ruled_out=ruled_out)
    assert (found.id, found.confidence, found.alternatives) == ("unknown", None, ())
    assert found.evidence == (
        "gives what a module would that has rows of the weight times a factor; but the recorded "
        "weights are equal: look at what is done to the product with them"
    )
    scales = replace(rows, cause="quantization", needs_other_weight=True)
    assert named(replace(NOTHING, reproducing=(scales, rows)), ruled_out=ruled_out).id == "unknown"
    both = named(replace(NOTHING, reproducing=(rows, SCALE)), ruled_out=ruled_out)
    assert (both.id, both.alternatives) == ("scale", ())
    assert "nearest" not in named(replace(NOTHING, nearest=rows), ruled_out=ruled_out).evidence
    other = replace(rows, needs_other_weight=False)  # as code takes that of another module
    assert named(replace(NOTHING, reproducing=(other,)), ruled_out=ruled_out).id == "weights"


@pytest.mark.parametrize(
    ("change", "most"),
    [({}, 1.0), ({"numbers": 3}, 0.8), ({"in_longest_row": True, "numbers": 3}, 0.75)],
)
def test_the_more_numbers_the_less_sure(change: dict[str, object], most: float) -> None:
    found = replace(SCALE, **change)  # type: ignore[arg-type]  # its fields
    assert of_finding(found, alternatives=0) == round(min(share_of("scale"), most), 2)
    assert share_of("a cause that was never named") == 0.5


RECORDED = Cause(id="weights", evidence="loads another weight")
TRIED = Cause(id="weights", evidence="has zeros in row 3", residual=0.5)


def test_what_the_weights_say_and_what_was_tried() -> None:
    assert likelier(None, None) == Cause()
    assert likelier(None, RECORDED) is RECORDED
    assert likelier(TRIED, None) is TRIED
    assert likelier(TRIED, RECORDED) == replace(TRIED, confidence=0.95)
    scale = replace(TRIED, id="scale")  # which another weight may look like
    assert likelier(scale, RECORDED).evidence == "loads another weight"
    assert likelier(scale, RECORDED).confidence == 0.95
    both = likelier(scale, replace(RECORDED, id="scale"))
    assert both.evidence == "has zeros in row 3, and loads another weight"
    assert likelier(Cause(), RECORDED).id == "weights"


EXACT = numbers(N, 6)


class Made(MadeRegion):
    """A region that multiplies what goes in by an attribute of its module."""

    def values(self, change: object = None, *, calls: object = None) -> dict[str, np.ndarray]:
        rows = self.positions[:, 0]
        kept = [call.row for call in (self.calls if calls is None else calls)]  # type: ignore[attr-defined]  # calls
        with change():  # type: ignore[operator]  # a change
            if self.module.factor < 0:
                raise ValueError("not with this factor")
            found = EXACT * self.module.factor
        return {self.first.name: found[np.isin(rows, kept)]}


def made(target: np.ndarray) -> Made:
    module = torch.nn.Module()
    module.factor = 1.0  # type: ignore[assignment]  # a plain number
    return Made(module, check_of("model.mlp-output", EXACT, target))


def run(region: Made, factor: float) -> RunTrial:
    return RunTrial(
        cause="scale",
        says="multiplies",
        change=lambda: with_attributes(region.module, {"factor": factor}),
    )


def test_a_change_that_is_run() -> None:
    region = made(EXACT * 2)
    found = tried(region, run(region, 2.0))
    assert found is not None
    assert found.explained
    assert found.residual < 1
    half = tried(region, run(region, 1.5))
    assert half is not None
    assert not half.explained
    assert tried(region, run(region, 0.5)) is None  # it makes it worse
    assert tried(region, run(region, -1.0)) is None  # it cannot run


def test_a_number_that_is_sought() -> None:
    region = made(EXACT * 2.5)
    trial = FittedTrial(
        cause="scale",
        says="multiplies by {value}",
        change=lambda value: with_attributes(region.module, {"factor": value}),
        starts=(1.5,),
        neutral=1.0,
    )
    found = tried(region, trial)
    assert found is not None
    assert (found.says, found.value, found.explained) == ("multiplies by 2.5", 2.5, True)
    assert tried(made(EXACT), replace(trial, change=run(made(EXACT), 1.0).change)) is None  # type: ignore[arg-type]  # takes none


@pytest.mark.parametrize(
    ("predict", "is_found"),
    [
        (lambda y: y * 2, True),
        (lambda y: y[:3], False),
        (lambda y: y * np.nan, False),
        (lambda y: y @ y, False),
    ],
)
def test_an_output_that_is_changed(predict: object, is_found: bool) -> None:
    trial = OutputTrial(cause="scale", says="doubles it", predict=predict, numbers=1, value=2.0)  # type: ignore[arg-type]  # a function
    found = tried(made(EXACT * 2), trial)
    assert (found is not None) == is_found
    if found is not None:
        assert (found.explained, found.numbers, found.value) == (True, 1, 2.0)


def test_numbers_are_rounded_where_a_round_one_is_near() -> None:
    assert plain(1.9999999) == 2.0
    assert plain(0.1234567) == 0.1234567
    assert is_neutral(1.00005, 1.0)
    assert not is_neutral(1.1, 1.0)
    assert not is_neutral(1.0, None)


def test_checks_that_are_judged_anew() -> None:
    check = check_of("model-output", EXACT, EXACT * 2)
    again = judged_anew(check, EXACT * 2)
    assert size_of(again) == 0.0
    assert again.floor is not None
    assert check.floor is not None
    assert again.floor.whole == pytest.approx(2 * check.floor.whole)  # larger values round more
    assert size_of(check) > 1e5
    assert not is_lost(again)
    lost = judged_anew(check, np.where(EXACT > 0, np.inf, EXACT))
    assert is_lost(lost)
    assert lost.floor is not None
    cut = part_of(check, [0, 7])
    assert [(place.row, place.position) for place in cut.places] == [(0, 0), (1, 1)]
    ids = np.arange(N)
    whole = check_of("model-input_ids", ids, ids[::-1].copy(), is_exact=True)
    assert size_of(judged_anew(whole, ids)) == float("inf")
    assert size_of(judged_anew(whole, ids[::-1].copy())) == 0.0
