"""Tests of the Hugging Face reference, on real checkpoints."""

import logging
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from comparison.schema.errors import BadInputError, EngineError, UnsupportedFormatError
from test_common.tiny_checkpoints import ensure_tiny_checkpoint
from test_common.torch_builder import (
    build_torch_model,
    hub_arguments,
    resolve_torch_device,
    torch_dtype,
)


def _copy(arch: str, folder: Path) -> Path:
    return Path(shutil.copytree(ensure_tiny_checkpoint(arch), folder / arch))


def _build(path: Path, encoding: str = "float32", **settings: object) -> torch.nn.Module:
    built = build_torch_model(
        model_path=str(path),
        encoding=encoding,
        device="cpu",
        **settings,  # type: ignore[arg-type]  # what a test varies
    )
    model: torch.nn.Module = built.model
    return model


@pytest.mark.parametrize("encoding", ["float32", "bfloat16", "float64"])
def test_model_is_eager_in_evaluation_mode_and_in_the_encoding(encoding: str) -> None:
    model = _build(ensure_tiny_checkpoint("llama"), encoding)
    assert {parameter.dtype for parameter in model.parameters()} == {torch_dtype(encoding)}
    assert model.config._attn_implementation == "eager"
    assert not model.training


def test_processor_is_the_tokenizer() -> None:
    built = build_torch_model(
        model_path=str(ensure_tiny_checkpoint("llama")), encoding="float32", device="cpu"
    )
    assert built.data_processor.bos_token == "<bos>"


def test_missing_weight_is_refused(tmp_path: Path) -> None:
    path = _copy("llama", tmp_path)
    weights = load_file(path / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(EngineError) as raised:
        _build(path)
    assert str(raised.value) == (
        f"torch loads {path} without 1 weight(s), which would be random: "
        "model.layers.1.mlp.up_proj.weight: not in the checkpoint"
    )


def test_weight_of_another_shape_is_refused_with_both_shapes(tmp_path: Path) -> None:
    path = _copy("llama", tmp_path)
    weights = load_file(path / "model.safetensors")
    weights["model.norm.weight"] = torch.ones(7)
    save_file(weights, path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(EngineError, match=r"norm\.weight: \(7,\) in the checkpoint, \(256,\) in"):
        _build(path)


def test_weight_without_a_place_is_named_in_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = _copy("llama", tmp_path)
    weights = load_file(path / "model.safetensors")
    weights["model.layers.1.mlp.gate_bias"] = torch.ones(7)
    weights["model.layers.4.mlp.up_proj.weight"] = torch.ones(7)  # of a layer that was cut off
    save_file(weights, path / "model.safetensors", metadata={"format": "pt"})
    with caplog.at_level(logging.WARNING):
        _build(path)
    messages = [record.getMessage() for record in caplog.records]
    assert messages == [
        f"{path} has 1 weight(s) without a place in the model: model.layers.1.mlp.gate_bias"
    ]


def test_missing_pooler_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = _copy("bert", tmp_path)
    weights = load_file(path / "model.safetensors")
    kept = {name: value for name, value in weights.items() if "pooler" not in name}
    save_file(kept, path / "model.safetensors", metadata={"format": "pt"})
    with caplog.at_level(logging.WARNING):
        _build(path, task="EMBEDDINGS_GENERATION")
    assert [record.getMessage() for record in caplog.records] == [
        f"{path} has no pooler weights; the pooler's output is random"
    ]


def test_truncated_weights_are_an_error_in_one_line(tmp_path: Path) -> None:
    path = _copy("llama", tmp_path)
    weights = path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(EngineError, match=f"torch cannot load {path}: ") as raised:
        _build(path)
    assert "\n" not in str(raised.value)


def test_quantised_encoding_points_to_torch_model_path() -> None:
    with pytest.raises(
        UnsupportedFormatError, match=r"'q4_k'; known: .*give the oracle torch_model"
    ):
        torch_dtype("q4_k")


@pytest.mark.parametrize("name", ["AutoModelForNothing", "AutoModelForCausalLM2"])
def test_unknown_class_name(name: str) -> None:
    with pytest.raises(BadInputError, match=f"auto_model_cls='{name}': transformers has no such"):
        _build(ensure_tiny_checkpoint("llama"), auto_model_cls=name)


def test_class_that_loads_no_model() -> None:
    with pytest.raises(BadInputError, match=r"^auto_model_cls: AutoTokenizer loads no model$"):
        _build(ensure_tiny_checkpoint("llama"), auto_model_cls="AutoTokenizer")


@pytest.mark.parametrize("name", ["LlamaModel", "LlamaForCausalLM"])
def test_processor_class_that_loads_a_model(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(BadInputError, match=f"^auto_processor_cls: {name} loads a model, no token"):
        _build(ensure_tiny_checkpoint("llama"), auto_processor_cls=name)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("device", ["cpu", torch.device("cpu")])
def test_device_cpu(device: object) -> None:
    assert resolve_torch_device(device) == torch.device("cpu")


def test_device_that_does_not_exist() -> None:
    count = torch.cuda.device_count()
    with pytest.raises(BadInputError, match=rf"gpu:{count} does not exist: torch sees {count} GPU"):
        resolve_torch_device(f"gpu:{count}")


def test_unknown_device() -> None:
    with pytest.raises(BadInputError, match="unknown device toaster; known: cpu, gpu, gpu:<index>"):
        resolve_torch_device("toaster")


def test_remote_code_runs_only_where_the_oracle_says_so() -> None:
    assert hub_arguments({"max_length": 5}) == {"trust_remote_code": False}
    assert hub_arguments({"trust_remote_code": True, "huggingface_model_revision": "abc"}) == {
        "trust_remote_code": True,
        "revision": "abc",
    }
