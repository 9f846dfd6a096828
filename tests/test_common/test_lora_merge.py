"""LoRA adapters: read, held against a model, and merged."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from comparison.schema.errors import (
    BadInputError,
    CorruptFileError,
    MissingPathError,
    UnsupportedFormatError,
)
from test_common.lora_adapter import read_lora_adapter
from test_common.lora_merge import ensure_merged_checkpoint

MODULE = "model.layers.1.self_attn.v_proj"
KEY = f"base_model.model.{MODULE}"
RANK, ALPHA = 2, 5
A = torch.arange(RANK * 6, dtype=torch.float32).reshape(RANK, 6) / 8
B = torch.arange(4 * RANK, dtype=torch.float32).reshape(4, RANK) / 4 - 1
CONFIG = {"peft_type": "LORA", "r": RANK, "lora_alpha": ALPHA, "bias": "none", "use_dora": False}

Make = Callable[..., Path]


@pytest.fixture
def adapter(tmp_path: Path) -> Make:
    def make(weights: dict[str, torch.Tensor] | None = None, **changes: Any) -> Path:
        folder = tmp_path / "adapter"
        folder.mkdir(exist_ok=True)
        (folder / "adapter_config.json").write_text(json.dumps({**CONFIG, **changes}))
        plain = {f"{KEY}.lora_A.weight": A, f"{KEY}.lora_B.weight": B}
        save_file(plain if weights is None else weights, folder / "adapter_model.safetensors")
        return folder

    return make


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    other = {"model.norm.weight": torch.ones(6)}
    save_file({f"{MODULE}.weight": torch.ones(4, 6), **other}, folder / "model-1.safetensors")
    save_file({"lm_head.weight": torch.ones(3, 6)}, folder / "model-2.safetensors")
    return folder


def test_product_times_alpha_over_rank_is_added(adapter: Make, model: Path, tmp_path: Path) -> None:
    merged = ensure_merged_checkpoint(str(model), adapter(), cache_dir=tmp_path / "cache")
    weights = load_file(merged / "model-1.safetensors")
    torch.testing.assert_close(weights[f"{MODULE}.weight"], 1 + 2.5 * (B @ A))
    assert torch.equal(weights["model.norm.weight"], torch.ones(6))


def test_what_the_adapter_does_not_touch_is_a_link(
    adapter: Make, model: Path, tmp_path: Path
) -> None:
    merged = ensure_merged_checkpoint(str(model), adapter(), cache_dir=tmp_path / "cache")
    assert (merged / "model-2.safetensors").resolve() == model / "model-2.safetensors"
    assert (merged / "config.json").resolve() == model / "config.json"
    assert not (merged / "model-1.safetensors").is_symlink()


def test_weight_keeps_its_dtype(adapter: Make, model: Path, tmp_path: Path) -> None:
    save_file(
        {f"{MODULE}.weight": torch.ones(4, 6, dtype=torch.bfloat16)}, model / "model-1.safetensors"
    )
    merged = ensure_merged_checkpoint(str(model), adapter(), cache_dir=tmp_path / "cache")
    weight = load_file(merged / "model-1.safetensors")[f"{MODULE}.weight"]
    assert torch.equal(weight, (1 + 2.5 * (B @ A)).to(torch.bfloat16))


def test_another_adapter_or_model_is_merged_anew(
    adapter: Make, model: Path, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    first = ensure_merged_checkpoint(str(model), adapter(), cache_dir=cache)
    assert ensure_merged_checkpoint(str(model), adapter(), cache_dir=cache) == first
    assert ensure_merged_checkpoint(str(model), adapter(lora_alpha=7), cache_dir=cache) != first
    save_file({f"{MODULE}.weight": torch.zeros(4, 6)}, model / "model-1.safetensors")
    assert ensure_merged_checkpoint(str(model), adapter(), cache_dir=cache) != first


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"use_dora": True}, UnsupportedFormatError, "use_dora asks for more than plain LoRA"),
        ({"bias": "all", "use_rslora": True}, UnsupportedFormatError, "bias, use_rslora asks"),
        ({"modules_to_save": ["lm_head"]}, UnsupportedFormatError, "modules_to_save asks"),
        ({"peft_type": "IA3"}, UnsupportedFormatError, "peft_type is 'IA3', expected 'LORA'"),
        ({"r": 0}, CorruptFileError, "expected r, at least 1, .* found 0 and 5"),
        ({"lora_alpha": None}, CorruptFileError, "found 2 and None"),
        ({"r": 3}, CorruptFileError, "rank of model.layers.1.self_attn.v_proj is not r=3"),
    ],
)
def test_what_is_no_plain_lora_is_refused(
    adapter: Make, changes: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        read_lora_adapter(adapter(**changes))


@pytest.mark.parametrize(
    "weights",
    [
        {f"{KEY}.lora_A.weight": A},
        {f"{KEY}.lora_A.weight": A, f"{KEY}.lora_B.weight": B, f"{KEY}.magnitude": A.clone()},
        {f"{MODULE}.lora_A.weight": A, f"{MODULE}.lora_B.weight": B},
        {},
    ],
)
def test_weights_that_are_no_pairs_are_refused(
    adapter: Make, weights: dict[str, torch.Tensor]
) -> None:
    with pytest.raises(CorruptFileError, match=r"no pair base_model.model.<module>.lora_A.weight"):
        read_lora_adapter(adapter(weights))


def test_adapter_that_is_not_there_is_named(adapter: Make, tmp_path: Path) -> None:
    with pytest.raises(MissingPathError, match="nowhere does not exist"):
        read_lora_adapter(tmp_path / "nowhere")
    folder = adapter()
    (folder / "adapter_model.safetensors").unlink()
    with pytest.raises(MissingPathError, match=r"has no adapter_model.safetensors"):
        read_lora_adapter(folder)


def test_damaged_files_are_named(adapter: Make) -> None:
    folder = adapter()
    (folder / "adapter_model.safetensors").write_bytes(b"\x01" * 20)
    with pytest.raises(CorruptFileError, match=r"adapter_model.safetensors cannot be read"):
        read_lora_adapter(folder)
    (folder / "adapter_config.json").write_text("[]")
    with pytest.raises(CorruptFileError, match="is not a JSON object"):
        read_lora_adapter(folder)


def test_adapter_of_another_model_is_refused(adapter: Make, model: Path, tmp_path: Path) -> None:
    save_file({f"{MODULE}.weight": torch.ones(4, 7)}, model / "model-1.safetensors")
    with pytest.raises(BadInputError, match=r"v_proj is \[4, 7\], the adapter's product is \[4, 6"):
        ensure_merged_checkpoint(str(model), adapter(), cache_dir=tmp_path)
    save_file({"other.weight": torch.ones(4, 6)}, model / "model-1.safetensors")
    with pytest.raises(BadInputError, match=f"the model has no {MODULE}"):
        ensure_merged_checkpoint(str(model), adapter(), cache_dir=tmp_path)


def test_model_without_safetensors_is_refused(adapter: Make, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(MissingPathError, match="no safetensors to merge a LoRA adapter into"):
        ensure_merged_checkpoint(str(empty), adapter(), cache_dir=tmp_path)
