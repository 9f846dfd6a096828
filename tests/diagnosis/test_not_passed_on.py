"""Values that a dump holds and that nothing rests on."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch

from comparison.schema.diagnosis import Judgement
from diagnosis.diff_models import diff_models
from diagnosis.module_dump import ModuleInputs, dump_module
from tests.test_common.tiny_models import ROWS, tiny_llama

LAYER = "model.model.layers.1"


@pytest.fixture(scope="module")
def model() -> Any:
    return tiny_llama()


def damaged(model: Any, folder: Path, name: str, *places: tuple[int, int, int]) -> None:
    """Dump a sound model, and change a tensor of the prefill where it lies."""
    dump_module(model, ModuleInputs.of(ROWS, num_steps=2, encoder=False), folder)
    path = folder / "0" / f"{name}.pt"
    values = torch.load(path).clone()
    for place in places:
        values[place] = 1e6
    path.unlink()  # other names may be links to it
    torch.save(values, path)


@pytest.mark.parametrize(
    ("name", "behind"),
    [
        (f"{LAYER}.mlp.up_proj-output", f"{LAYER}.mlp.down_proj-input_0"),
        (f"{LAYER}.self_attn.q_proj-output", f"{LAYER}.self_attn.o_proj-input_0"),
        (f"{LAYER}-output", "model.model.layers.2-input_0"),
    ],
)
def test_one_damaged_value_is_told_as_such(
    model: Any, tmp_path: Path, name: str, behind: str
) -> None:
    damaged(model, tmp_path, name, (0, 5, 3))
    found = diff_models(model, tmp_path)
    assert found.verdict is Judgement.AGREE
    assert "but the candidate's dump holds values that were not passed on" in found.sentence
    reasons = {item.tensor: item.reason for item in found.harmless}
    assert set(reasons) == {name, behind}
    assert "1 of " in reasons[name]
    assert "differs, at row 0, token 5, channel 3 (1e+06, the reference has " in reasons[name]
    assert f"was not passed on: {behind} and what follows rest on the" in reasons[name]
    assert reasons[behind] == (
        f"right by itself: it rests on other values than the dump holds of {name}"
    )


def test_several_damaged_values_are_counted(model: Any, tmp_path: Path) -> None:
    name = f"{LAYER}.mlp.up_proj-output"
    damaged(model, tmp_path, name, (0, 5, 3), (0, 5, 4), (1, 6, 0))
    found = diff_models(model, tmp_path)
    reason = next(item.reason for item in found.harmless if item.tensor == name)
    assert not any(item.is_absorbed for item in found.harmless if item.tensor == name)
    assert reason.startswith("3 of ")
    assert "values differ, the first at row 0, token 5, channel 3" in reason
    assert "and were not passed on" in reason


def test_a_norm_that_is_folded_into_what_follows_is_passed_on(model: Any) -> None:
    other = copy.deepcopy(model)
    with torch.no_grad():
        other.lm_head.weight.mul_(other.model.norm.weight)
        other.model.norm.weight.fill_(1)
    found = diff_models(model, other, ROWS)
    assert found.verdict is Judgement.AGREE
    assert found.harmless
    assert all("the difference is gone at" in item.reason for item in found.harmless)
    assert all(item.is_absorbed for item in found.harmless)
    assert "not passed on" not in found.sentence
