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
        ({"use_dora": True}, UnsupportedFormatError, "use_dora=True asks for more than plain"),
        (
            {"bias": "all", "use_rslora": True},
            UnsupportedFormatError,
            "bias='all', use_rslora=True asks",
        ),
        ({"modules_to_save": ["lm_head"]}, UnsupportedFormatError, "modules_to_save=.* asks"),
        ({"peft_type": "IA3"}, UnsupportedFormatError, "peft_type is 'IA3', expected 'LORA'"),
        ({"r": 0}, CorruptFileError, "r, at least 1, .* found 0 and 5"),
        ({"lora_alpha": None}, CorruptFileError, "found 2 and None"),
        ({"r": True}, CorruptFileError, "whole number r, at least 1, .* found True and 5"),
        ({"lora_alpha": 10**400}, CorruptFileError, "found 2 and 1000"),
        ({"lora_alpha": float("nan")}, CorruptFileError, "finite number .* found 2 and nan"),
        ({"lora_alpha": float("inf")}, CorruptFileError, "found 2 and inf"),
        ({"lora_alpha": True}, CorruptFileError, "found 2 and True"),
        ({"r": 3}, CorruptFileError, r"v_proj is \[2, 6\]: its rank is not r=3"),
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
    (tmp_path / "file").touch()
    with pytest.raises(MissingPathError, match="file exists, but it is a file: expected a local f"):
        read_lora_adapter(tmp_path / "file")
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


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("alora_invocation_tokens", [1, 2]),
        ("layer_replication", [[0, 1], [0, 1]]),
        ("target_parameters", ["mlp.experts"]),
        ("trainable_token_indices", [1]),
        ("use_qalora", True),
        ("megatron_config", {"a": 1}),
        ("init_lora_weights", "pissa"),
        ("init_lora_weights", "loftq"),
        ("loftq_config", {"loftq_bits": 4}),
        ("rank_pattern", {"q": 8}),
        ("unheard_of", 1),
        ("unheard_of", "x"),
    ],
)
def test_key_that_may_change_more_is_refused_by_name(adapter: Make, key: str, value: Any) -> None:
    with pytest.raises(UnsupportedFormatError, match=f"adapter_config.json: {key}=.* asks for"):
        read_lora_adapter(adapter(**{key: value}))


@pytest.mark.parametrize(
    "changes",
    [
        {"alora_invocation_tokens": None, "use_qalora": False, "loftq_config": {}, "new": []},
        {"init_lora_weights": True, "target_modules": ["v_proj"], "lora_dropout": 0.1},
        {"qalora_group_size": 16, "megatron_core": "megatron.core", "task_type": "CAUSAL_LM"},
        {"base_model_name_or_path": "a/b", "layers_to_transform": [1], "peft_version": "0.21.2"},
    ],
)
def test_values_that_say_not_used_and_how_it_was_trained_pass(
    adapter: Make, changes: dict[str, Any]
) -> None:
    assert read_lora_adapter(adapter(**changes)).scale == 2.5


@pytest.mark.parametrize(
    ("a", "b", "error", "message"),
    [
        (torch.tensor(1.0), B, CorruptFileError, r"lora_A of .*v_proj has the shape \[\]"),
        (A, torch.ones(2), CorruptFileError, r"lora_B of .*v_proj has the shape \[2\], expected a"),
        (torch.ones(2, 6, 1), B, CorruptFileError, r"the shape \[2, 6, 1\], expected a matrix"),
        (A, B * float("nan"), CorruptFileError, "lora_B of .*v_proj holds NaN or infinity"),
        (A + float("inf"), B, CorruptFileError, "lora_A of .*v_proj holds NaN or infinity"),
        (A.to(torch.int8), B, UnsupportedFormatError, "lora_A of .*v_proj is int8, expected"),
        (A, B.bool(), UnsupportedFormatError, "lora_B of .*v_proj is bool, expected float32"),
        (A.to(torch.complex64), B, UnsupportedFormatError, "v_proj is complex64"),
        (A, B.to(torch.float8_e4m3fn), UnsupportedFormatError, "v_proj is float8_e4m3fn"),
    ],
)
def test_matrices_of_another_kind_are_refused(
    adapter: Make, a: torch.Tensor, b: torch.Tensor, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        read_lora_adapter(adapter({f"{KEY}.lora_A.weight": a, f"{KEY}.lora_B.weight": b}))


def test_sum_outside_of_the_dtype_is_refused(adapter: Make, model: Path, tmp_path: Path) -> None:
    huge = {f"{KEY}.lora_A.weight": torch.full((2, 6), 1e38), f"{KEY}.lora_B.weight": B * 1e38}
    with pytest.raises(BadInputError, match=r"v_proj.weight it leaves the range of float32"):
        ensure_merged_checkpoint(str(model), adapter(huge), cache_dir=tmp_path / "cache")
    assert [path for path in (tmp_path / "cache").iterdir() if path.is_dir()] == []


def test_sum_of_float64_weights_keeps_their_digits(
    adapter: Make, model: Path, tmp_path: Path
) -> None:
    weight = torch.full((4, 6), 1 + 2**-40, dtype=torch.float64)
    save_file({f"{MODULE}.weight": weight}, model / "model-1.safetensors")
    merged = ensure_merged_checkpoint(str(model), adapter(), cache_dir=tmp_path / "cache")
    found = load_file(merged / "model-1.safetensors")[f"{MODULE}.weight"]
    assert torch.equal(found, weight + 2.5 * (B @ A).double())


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        (torch.float8_e4m3fn, "F8_E4M3"),
        (torch.int8, "I8"),
        (torch.uint8, "U8"),
        (torch.bool, "BOOL"),
    ],
)
def test_weights_that_are_no_plain_floats_are_refused(
    adapter: Make, model: Path, tmp_path: Path, dtype: torch.dtype, name: str
) -> None:
    save_file({f"{MODULE}.weight": torch.ones(4, 6).to(dtype)}, model / "model-1.safetensors")
    with pytest.raises(UnsupportedFormatError, match=f"v_proj.weight is {name}: a LoRA adapter"):
        ensure_merged_checkpoint(str(model), adapter(), cache_dir=tmp_path / "cache")


@pytest.mark.parametrize(
    ("file", "content", "told"),
    [
        ("config.json", {"quantization_config": {"bits": 4}}, "quantization_config of config"),
        (
            "config.json",
            {"text_config": {"compression_config": {"bits": 4}}},
            "compression_config of config",
        ),
        ("hf_quant_config.json", {}, "hf_quant_config.json"),
    ],
)
def test_model_that_says_that_it_is_quantised_is_refused(
    adapter: Make, model: Path, tmp_path: Path, file: str, content: Any, told: str
) -> None:
    (model / file).write_text(json.dumps(content))
    with pytest.raises(UnsupportedFormatError, match=rf"is quantised \({told}"):
        ensure_merged_checkpoint(str(model), adapter(), cache_dir=tmp_path / "cache")


def test_file_of_the_users_is_never_written_through_a_link(
    adapter: Make, model: Path, tmp_path: Path
) -> None:
    own = model / "merged_lora.json"
    own.write_text("the user's own")
    before = {path: path.read_bytes() for path in model.iterdir()}
    merged = ensure_merged_checkpoint(str(model), adapter(), cache_dir=tmp_path / "cache")
    assert {path: path.read_bytes() for path in model.iterdir()} == before
    assert json.loads((merged / own.name).read_text())["model"] == str(model)
    assert not (merged / own.name).is_symlink()


def test_second_adapter_goes_into_what_the_first_gave(
    adapter: Make, model: Path, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    first = ensure_merged_checkpoint(str(model), adapter(), cache_dir=cache)
    told = (first / "merged_lora.json").read_text()
    second = ensure_merged_checkpoint(str(first), adapter(lora_alpha=7), cache_dir=cache)
    weight = load_file(second / "model-1.safetensors")[f"{MODULE}.weight"]
    torch.testing.assert_close(weight, 1 + (2.5 + 3.5) * (B @ A))
    assert (first / "merged_lora.json").read_text() == told
    assert json.loads((second / "merged_lora.json").read_text())["model"] == str(first)


@pytest.mark.parametrize("damage", ["junk", "folder", "link to nothing", "config"])
def test_damaged_file_of_the_model_is_named(
    adapter: Make, model: Path, tmp_path: Path, damage: str
) -> None:
    file = model / ("config.json" if damage == "config" else "model-2.safetensors")
    file.unlink()
    if damage == "folder":
        file.mkdir()
    elif damage == "link to nothing":
        file.symlink_to("nothing")
    else:
        file.write_text("{")
    with pytest.raises(CorruptFileError, match=f"{file.name} (cannot be read as|is no file)"):
        ensure_merged_checkpoint(str(model), adapter(), cache_dir=tmp_path / "cache")
