"""comparison.history: what became of faults, from files that --json wrote."""

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from comparison.history.fault_history import fault_history
from comparison.history.saved_result import read_result
from comparison.pipeline import CompareOptions, compare
from comparison.report.diagnosis_json import diagnosis_to_json
from comparison.report.history_json import history_to_json
from comparison.report.history_text import history_lines
from comparison.report.json_report import comparison_to_json
from comparison.schema.diagnosis import (
    Cause,
    Coverage,
    Diagnosis,
    Growth,
    Guilty,
    Judgement,
    Spot,
)
from comparison.schema.errors import BadInputError, CorruptFileError, UnsupportedFormatError
from comparison.schema.fault_history import FaultHistory
from comparison.schema.tolerance import Tolerance

LAYERS = [f"model.layers.{n}.mlp" for n in range(12)]


def guilty(module: str, cause: str = "scale", **spot: int) -> Guilty:
    return Guilty(
        module=module,
        candidate_module=module,
        tensor=f"{module}-output",
        candidate_tensor=f"{module}-output",
        between=None,
        spot=Spot(**{"step": 0, "row": 0, "position": None, **spot}),
        local_error=0.25,
        bound=1e-6,
        excess=250000.0,
        cause=Cause(id=cause),
    )


def diagnosis(*faults: Guilty, replayed: int = 12, **fields: Any) -> Diagnosis:
    return Diagnosis(
        **{
            "verdict": Judgement.DIVERGE if faults else Judgement.AGREE,
            "sentence": "so it is",
            "reference_engine": "torch",
            "candidate_engine": "max",
            "coverage": Coverage(
                paired=12, unpaired=0, replayed=replayed, modules=12, modules_checked=12
            ),
            "guilty": faults,
            "growth": tuple(
                Growth(tensor=f"{module}-output", inherited=0.0, local=0.0, excess=0.0)
                for module in LAYERS
            ),
            **fields,
        }
    )


def history(tmp_path: Path, old: Diagnosis, new: Diagnosis) -> FaultHistory:
    results = []
    for name, found in (("old", old), ("new", new)):
        path = tmp_path / f"{name}.json"
        path.write_text(diagnosis_to_json(found))
        results.append(read_result(path))
    return fault_history(*results)


def subjects(faults: Any) -> list[str]:
    return [fault.subject for fault in faults]


def test_each_fault_is_fixed_new_moved_or_unchanged(tmp_path: Path) -> None:
    old = diagnosis(
        guilty(LAYERS[1]), guilty(LAYERS[3], "bias"), guilty(LAYERS[5], "eps"), guilty("model.norm")
    )
    new = diagnosis(
        guilty(LAYERS[1]),
        guilty(LAYERS[9], "eps"),
        guilty("model.norm", step=2),
        guilty(LAYERS[10], "bias_of_another_kind"),
    )
    found = history(tmp_path, old, new)
    assert subjects(found.fixed) == [LAYERS[3]]
    assert subjects(found.added) == [LAYERS[10]]
    assert [(a.subject, b.subject) for a, b in found.moved] == [
        ("model.norm", "model.norm"),
        (LAYERS[5], LAYERS[9]),
    ]
    assert [a.subject for a, _ in found.unchanged] == [LAYERS[1]]
    assert found.unchecked == ()
    assert found.exit_code == 1
    text = "\n".join(history_lines(found))
    assert "Faults: 1 new, 2 moved, 1 fixed, 1 unchanged" in text
    assert f"was in {LAYERS[5]}" in text
    assert "was at step 0, row 0" in text
    assert json.loads(history_to_json(found))["moved"][1]["now"]["module"] == LAYERS[9]


def test_layer_one_is_not_layer_ten(tmp_path: Path) -> None:
    found = history(tmp_path, diagnosis(guilty(LAYERS[1])), diagnosis(guilty(LAYERS[10], "eps")))
    assert subjects(found.fixed) == [LAYERS[1]]
    assert subjects(found.added) == [LAYERS[10]]


def test_unknown_causes_are_not_taken_for_one_that_moved(tmp_path: Path) -> None:
    old, new = guilty(LAYERS[1], "unknown"), guilty(LAYERS[2], "unknown")
    found = history(tmp_path, diagnosis(old), diagnosis(new))
    assert subjects(found.added) == [LAYERS[2]]
    assert found.moved == ()


def test_nothing_wrong_in_either(tmp_path: Path) -> None:
    found = history(tmp_path, diagnosis(), diagnosis())
    assert found.exit_code == 0
    assert next(history_lines(found)) == "Faults: none in either result"


def test_what_was_not_checked_again_is_not_fixed(tmp_path: Path) -> None:
    old = diagnosis(guilty(LAYERS[1]))
    unseen = replace(diagnosis(), growth=diagnosis().growth[3:])
    found = history(tmp_path, old, unseen)
    assert (subjects(found.unchecked), found.fixed, found.exit_code) == ([LAYERS[1]], (), 2)
    undecided = diagnosis(verdict=Judgement.INCONCLUSIVE)
    assert subjects(history(tmp_path, old, undecided).unchecked) == [LAYERS[1]]
    assert history(tmp_path, diagnosis(), undecided).exit_code == 2


def test_first_fault_without_a_replay_hides_others(tmp_path: Path) -> None:
    old = diagnosis(guilty(LAYERS[1], "bias"))
    found = history(tmp_path, old, diagnosis(guilty(LAYERS[0]), replayed=0))
    assert subjects(found.unchecked) == [LAYERS[1]]
    assert any("may hide others" in note for note in found.notes)


def test_cause_without_a_module(tmp_path: Path) -> None:
    tokens = diagnosis(verdict=Judgement.DIVERGE, cause=Cause(id="tokens", evidence="row 1"))
    assert subjects(history(tmp_path, tokens, diagnosis()).fixed) == ["tokens"]
    assert subjects(history(tmp_path, diagnosis(), tokens).added) == ["tokens"]


def test_candidates_are_kept_apart(tmp_path: Path) -> None:
    both = diagnosis(
        guilty(LAYERS[1]),
        candidates=(
            replace(diagnosis(guilty(LAYERS[1])), candidate_engine="max"),
            replace(diagnosis(guilty(LAYERS[1])), candidate_engine="vllm"),
        ),
    )
    sound = replace(both.candidates[1], verdict=Judgement.AGREE, guilty=())
    one = replace(both, candidates=(both.candidates[0], sound))
    found = history(tmp_path, both, one)
    assert [(f.candidate, f.subject) for f in found.fixed] == [("vllm", LAYERS[1])]
    assert [b.candidate for _, b in found.unchanged] == ["max"]


def comparison_file(folder: Path, shifts: dict[str, float], *, rtol: float | None) -> Path:
    folder.mkdir()
    sides = []
    for side in ("a", "b"):
        (folder / side).mkdir()
        for name in ("x-output", "y-output", "z-output"):
            values = np.arange(1, 8, dtype="float32")
            np.save(folder / side / f"{name}.npy", values + (side == "b") * shifts.get(name, 0.0))
        sides.append(folder / side)
    tolerance = None if rtol is None else Tolerance(rtol=rtol)
    file = folder / "result.json"
    file.write_text(comparison_to_json(compare(*sides, CompareOptions(tolerance=tolerance))))
    return file


def test_two_comparisons(tmp_path: Path) -> None:
    old = comparison_file(tmp_path / "old", {"x-output": 1.0, "y-output": 1.0}, rtol=1e-3)
    new = comparison_file(tmp_path / "new", {"y-output": 1.0, "z-output": 1.0}, rtol=1e-4)
    found = fault_history(read_result(old), read_result(new))
    assert subjects(found.fixed) == ["x-output (step 0)"]
    assert subjects(found.added) == ["z-output (step 0)"]
    assert [a.subject for a, _ in found.unchanged] == ["y-output (step 0)"]
    assert any(note.startswith("the tolerances differ") for note in found.notes)


def test_bad_input_is_refused(tmp_path: Path) -> None:
    unjudged = comparison_file(tmp_path / "c", {}, rtol=None)
    with pytest.raises(BadInputError, match="measured without a tolerance"):
        read_result(unjudged)
    (tmp_path / "d.json").write_text(diagnosis_to_json(diagnosis()))
    one = read_result(tmp_path / "d.json")
    other = read_result(comparison_file(tmp_path / "e", {}, rtol=0.0))
    with pytest.raises(BadInputError, match="expected two of one command"):
        fault_history(one, other)
    for text in ("", "[]", "{}", '{"schema_version": 1}', '{"schema_version": 1, "counts": {}}'):
        (tmp_path / "bad.json").write_text(text)
        with pytest.raises((CorruptFileError, BadInputError)):
            read_result(tmp_path / "bad.json")
    (tmp_path / "later.json").write_text('{"schema_version": 99}')
    with pytest.raises(UnsupportedFormatError, match="later version"):
        read_result(tmp_path / "later.json")
    with pytest.raises(CorruptFileError, match="expected a result"):
        read_result(tmp_path / "none.json")


def saved(tmp_path: Path, name: str, value: Any) -> Path:
    file = tmp_path / name
    file.write_text(json.dumps(value))
    return file


def comparison_value(**outcome: Any) -> dict[str, Any]:
    measured = {"kind": "compared", "metrics": {"kind": "measured", "relative_l2": 0.5}, **outcome}
    pair = {"reference": {"name": "x", "step": 0}, "finding": "differs", "outcome": measured}
    return {
        "schema_version": 1,
        "verdict": "differ",
        "cut_short": False,
        "counts": {},
        "tolerance": {"rtol": 0.1},
        "pairs": [pair],
    }


@pytest.mark.parametrize(
    ("outcome", "evidence"),
    [
        ({}, "relative L2 0.5"),
        ({"metrics": {"kind": "measured", "relative_l2": "Infinity"}}, "relative L2 Infinity"),
        ({"metrics": {"kind": "measured", "relative_l2": 10**400}}, f"relative L2 {10**400}"),
        ({"metrics": {"kind": "nothing_finite"}}, "nothing finite to measure"),
        (
            {
                "non_finite": {"first_difference": [1]},
                "metrics": {"kind": "measured", "relative_l2": 0.0},
            },
            "NaN or infinity differ, relative L2 0",
        ),
        ({"dtype_differs": True}, "dtypes differ, relative L2 0.5"),
        ({"kind": "shape_differs", "metrics": None}, "shape differs"),
    ],
)
def test_evidence_of_a_pair(tmp_path: Path, outcome: dict[str, Any], evidence: str) -> None:
    (fault,) = read_result(saved(tmp_path, "r.json", comparison_value(**outcome))).faults
    assert fault.evidence == evidence


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tolerance": {"rtol": [0.1] * 1000}}, "another type as 'rtol' in tolerance, found"),
        ({"tolerance": {"atol": "0" * 1000}}, "another type as 'atol'"),
        ({"tolerance": {"rtol": True}}, "another type as 'rtol'"),
        ({"tolerance": {"equal_nan": "n" * 1000}}, "another type as 'equal_nan'"),
        ({"tolerance": {"equal_inf": 1}}, "another type as 'equal_inf'"),
        (
            comparison_value(metrics={"kind": "measured", "relative_l2": "9" * 1000}),
            "expected a number as 'relative_l2' in metrics, found",
        ),
    ],
)
def test_values_of_another_type_are_refused(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(CorruptFileError) as error:
        read_result(saved(tmp_path, "r.json", {**comparison_value(), **change}))
    assert message in str(error.value)
    assert len(str(error.value)) < 400


def test_of_a_tolerance_only_what_is_known_is_told(tmp_path: Path) -> None:
    value = {**comparison_value(), "tolerance": {"rtol": 1e-05, "more": "x" * 1000}}
    known = "atol 0.0, rtol 1e-05, equal_inf False, equal_nan False"
    assert read_result(saved(tmp_path, "r.json", value)).tolerance == known


def test_an_error_of_a_guilty_module_is_a_number(tmp_path: Path) -> None:
    value = json.loads(diagnosis_to_json(diagnosis(guilty("model.layers.1.mlp"))))
    value["guilty"][0]["local_error"] = "Infinity"
    (fault,) = read_result(saved(tmp_path, "a.json", value)).faults
    assert fault.evidence == "local error Infinity"
    value["guilty"][0]["local_error"] = "x" * 1000
    with pytest.raises(CorruptFileError, match=r"expected a number as 'local_error'"):
        read_result(saved(tmp_path, "b.json", value))


def test_verdicts_and_findings_are_those_that_there_are(tmp_path: Path) -> None:
    value = comparison_value()
    with pytest.raises(CorruptFileError, match=r"expected a verdict of agree, .* found"):
        read_result(saved(tmp_path, "a.json", {**value, "verdict": "\x1b[31m::error::"}))
    value["pairs"][0]["finding"] = "banana"
    with pytest.raises(CorruptFileError, match=r"expected a finding of .* in pairs\[0\]"):
        read_result(saved(tmp_path, "b.json", value))
    value = json.loads(diagnosis_to_json(diagnosis()))
    value["candidates"] = [{**value, "verdict": "x"}, {**value}]
    with pytest.raises(CorruptFileError, match=r"in candidates\[0\]"):
        read_result(saved(tmp_path, "c.json", value))


@pytest.mark.parametrize(
    "change",
    [
        {"pairs": []},
        {"verdict": "agree"},
        {"verdict": "inconclusive"},
        {"verdict": "agree", "pairs": []},
    ],
)
def test_a_comparison_that_contradicts_its_verdict_is_refused(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    with pytest.raises(CorruptFileError, match=r"expected what leads to the verdict .*, found \S"):
        read_result(saved(tmp_path, "r.json", {**comparison_value(), **change}))


def test_agreement_that_was_cut_short_is_refused(tmp_path: Path) -> None:
    value = {**comparison_value(), "verdict": "agree"}
    value["pairs"][0]["finding"] = "agrees"
    assert read_result(saved(tmp_path, "whole.json", value)).conclusive
    with pytest.raises(CorruptFileError, match="1 pairs, 0 that differ, cut short"):
        read_result(saved(tmp_path, "cut.json", {**value, "cut_short": True}))


@pytest.mark.parametrize(
    ("found", "change", "message"),
    [
        (
            diagnosis(guilty("model.norm")),
            {"verdict": "agree"},
            "12 modules checked, 1 of them guilty",
        ),
        (
            diagnosis(),
            {"coverage": {"modules_checked": 0, "replayed": 0}},
            "0 modules checked, 0 of them guilty",
        ),
        (diagnosis(), {"cause": {"id": "scale"}}, "12 modules checked, 0 of them guilty"),
        (diagnosis(), {"verdict": "diverge"}, "no guilty module and no cause"),
    ],
)
def test_a_diagnosis_that_contradicts_its_verdict_is_refused(
    tmp_path: Path, found: Diagnosis, change: dict[str, Any], message: str
) -> None:
    value = {**json.loads(diagnosis_to_json(found)), **change}
    with pytest.raises(CorruptFileError, match=message):
        read_result(saved(tmp_path, "alone.json", value))
    with pytest.raises(CorruptFileError, match=message):
        read_result(saved(tmp_path, "two.json", {**value, "candidates": [value, value]}))


def several(*candidates: Diagnosis) -> Diagnosis:
    wrong = [found for found in candidates if found.verdict is Judgement.DIVERGE]
    return replace((wrong or candidates)[0], candidates=candidates)


def test_a_verdict_that_its_candidates_contradict_is_refused(tmp_path: Path) -> None:
    bad, good = diagnosis(guilty("model.norm")), diagnosis()
    for outer, inner in ((bad, (good, good)), (good, (bad, good)), (good, (bad,))):
        value = json.loads(diagnosis_to_json(replace(outer, candidates=inner)))
        with pytest.raises(CorruptFileError, match="found 'candidates of other verdicts'"):
            read_result(saved(tmp_path, "r.json", value))


def test_candidates_of_one_name_are_told_apart(tmp_path: Path) -> None:
    bad = diagnosis(guilty("model.layers.1.mlp"))
    unchecked = replace(diagnosis(), growth=())
    found = history(tmp_path, several(bad, bad), several(diagnosis(), unchecked))
    assert [fault.candidate for fault in found.fixed] == ["max"]
    assert [fault.candidate for fault in found.unchecked] == ["max (2)"]


def test_one_candidate_beside_several_is_found_by_its_name(tmp_path: Path) -> None:
    bad = diagnosis(guilty("model.layers.1.mlp"))
    other = replace(bad, candidate_engine="vllm")
    found = history(tmp_path, bad, several(bad, other))
    assert [fault.candidate for fault, _ in found.unchanged] == ["max"]
    assert [fault.candidate for fault in found.added] == ["vllm"]
    found = history(tmp_path, several(bad, other), bad)
    assert [fault.candidate for fault in found.unchecked] == ["vllm"]
    assert any(note.endswith("has no candidate vllm") for note in found.notes)


def test_thousands_of_faults_take_no_time(tmp_path: Path) -> None:
    old = diagnosis(*(guilty(f"a.{n}.x", step=n) for n in range(5000)))
    new = diagnosis(*(guilty(f"a.{n}.x", step=0) for n in reversed(range(5000))))
    other = diagnosis(*(guilty(f"b{n}.y", "bias") for n in range(5000)))
    begin = time.process_time()
    assert len(history(tmp_path, old, new).moved) == 4999
    assert len(history(tmp_path, old, other).added) == 5000
    assert time.process_time() - begin < 10
