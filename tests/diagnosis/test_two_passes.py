"""Faults in models whose full dump is larger than it may be."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from comparison.schema.diagnosis import Diagnosis, Judgement
from comparison.store.dump import open_dump
from diagnosis.diff_models import DiffOptions, diff_models
from tests.test_common.tiny_models import ROWS, tiny_gemma3, tiny_llama

FULL = "a full dump would hold "


def diff(
    plant: Callable[[Any], None],
    *,
    make: Callable[[], Any] = tiny_llama,
    max_bytes: int = 120_000,
    output: Path | None = None,
) -> tuple[Diagnosis, list[str]]:
    model, said = make(), list[str]()
    candidate = copy.deepcopy(model)
    plant(candidate)
    options = DiffOptions(max_bytes=max_bytes, tell=said.append, output=output, drill="off")
    return diff_models(model, candidate, ROWS, options=options), said


def _nothing(model: Any) -> None:
    del model


def _scale_attention(model: Any) -> None:
    model.model.layers[1].self_attn.scaling *= 1.001


def _scale_all_attention(model: Any) -> None:
    for layer in model.model.layers:
        layer.self_attn.scaling *= 1.001


def _drop_head(model: Any) -> None:
    model.lm_head.weight.data[7] = 0


def test_a_small_dump_is_made_at_once() -> None:
    found, said = diff(_scale_attention, max_bytes=10**9)
    assert said == []
    assert not any(note.startswith(FULL) for note in found.notes)


@pytest.mark.parametrize("make", [tiny_llama, tiny_gemma3])
def test_a_copy_agrees_by_what_its_layers_give(make: Callable[[], Any]) -> None:
    found, said = diff(_nothing, make=make)
    assert found.verdict is Judgement.AGREE
    assert found.sentence.endswith("This rests on a coarse pass, by what layers give.")
    assert (len(said), said[0]) == (1, found.notes[0])
    assert said[0].startswith(FULL)
    assert "what 3 layers and " in said[0]


@pytest.mark.full
def test_a_fault_in_a_layer_is_found_by_the_fine_pass(tmp_path: Path) -> None:
    found, said = diff(_scale_attention, output=tmp_path)
    attention = "model.model.layers.1.self_attn"
    assert [guilty.module for guilty in found.guilty] == [attention]
    assert found.guilty[0].between is not None
    assert said[1] == "the fine pass captures model.model.layers.1"
    assert "a fine one, which captured model.model.layers.1." in found.sentence
    coarse = {entry.name for entry in open_dump(tmp_path / "candidate-coarse").entries}
    fine = {entry.name for entry in open_dump(tmp_path / "candidate-fine").entries}
    assert not (tmp_path / "candidate").exists()
    assert coarse < fine
    inside = [name for name in fine - coarse if not name.startswith("model.model.layers.1")]
    assert inside == []


def test_the_fine_verdict_is_that_of_a_full_dump() -> None:
    found, _ = diff(_scale_attention)
    full, _ = diff(_scale_attention, max_bytes=10**9)
    assert found.culprit == full.culprit


def test_a_fault_outside_of_layers_is_found() -> None:
    found, said = diff(_drop_head)
    assert [guilty.module for guilty in found.guilty] == ["model.lm_head"]
    assert said[1] == "the fine pass captures the modules outside of layers"


@pytest.mark.full  # many modules are explained
def test_suspects_that_do_not_fit_are_judged_as_a_whole() -> None:
    found, _ = diff(_scale_all_attention)
    layers = "model.model.layers"
    modules = [guilty.module for guilty in found.guilty]
    assert modules == [f"{layers}.0.self_attn", f"{layers}.1", f"{layers}.2"]
    assert any(note.startswith("2 more layers are suspect") for note in found.notes)
