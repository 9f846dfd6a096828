"""Suspects are found in sketches, and the verdict is that of a full dump."""

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from comparison.schema.diagnosis import Judgement
from comparison.store.dump import open_dump
from diagnosis.capture_plan import CapturePlan
from diagnosis.diff_models import DiffOptions, diff_sides
from diagnosis.side_runs import RunOptions
from diagnosis.sides import parse_side
from diagnosis.sketch_pass import sizes_of_sketches, suspects_in_sketches
from test_common.capture_mode import CaptureMode
from test_common.sketch_writer import SketchWriter
from test_common.torch_print_hook import TorchPrintHook
from tests.diagnosis import accuracy_oracles
from tests.test_common.tiny_manifest import MANIFEST as TINY
from tests.test_common.tiny_models import ROWS, tiny_llama

LAYERS = "model.model.layers"
MANIFEST = replace(TINY, steps=1)
ORACLES = f"""{accuracy_oracles.ORACLES}

class WrongInLayerOne(Right):
    def create_torch_pipeline(self, *, encoding, device):
        built = super().create_torch_pipeline(encoding=encoding, device=device)
        built.model.model.layers[1].self_attn.o_proj.weight.data *= 1.01
        return built


WRONG = WrongInLayerOne()
"""


def sketched(model: Any, out: Path) -> Path:
    writer = SketchWriter(out)
    writer.start(MANIFEST)
    with TorchPrintHook(sink=writer) as hook, torch.no_grad():
        hook.name_layers(model)
        model(torch.tensor([ROWS[0]]))
    writer.finish(MANIFEST, hook.certificate())
    return out


def _nothing(model: Any) -> None:
    del model


def _scale_attention(model: Any) -> None:
    model.model.layers[1].self_attn.scaling *= 1.01


def _two_layers(model: Any) -> None:
    model.model.layers[0].mlp.down_proj.weight.data *= 1.0001
    model.model.layers[2].input_layernorm.weight.data[3] *= 1.5


def _drop_head(model: Any) -> None:
    model.lm_head.weight.data[7] = 0


@pytest.mark.parametrize(
    ("plant", "named"),
    [
        (_nothing, ()),
        (_scale_attention, (f"{LAYERS}.1",)),
        (_two_layers, (f"{LAYERS}.0", f"{LAYERS}.2")),
        (_drop_head, ("model.lm_head", "model")),
    ],
)
def test_modules_whose_error_grows_are_suspect(
    tmp_path: Path, plant: Callable[[Any], None], named: tuple[str, ...]
) -> None:
    model = tiny_llama()
    changed = copy.deepcopy(model)
    plant(changed)
    left, right = sketched(model, tmp_path / "left"), sketched(changed, tmp_path / "right")
    found = suspects_in_sketches(left, right, CapturePlan(sizes_of_sketches(left)))
    assert found.modules == named[: len(found.modules)]
    assert bool(found.modules) == bool(named)
    assert found.tensors == len(list(open_names(left)))
    assert found.size_bytes == (right / "0" / "sketch.safetensors").stat().st_size


def open_names(folder: Path) -> list[str]:
    return (folder / "0" / "tensor_names.txt").read_text(encoding="utf-8").splitlines()


def test_sizes_are_those_of_the_tensors(tmp_path: Path) -> None:
    sizes = sizes_of_sketches(sketched(tiny_llama(), tmp_path / "out"))
    assert sizes["model.lm_head-output"] == 13 * 64 * 4
    assert sizes[f"{LAYERS}.0-output"] == 13 * 32 * 4
    assert sizes[
        "model-input_input_ids" if "model-input_input_ids" in sizes else "model-input_0"
    ] == (13 * 8)


@pytest.mark.full  # three models are run on each side
@pytest.mark.parametrize("name", ["WRONG", "RIGHT"])
def test_the_verdict_is_that_of_a_full_dump(tmp_path: Path, name: str) -> None:
    file = tmp_path / "mine.py"
    file.write_text(ORACLES, encoding="utf-8")
    found = {}
    for mode in (CaptureMode.FULL, CaptureMode.SKETCH):
        options = DiffOptions(
            run=RunOptions(num_steps=1, prompts=((1, 5, 9, 33, 21, 8, 40, 77, 60),)),
            output=tmp_path / mode,
            mode=mode,
            drill="off",
        )
        sides = parse_side(f"torch@{file}:RIGHT"), parse_side(f"torch@{file}:{name}")
        found[mode] = diff_sides(sides[0], [sides[1]], options)
    full, sketch = found[CaptureMode.FULL], found[CaptureMode.SKETCH]
    assert sketch.verdict is full.verdict
    assert sketch.verdict is (Judgement.DIVERGE if name == "WRONG" else Judgement.AGREE)
    assert sketch.culprit == full.culprit
    assert "This rests on sketches of all tensors" in sketch.sentence
    captured = "fine" if name == "WRONG" else "coarse"
    inside = {entry.name for entry in open_dump(tmp_path / f"sketch/candidate-{captured}").entries}
    assert inside < {entry.name for entry in open_dump(tmp_path / "full/candidate").entries}
    assert (f"{LAYERS}.1.self_attn.o_proj-output" in inside) == (name == "WRONG")
    assert f"{LAYERS}.0.self_attn.o_proj-output" not in inside
