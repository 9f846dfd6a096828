"""A run that gives something else when it is captured says so, whatever its dump holds."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from comparison.schema.diagnosis import Judgement
from comparison.store.dump import open_dump
from diagnosis.diff_models import DiffOptions, diff_models
from diagnosis.module_dump import ModuleInputs, dump_module
from test_common.observer_effect import GREATEST, observer_effect
from tests.test_common.tiny_models import ROWS, tiny_bert, tiny_llama


def shy(module: Any, *, watched: float, alone: float) -> None:
    """Let a module give other multiples of its output with hooks and without."""
    usual = type(module)

    class Shy(usual):  # type: ignore[misc, valid-type]  # its class is what a model has
        def forward(self, *args: Any, **kwargs: Any) -> Any:
            return super().forward(*args, **kwargs) * (watched if self._forward_hooks else alone)

    module.__class__ = Shy


@pytest.mark.parametrize("make", [tiny_llama, tiny_bert])
def test_a_sound_model_is_the_same_with_hooks(make: Any, tmp_path: Path) -> None:
    encoder = make is tiny_bert
    inputs = ModuleInputs.of(ROWS, num_steps=2, encoder=encoder)
    dump = dump_module(make(), inputs, tmp_path / "dump")
    assert dump.manifest is not None
    assert dump.manifest.observer_effect == 0.0


@pytest.mark.parametrize(("watched", "alone"), [(1.0, 0.5), (0.5, 1.0)])
def test_capture_that_changes_the_result_is_the_verdict(watched: float, alone: float) -> None:
    model = tiny_llama()
    candidate = copy.deepcopy(model)
    shy(candidate.model.layers[0].mlp, watched=watched, alone=alone)
    found = diff_models(model, candidate, ROWS)
    assert (found.verdict, found.culprit) == (Judgement.DIVERGE, None)
    assert found.cause is not None
    assert found.cause.id == "observer"
    assert found.sentence.startswith("Capture changes what the candidate computes")


def test_keep_going_replays_what_was_captured() -> None:
    model = tiny_llama()
    candidate = copy.deepcopy(model)
    shy(candidate.model.layers[0].mlp, watched=0.5, alone=1.0)
    found = diff_models(model, candidate, ROWS, options=DiffOptions(keep_going=True))
    assert found.culprit is not None
    assert found.culprit.module == "model.model.layers.0.mlp"


def test_modules_called_with_tensors_are_checked_too(tmp_path: Path) -> None:
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(7, 5), torch.nn.Linear(5, 3))
    shy(model[0], watched=1.0, alone=0.9)
    inputs = ModuleInputs.of((torch.randn(4, 7),), num_steps=1, encoder=False)
    manifest = dump_module(model, inputs, tmp_path / "dump").manifest
    assert manifest is not None
    assert manifest.observer_effect is not None
    assert 0.01 < manifest.observer_effect < 1
    assert open_dump(tmp_path / "dump").manifest == manifest


@pytest.mark.parametrize(
    ("watched", "plain", "effect"),
    [
        ([1.0, np.nan], [1.0, np.nan], 0.0),
        ([1.0, np.nan], [1.0, 2.0], GREATEST),
        ([1.0, 3.0], [1.0, 4.0], 0.25),
        ([0.0, 1.0], [0.0, 0.0], GREATEST),
        ([0.0], [0.0, 0.0], GREATEST),
    ],
)
def test_the_effect_is_relative(watched: Any, plain: Any, effect: float) -> None:
    assert observer_effect([np.array(watched)], [np.array(plain)]) == effect
