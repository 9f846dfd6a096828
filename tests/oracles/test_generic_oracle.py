"""Tests of the oracle for any model, on the real builders."""

from pathlib import Path

import pytest
import torch
import transformers

from oracles.generic_oracle import GenericOracle
from test_common.tiny_checkpoints import ensure_tiny_checkpoint


def test_documented_entry_constructs() -> None:
    oracle = GenericOracle(
        model_path="my-org/my-model",
        device_encoding_map={"gpu": ["bfloat16"]},
        config_params={"max_length": 8192, "trust_remote_code": True},
    )
    assert oracle.model_path == "my-org/my-model"
    assert oracle.config_params["max_length"] == 8192
    assert oracle.resolve_encoding(None, device_type="gpu") == "bfloat16"
    assert repr(oracle) == "GenericOracle('my-org/my-model')"


def test_every_argument_is_kept() -> None:
    oracle = GenericOracle(
        "a/b",
        torch_model_path="a/c",
        device_encoding_map={"gpu": ["q4_k"]},
        weight_path_map={"q4_k": "a/b/weights.gguf"},
        prompts=["one", [1, 2]],
        apply_chat_template=True,
        use_cache=False,
        task="EMBEDDINGS_GENERATION",
        batch_size=3,
        add_bos_token=True,
        max_cpu_patches=["widen_cpu_encodings"],
    )
    assert oracle.torch_model_path == "a/c"
    assert oracle.weight_path_map == {"q4_k": "a/b/weights.gguf"}
    assert list(oracle.inputs) == ["one", [1, 2]]
    assert oracle.apply_chat_template
    assert not oracle.use_cache
    assert oracle.task_name == "EMBEDDINGS_GENERATION"
    assert oracle.default_batch_size == 3
    assert oracle.add_bos_token is True
    assert oracle.max_cpu_patches == ("widen_cpu_encodings",)


@pytest.mark.parametrize("auto_model_cls", [None, "LlamaForCausalLM", "the class itself"])
def test_torch_pipeline_takes_classes_and_names(auto_model_cls: object, tmp_path: Path) -> None:
    if auto_model_cls == "the class itself":
        auto_model_cls = transformers.LlamaForCausalLM
    oracle = GenericOracle(
        str(ensure_tiny_checkpoint("llama", tmp_path)),
        device_encoding_map={"cpu": ["bfloat16"]},
        auto_model_cls=auto_model_cls,
        auto_processor_cls="AutoTokenizer",
    )
    built = oracle.create_torch_pipeline(encoding="bfloat16", device="cpu")
    assert type(built.model).__name__ == "LlamaForCausalLM"
    assert built.model.dtype == torch.bfloat16
    assert len(built.data_processor) == built.model.config.vocab_size


def test_torch_loads_torch_model_path(tmp_path: Path) -> None:
    oracle = GenericOracle(
        "quantised/weights",
        torch_model_path=str(ensure_tiny_checkpoint("llama", tmp_path)),
        device_encoding_map={"cpu": ["float32"]},
    )
    built = oracle.create_torch_pipeline(encoding="float32", device="cpu")
    assert built.model.config.model_type == "llama"
