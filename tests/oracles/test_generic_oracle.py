"""Tests of the oracle for any model, on the real builders."""

import json
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import save_file

from comparison.schema.errors import BadInputError, UnsupportedFormatError
from oracles.generic_oracle import GenericOracle
from oracles.registry import PIPELINE_ORACLES
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


@pytest.mark.parametrize(
    ("encoding", "dtype"), [("q4_k", torch.float32), ("float8_e4m3fn", torch.bfloat16)]
)
def test_torch_loads_the_model_before_quantisation_in_what_its_blocks_are_computed_in(
    encoding: str, dtype: torch.dtype, tmp_path: Path
) -> None:
    oracle = GenericOracle(
        "my-org/quantised",
        torch_model_path=str(ensure_tiny_checkpoint("llama", tmp_path)),
        device_encoding_map={"cpu": [encoding]},
    )
    built = oracle.create_torch_pipeline(encoding=encoding, device="cpu")
    assert {parameter.dtype for parameter in built.model.parameters()} == {dtype}


def test_quantised_encoding_without_another_model_for_torch_is_refused(tmp_path: Path) -> None:
    oracle = GenericOracle(
        str(ensure_tiny_checkpoint("llama", tmp_path)), device_encoding_map={"cpu": ["q4_k"]}
    )
    with pytest.raises(UnsupportedFormatError, match="give the oracle torch_model_path"):
        oracle.create_torch_pipeline(encoding="q4_k", device="cpu")


@pytest.fixture(scope="module")
def adapter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An adapter of the query projection of layer 0 of tiny llama."""
    folder = tmp_path_factory.mktemp("adapter")
    settings = {"peft_type": "LORA", "r": 2, "lora_alpha": 4}
    (folder / "adapter_config.json").write_text(json.dumps(settings))
    stem = "base_model.model.model.layers.0.self_attn.q_proj"
    matrices = {"lora_A": torch.full((2, 256), 0.25), "lora_B": torch.full((256, 2), 0.5)}
    weights = {f"{stem}.{name}.weight": matrix for name, matrix in matrices.items()}
    save_file(weights, folder / "adapter_model.safetensors")
    return folder


@pytest.fixture
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Keep what is merged out of the user's cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


@pytest.mark.usefixtures("own_cache")
@pytest.mark.parametrize("given", ["as an argument", "afterwards"])
def test_adapter_is_in_what_every_engine_loads(given: str, adapter: Path, tmp_path: Path) -> None:
    base = str(ensure_tiny_checkpoint("llama", tmp_path))
    devices = {"cpu": ["float32"]}
    plain = GenericOracle(base, device_encoding_map=devices)
    if given == "afterwards":
        oracle = plain.with_lora(str(adapter))
    else:
        oracle = GenericOracle(base, device_encoding_map=devices, lora_path=str(adapter))
    query = "model.layers.0.self_attn.q_proj.weight"
    before, after = (
        one.create_torch_pipeline(encoding="float32", device="cpu").model.state_dict()
        for one in (plain, oracle)
    )
    # 4 / 2 times 2 ranks of 0.5 * 0.25
    torch.testing.assert_close(after[query], before[query] + 0.5)
    assert [name for name in before if not torch.equal(before[name], after[name])] == [query]
    vllm = oracle.create_vllm_pipeline(encoding="float32", device_specs=[])
    assert vllm.model_path == oracle.model_path != base
    assert oracle.label == plain.model_path == base


@pytest.mark.usefixtures("own_cache")
def test_adapter_of_a_checkpoint_that_is_made_on_first_use(adapter: Path) -> None:
    made = PIPELINE_ORACLES["tiny-random/llama"]
    assert isinstance(made, GenericOracle)
    merged = made.with_lora(str(adapter))
    assert merged.label == made.label == "tiny-random/llama"
    assert merged.model_path != made.model_path
    assert made.lora_path is None


def test_adapter_may_be_given_as_a_path(adapter: Path) -> None:
    devices = {"cpu": ["float32"]}
    given = GenericOracle("a/b", device_encoding_map=devices, lora_path=adapter)
    afterwards = GenericOracle("a/b", device_encoding_map=devices).with_lora(adapter)
    assert given.lora_path == afterwards.lora_path == str(adapter)


def test_adapter_cannot_go_into_blocks(adapter: Path) -> None:
    blocks = PIPELINE_ORACLES["tiny-random/llama-q4_k"]
    assert isinstance(blocks, GenericOracle)
    with pytest.raises(BadInputError, match="llama-q4_k: a LoRA adapter cannot be merged into"):
        assert blocks.with_lora(str(adapter)).model_path


def test_vllm_loads_what_torch_loads_of_quantised_weights() -> None:
    oracle = GenericOracle(
        "a/b", torch_model_path="a/c", device_encoding_map={"cpu": ["q4_k", "float32"]}
    )
    vllm = oracle.create_vllm_pipeline(encoding="q4_k", device_specs=[])
    assert (vllm.model_path, vllm.encoding) == ("a/c", "float32")


@pytest.mark.parametrize("encoding", ["q4_k", "float32"])
def test_tiny_gguf_is_dequantised_for_torch_and_vllm(encoding: str) -> None:
    oracle = PIPELINE_ORACLES["tiny-random/llama-q4_k"]
    built = oracle.create_torch_pipeline(encoding=encoding, device="cpu")
    assert built.model.dtype is torch.float32
    assert oracle.create_vllm_pipeline(encoding=encoding, device_specs=[]).encoding == "float32"
