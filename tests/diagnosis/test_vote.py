"""Several candidates: the odd one out, which may be the reference."""

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from comparison.schema.diagnosis import Judgement
from comparison.schema.outcome import Side
from comparison.store.dump import open_dump
from diagnosis.diagnose import find
from diagnosis.finding import Finding
from diagnosis.module_dump import ModuleInputs, calls_of, dump_module
from diagnosis.sentence import named
from diagnosis.vote import vote
from tests.test_common.tiny_models import ROWS, tiny_llama

INPUTS = ModuleInputs.of(ROWS, num_steps=2, encoder=False)


def finding(model: Any, candidate: Any, folder: Path) -> Finding:
    dump_module(candidate, INPUTS, folder)
    dump = open_dump(folder)
    return find(model, dump, calls_of(model, INPUTS, dump))


def scaled(model: Any, factor: float) -> Any:
    other = copy.deepcopy(model)
    with torch.no_grad():
        other.model.layers[1].mlp.up_proj.weight.mul_(factor)
    return other


def test_one_of_two_candidates_is_the_odd_one_out(tmp_path: Path) -> None:
    model = tiny_llama()
    right = finding(model, copy.deepcopy(model), tmp_path / "a")
    wrong = finding(model, scaled(model, 1.01), tmp_path / "b")
    found = vote([right, wrong])
    assert found.verdict is Judgement.DIVERGE
    assert found.culprit is not None
    assert (found.culprit.side, found.culprit.module) == (
        Side.CANDIDATE,
        "model.model.layers.1.mlp.up_proj",
    )
    assert found.sentence.startswith(
        "The reference and candidate 1 agree, and candidate 2 is the odd one out: The candidate "
    )
    assert found.candidates == (right.diagnosis, wrong.diagnosis)


def test_candidates_that_share_one_error_speak_against_the_reference(tmp_path: Path) -> None:
    model = tiny_llama()
    other = scaled(model, 1.01)
    both = [finding(model, other, tmp_path / name) for name in ("a", "b")]
    found = vote(both)
    assert found.culprit is not None
    assert (found.culprit.side, found.culprit.engine) == (Side.REFERENCE, "torch")
    assert found.sentence.startswith(
        "The reference is the odd one out: candidate 1 and candidate 2 differ from it"
    )
    assert found.exit_code == 1


def test_candidates_that_are_wrong_in_unlike_ways_do_not(tmp_path: Path) -> None:
    model = tiny_llama()
    both = [
        finding(model, scaled(model, factor), tmp_path / name)
        for name, factor in (("a", 1.01), ("b", 0.97))
    ]
    found = vote(both)
    assert found.culprit is not None
    assert found.culprit.side is Side.CANDIDATE


def test_one_candidate_is_its_own_diagnosis(tmp_path: Path) -> None:
    model = tiny_llama()
    only = finding(model, copy.deepcopy(model), tmp_path / "a")
    assert vote([only]) is only.diagnosis


def test_sides_of_one_engine_go_by_what_the_user_called_them(tmp_path: Path) -> None:
    model = tiny_llama()
    names = ["torch@a.py:OWN", "torch@b.py"]
    own = finding(model, copy.deepcopy(model), tmp_path / "a")
    assert own.diagnosis.sentence.startswith("The candidate agrees with the reference: ")
    first, second = (
        replace(own, diagnosis=named(own.diagnosis, reference="torch", candidate=name))
        for name in names
    )
    assert first.diagnosis.sentence.startswith("torch@a.py:OWN agrees with torch: ")
    wrong = finding(model, scaled(model, 1.01), tmp_path / "b")
    third = replace(wrong, diagnosis=named(wrong.diagnosis, reference="torch", candidate="dump/"))
    assert vote([first, second, third]).sentence.startswith(
        "torch and torch@a.py:OWN and torch@b.py agree, and dump/ is the odd one out: dump/ first "
    )
    other = replace(own.diagnosis, candidate_engine="max")
    assert named(other, reference="torch", candidate="max@a.py").sentence.startswith(
        "max agrees with torch: "
    )
