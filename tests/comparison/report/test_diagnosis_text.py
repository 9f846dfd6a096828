"""The console text of a diagnosis, line by line."""

from dataclasses import replace
from typing import Any

import pytest

from comparison.report.diagnosis_json import diagnosis_to_dict
from comparison.report.diagnosis_text import diagnosis_lines
from comparison.schema.comparison import UnpairedTensor
from comparison.schema.diagnosis import (
    Calibration,
    Cause,
    ConfigField,
    Coverage,
    Culprit,
    Diagnosis,
    Guilty,
    Harmless,
    InputDifference,
    Jitter,
    Judgement,
    Spot,
    TokenChoice,
)
from comparison.schema.outcome import Side

SPOT = Spot(step=2, row=1, position=7)
GUILTY = Guilty(
    module="model.layers.1.mlp",
    candidate_module="model.h.1.ffn",
    tensor="model.layers.1.mlp-output",
    candidate_tensor="model.h.1.ffn-output",
    between=None,
    spot=SPOT,
    local_error=0.125,
    bound=2.5e-7,
    excess=31,
)
JITTER = Jitter(tensor="model.norm-output", whole=1.5, worst=4, limit=2, raised=3)


def lines(**found: Any) -> list[str]:
    """Give the text without the verdict, its sentence, and what it rests on."""
    text = list(diagnosis_lines(diagnosis(**found)))
    assert text[:2] == [f"Verdict: {found.get('verdict', 'diverge')}", "It differs."]
    assert text[-2:] == [
        "",
        "Checked 6 of 7 modules: 8 tensors, all steps of one counted once, held against a replay "
        "of the reference; of the candidate's 10, counted in each step, 1 have no counterpart",
    ]
    return text[2:-2]


def diagnosis(**found: Any) -> Diagnosis:
    told = {"verdict": Judgement.DIVERGE, "sentence": "It differs."} | found
    coverage = Coverage(paired=9, unpaired=1, replayed=8, modules=7, modules_checked=6)
    return Diagnosis(reference_engine="torch", candidate_engine="max", coverage=coverage, **told)


def test_what_was_not_found_has_no_lines() -> None:
    assert lines() == []
    assert lines(verdict=Judgement.INCONCLUSIVE) == []


def test_an_agreement_says_how_modules_without_counterpart_are_checked() -> None:
    text = list(diagnosis_lines(diagnosis(verdict=Judgement.AGREE)))
    assert text[-1].endswith(
        "; what a module without a counterpart computes is checked with its neighbours"
    )
    whole = Coverage(paired=9, unpaired=1, replayed=8, modules=7, modules_checked=7)
    found = Diagnosis(
        verdict=Judgement.AGREE,
        sentence="",
        reference_engine="torch",
        candidate_engine="max",
        coverage=whole,
    )
    assert list(diagnosis_lines(found))[-1].endswith("counted in each step, 1 have no counterpart")


def test_a_cause_with_all_that_is_known_of_it() -> None:
    cause = Cause(
        id="scale",
        evidence="multiplies by 1.5",
        expected="multiplies by 2",
        residual=0.5,
        unexplained=420.0,
        confidence=0.98,
        alternatives=("softcap: a cap of 9",),
        advice="the scaling of the attention",
    )
    culprit = Culprit(
        side=Side.CANDIDATE,
        engine="max",
        module="model.layers.1.mlp",
        candidate_module=None,
        tensor="model.layers.1.mlp-output",
        between=None,
        spot=SPOT,
    )
    assert lines(cause=cause, culprit=culprit) == [
        "",
        "Cause: scale (confidence 98%)",
        "  the candidate multiplies by 1.5",
        "  in the reference multiplies by 2",
        "  done to the reference, that leaves 0.5 times rounding; without it are 420",
        "  as well: softcap: a cap of 9",
        "  look at: the scaling of the attention",
    ]


def test_a_cause_that_is_not_known_is_one_line() -> None:
    assert lines(cause=Cause()) == ["", "Cause: unknown"]
    assert lines(cause=Cause(evidence="adds 1")) == ["", "Cause: unknown", "  adds 1"]
    half = Cause(id="scale", residual=0.5)  # what is wrong without it was not tried
    assert lines(cause=half) == ["", "Cause: scale"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {},
            [
                "the candidate's: model.h.1.ffn",
                "shown by model.h.1.ffn-output",
                "local error 0.125, rounding explains 2.5e-07; at the worst place 31 times that",
            ],
        ),
        (
            {"candidate_module": None, "between": ("a-output", "b-output"), "bound": 0.0},
            ["its own computation, between a-output and b-output"],
        ),
        (
            {
                "candidate_module": "model.layers.1.mlp",
                "bound": 0.0,
                "reference_error": 0.5,
                "where": ("only head 3", "only columns 8-15"),
                "cause": Cause(id="scale", evidence="multiplies by 1.5"),
            },
            [
                "shown by model.h.1.ffn-output",
                "against float64 on the same inputs the candidate is off by 0.125, the reference "
                "by 0.5: the candidate is nearer",
                "only head 3, only columns 8-15",
                "cause scale: multiplies by 1.5",
            ],
        ),
        (
            {"bound": 0.0, "reference_error": 1e-8, "cause": Cause()},
            [
                "the candidate's: model.h.1.ffn",
                "shown by model.h.1.ffn-output",
                "against float64 on the same inputs the candidate is off by 0.125, the reference "
                "by 1e-08: the reference is nearer",
            ],
        ),
    ],
    ids=["measured", "between", "with a cause", "cause unknown"],
)
def test_evidence_of_a_guilty_module(change: dict[str, Any], said: list[str]) -> None:
    assert lines(guilty=(replace(GUILTY, **change),)) == [
        "",
        "Wrong by themselves, in order of execution:",
        "  1. model.layers.1.mlp",
        *(f"     {line}" for line in said),
    ]


def test_of_how_many_guilty_modules_a_cause_was_sought_is_said() -> None:
    explained = replace(GUILTY, cause=Cause())
    head = "Wrong by themselves, in order of execution"
    assert lines(guilty=(explained, GUILTY, GUILTY))[1] == f"{head}; a cause was sought for 1 of 3:"
    assert lines(guilty=(explained, explained))[1] == f"{head}:"
    assert lines(guilty=(GUILTY, GUILTY))[1] == f"{head}:"


def test_inputs_choices_and_what_is_harmless() -> None:
    choice = TokenChoice(spot=SPOT, reference=17, candidate=4, margin=0.25, noise=0.5)
    assert choice.is_tie
    found = lines(
        harmless=(Harmless(tensor="q_proj-output", reason="permuted, and undone"),),
        inputs=(
            InputDifference(
                kind="config", what="rope_theta", reference="10000", candidate="5e5", decisive=True
            ),
        ),
        choices=(choice, TokenChoice(spot=SPOT, reference=1, candidate=2, margin=0.5, noise=0.1)),
    )
    assert found == [
        "",
        "Different, and harmless:",
        "  q_proj-output: permuted, and undone",
        "",
        "Not the same on both sides:",
        "  config rope_theta: reference 10000, candidate 5e5",
        "",
        "Tokens chosen differently:",
        "  step 2, row 1: reference 17, candidate 4; margin 0.25, noise 0.5; rounding alone "
        "decides this (a tie)",
        "  step 2, row 1: reference 1, candidate 2; margin 0.5, noise 0.1",
    ]


def test_what_was_not_checked_for_one_reason_is_one_line() -> None:
    odd = "its value is of another shape in each row"
    found = diagnosis(
        missing=(*(f"layers.{n}.attn-output_1: {odd}" for n in range(30)), "x: no number: NaN")
    )
    assert [line for line in diagnosis_lines(found) if "not checked" in line] == [
        f"not checked: layers.0.attn-output_1 and 29 more: {odd}",
        "not checked: x: no number: NaN",
    ]


@pytest.mark.parametrize(
    ("kind", "item"),
    [
        ("guilty", GUILTY),
        ("harmless", Harmless(tensor="a", reason="b")),
        (
            "inputs",
            InputDifference(kind="mask", what="m", reference="1", candidate="2", decisive=False),
        ),
        ("choices", TokenChoice(spot=SPOT, reference=1, candidate=2, margin=0.5, noise=0.1)),
    ],
)
def test_of_long_lists_the_rest_is_counted(kind: str, item: object) -> None:
    left = "  ... 2 more, see --json"
    assert lines(**{kind: (item,) * 12})[-1] == left
    assert not any("see --json" in line for line in lines(**{kind: (item,) * 10}))


def test_of_a_long_calibration_the_rest_is_counted() -> None:
    some = Calibration(
        runs=("alone",), tensors=40, greatest=JITTER, raised=(JITTER,) * 11, beyond=(JITTER,) * 13
    )
    text = lines(calibration=some)
    assert sum("limit raised" in line for line in text) == 10
    assert sum("its limit stays" in line for line in text) == 10
    assert [line for line in text if "see --json" in line] == [
        "  ... 1 more, see --json",
        "  ... 3 more, see --json",
    ]


def test_missing_parts_notes_and_unpaired_tensors_follow_the_coverage() -> None:
    lone = UnpairedTensor(side=Side.CANDIDATE, tensor="x-output", step=0, rank=None, reason="extra")
    found = diagnosis(
        missing=tuple(f"part {n}" for n in range(12)), notes=("cached",), unpaired=(lone,)
    )
    text = list(diagnosis_lines(found))
    behind = text[[line.startswith("Checked ") for line in text].index(True) + 1 :]
    assert behind == [
        *(f"not checked: part {n}" for n in range(10)),
        "not checked: 2 more, see --json",
        "note: cached",
        "",
        "Only in the candidate: 1 tensor(s)",
        "  1: extra (x-output)",
    ]


def test_fields_of_the_configuration() -> None:
    fields = (
        ConfigField(field="theta", value=5e5, default=1e4, reference_reads=(), candidate_reads=()),
        ConfigField(field="cap", value=9, default=9, reference_reads=(), graph_changes=False),
        ConfigField(
            field="eps", value=1, default=9, reference_reads=(), candidate_reads=("a",),
            graph_changes=True,
        ),
    )  # fmt: skip
    heading = [
        "",
        "Config audit: fields that the reference reads and that do not reach the candidate",
    ]
    assert lines(config_audit=fields) == [
        *heading,
        "  theta = 500000.0 (default 10000.0): the candidate never reads it",
        "  cap = 9 (the default): another value leaves its graph and weights as they are",
        "  eps = 1 (default 9): another value changes its graph or weights all the same",
    ]
    assert lines(config_audit=()) == [*heading, "  none"]
    audit = diagnosis_to_dict(diagnosis(config_audit=fields))["config_audit"]
    assert [field["non_default"] for field in audit] == [True, False, True]


def test_calibration() -> None:
    runs = ("alone", "in a batch")
    heading = ["", "Calibration: 40 tensors, the candidate run alone and in a batch"]
    equal = Calibration(runs=runs, tensors=40)
    assert lines(calibration=equal) == [*heading, "  no difference between its own runs"]
    some = Calibration(runs=runs, tensors=40, greatest=JITTER, raised=(JITTER,), beyond=(JITTER,))
    told = "model.norm-output, 1.5 times rounding, 4 at the worst place"
    assert lines(calibration=some) == [
        *heading,
        f"  greatest difference between its own runs: {told}",
        "  limit raised from 2 to 3: model.norm-output",
        f"  more than jitter, its limit stays: {told}",
    ]


def test_each_of_several_candidates_has_its_own_part() -> None:
    named = diagnosis(candidate_name="b.pt", cause=Cause())
    found = diagnosis(candidates=(diagnosis(), named), cause=Cause())
    text = list(diagnosis_lines(found))
    assert text[2:6] == ["", "Candidate 1, max:", "Verdict: diverge", "It differs."]
    at = text.index("Candidate 2, b.pt:")
    assert text[at + 1 : at + 5] == ["Verdict: diverge", "It differs.", "", "Cause: unknown"]
    assert text.count("Cause: unknown") == 1  # what joins them shows nothing of its own


def test_control_characters_of_names_are_spelled_out() -> None:
    hostile = replace(GUILTY, module="a\x1b[2Jb", candidate_tensor="c\nd")
    text = lines(guilty=(hostile,), notes=())
    assert not any("\x1b" in line or "\n" in line for line in text)


def test_a_notebook_shows_the_guilty_modules() -> None:
    html = diagnosis(guilty=(GUILTY,))._repr_html_()
    assert "<td>model.layers.1.mlp</td><td>2</td><td>1</td><td>0.125</td><td>2.5e-07</td>" in html
    assert "#cf222e" in html
    assert "<table>" not in diagnosis()._repr_html_()
    assert "#9a6700" in diagnosis(verdict=Judgement.INCONCLUSIVE)._repr_html_()


def test_two_dumps_without_a_replay_claim_none() -> None:
    coverage = Coverage(paired=9, unpaired=1, replayed=0, modules=7, modules_checked=6)
    found = replace(diagnosis(), coverage=coverage)
    assert list(diagnosis_lines(found))[-1] == (
        "Checked 6 of 7 modules: the two dumps' tensors held against each other, and none against "
        "a replay; of the candidate's 10, counted in each step, 1 have no counterpart"
    )
