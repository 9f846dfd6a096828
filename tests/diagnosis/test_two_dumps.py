"""Two dumps without a model: the jump of the whole error."""

import copy
from pathlib import Path
from typing import Any

import torch

from comparison.schema.diagnosis import Diagnosis, Judgement
from comparison.store.dump import open_dump
from diagnosis.module_dump import ModuleInputs, dump_module
from diagnosis.two_dumps import diagnose_dumps
from tests.test_common.tiny_models import ROWS, tiny_llama

INPUTS = ModuleInputs.of(ROWS, num_steps=2, encoder=False)


def diagnosed(reference: Any, candidate: Any, tmp_path: Path) -> Diagnosis:
    for name, model in (("reference", reference), ("candidate", candidate)):
        dump_module(model, INPUTS, tmp_path / name)
    return diagnose_dumps(open_dump(tmp_path / "reference"), open_dump(tmp_path / "candidate"))


def test_a_copy_agrees_and_the_verdict_says_what_it_cannot_tell(tmp_path: Path) -> None:
    model = tiny_llama()
    found = diagnosed(model, copy.deepcopy(model), tmp_path)
    assert found.verdict is Judgement.AGREE
    assert found.coverage.replayed == 0
    assert any("there is no model to replay" in note for note in found.notes)


def test_the_first_jump_is_the_culprit(tmp_path: Path) -> None:
    model = tiny_llama()
    other = copy.deepcopy(model)
    with torch.no_grad():
        other.model.layers[1].mlp.up_proj.weight[3].mul_(1.01)
        other.model.layers[2].mlp.up_proj.weight[3].mul_(1.01)
    found = diagnosed(model, other, tmp_path)
    assert found.verdict is Judgement.DIVERGE
    assert [guilty.module for guilty in found.guilty] == ["model.model.layers.1.mlp.up_proj"]
    assert found.culprit is not None
    assert found.culprit.tensor == "model.model.layers.1.mlp.up_proj-output"


def test_a_dump_that_is_cut_off_is_inconclusive(tmp_path: Path) -> None:
    model = tiny_llama()
    diagnosed(model, copy.deepcopy(model), tmp_path)
    (tmp_path / "candidate" / "0" / "model.lm_head-output.pt").unlink()
    found = diagnose_dumps(open_dump(tmp_path / "reference"), open_dump(tmp_path / "candidate"))
    assert (found.verdict, found.exit_code) == (Judgement.INCONCLUSIVE, 2)
    assert found.missing
