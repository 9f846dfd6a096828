"""What is told of an adapter that changes nothing of what is run."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from test_common.lora_notes import adapter_notes


def _adapter(folder: Path, *modules: str, b: float = 1.0) -> Path:
    settings = {"peft_type": "LORA", "r": 2, "lora_alpha": 4}
    (folder / "adapter_config.json").write_text(json.dumps(settings))
    weights = {}
    for module in modules:
        weights[f"base_model.model.{module}.lora_A.weight"] = torch.ones(2, 3)
        weights[f"base_model.model.{module}.lora_B.weight"] = torch.full((5, 2), b)
    save_file(weights, folder / "adapter_model.safetensors")
    return folder


@pytest.mark.parametrize(
    ("modules", "layers"),
    [
        (("model.layers.0.q", "model.layers.3.q"), 1),
        (("model.layers.3.q",), 4),
        (("model.layers.3.q",), None),
        (("lm_head",), 1),
        (("layers.1.q",), 2),
        (("model.vision_tower.encoder.layers.9.q",), 1),
    ],
)
def test_adapter_of_what_is_run_needs_no_note(
    tmp_path: Path, modules: tuple[str, ...], layers: int | None
) -> None:
    assert adapter_notes(_adapter(tmp_path, *modules), layers) == ()


@pytest.mark.parametrize("modules", [("model.layers.3.q", "model.layers.7.q"), ("layers.3.q",)])
def test_adapter_of_later_layers_alone_is_told(tmp_path: Path, modules: tuple[str, ...]) -> None:
    (note,) = adapter_notes(_adapter(tmp_path, *modules), 3)
    assert "changes nothing in the layers run: they are the first 3" in note
    assert "it begins at layer 3 (--num-hidden-layers)" in note


def test_adapter_of_zeros_is_told(tmp_path: Path) -> None:
    (note,) = adapter_notes(_adapter(tmp_path, "model.layers.0.q", b=0.0), None)
    assert note.endswith("changes nothing: its products are zero")


def test_no_adapter_and_one_that_is_not_read_here_need_no_note(tmp_path: Path) -> None:
    assert adapter_notes(None, 1) == ()
    assert adapter_notes(tmp_path / "nowhere", 1) == ()
