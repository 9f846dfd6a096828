"""A model whose weights stay in their files gives what a loaded one gives, bit for bit."""

import copy
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    Gemma3TextConfig,
    GPT2Config,
    LlamaConfig,
    Qwen3MoeConfig,
)

from comparison.schema.errors import BadInputError
from diagnosis.replay.float64_mode import LongestSum, float64_copy, float64_throughout
from diagnosis.replay.pinned_replay import lasting_storages
from test_common import streamed_tensor
from test_common.streamed_model import streamed_weights
from test_common.streamed_tensor import StreamedTensor
from test_common.torch_print_hook import TorchPrintHook
from test_common.weight_recorder import weights_of_module

_SIZES = {
    "vocab_size": 301,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 20,
}
# Untied and tied heads, stacked experts, and weights that are used transposed.
_CONFIGS: dict[str, Callable[[], Any]] = {
    "llama": lambda: LlamaConfig(**_SIZES, tie_word_embeddings=False),
    "gemma3": lambda: Gemma3TextConfig(**_SIZES),
    "qwen3_moe": lambda: Qwen3MoeConfig(
        **_SIZES, num_experts=5, num_experts_per_tok=2, moe_intermediate_size=32
    ),
    "gpt2": lambda: GPT2Config(vocab_size=301, n_embd=48, n_layer=2, n_head=4, n_positions=64),
}
_IDS = torch.tensor([[3, 17, 255, 4, 9, 100, 2, 8, 31, 30, 6], [5, 9, 33, 7, 1, 3, 3, 90, 2, 4, 8]])


class _Kept:
    """A sink that keeps what it is given."""

    def __init__(self) -> None:
        self.tensors: dict[str, torch.Tensor] = {}

    def save(self, name: str, tensor: torch.Tensor) -> None:
        self.tensors[name] = tensor.clone()

    def step(self) -> None:
        pass


def _save(folder: Path, kind: str, *, dtype: torch.dtype = torch.bfloat16) -> Path:
    torch.manual_seed(3)
    model = AutoModelForCausalLM.from_config(_CONFIGS[kind]())
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) / 20)
    model.to(dtype).save_pretrained(folder, max_shard_size="60KB")
    return folder


def _load(folder: Path, dtype: torch.dtype = torch.float32, *, streamed: bool) -> Any:
    with streamed_weights(wanted=streamed):
        return AutoModelForCausalLM.from_pretrained(
            folder, dtype=dtype, attn_implementation="eager"
        )


def _captured(model: Any) -> dict[str, torch.Tensor]:
    sink = _Kept()
    with torch.no_grad(), TorchPrintHook(sink=sink) as hook:
        hook.name_layers(model)
        model(_IDS)
    return sink.tensors


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", list(_CONFIGS))
def test_every_tensor_is_that_of_a_loaded_model(
    kind: str, dtype: torch.dtype, tmp_path: Path
) -> None:
    folder = _save(tmp_path, kind)
    assert len(list(folder.glob("*.safetensors"))) > 1
    loaded, streamed = (_load(folder, dtype, streamed=way) for way in (False, True))
    assert all(isinstance(weight, StreamedTensor) for weight in streamed.parameters())
    ours, theirs = _captured(streamed), _captured(loaded)
    assert list(ours) == list(theirs)
    for name, tensor in ours.items():
        assert type(tensor) is torch.Tensor
        assert torch.equal(tensor, theirs[name]), name


@pytest.mark.parametrize("kind", ["llama", "qwen3_moe"])
def test_the_copy_in_float64_is_streamed_and_the_same(kind: str, tmp_path: Path) -> None:
    folder = _save(tmp_path, kind)
    found = []
    for way in (False, True):
        wide = float64_copy(_load(folder, streamed=way))
        with torch.no_grad(), float64_throughout(LongestSum()):
            found.append(wide(_IDS).logits)
    assert all(isinstance(weight, StreamedTensor) for weight in wide.parameters())
    assert all(weight.dtype == torch.float64 for weight in wide.parameters())
    assert found[0].dtype == torch.float64
    assert torch.equal(*found)


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_a_large_weight_in_float64_is_multiplied_in_strips(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = _save(tmp_path, kind)
    wide = float64_copy(_load(folder, streamed=True))
    with torch.no_grad(), float64_throughout(LongestSum()):
        whole = wide(_IDS).logits
    read: list[int] = []  # how many bytes each weight took that was read whole
    whole_weight = StreamedTensor.whole

    def counted(weight: StreamedTensor) -> torch.Tensor:
        found = whole_weight(weight)
        read.append(found.nbytes if found.dtype == torch.float64 else 0)
        return found

    monkeypatch.setattr(StreamedTensor, "whole", counted)
    monkeypatch.setattr(streamed_tensor, "_STRIP_BYTES", 5000)
    with torch.no_grad(), float64_throughout(LongestSum()):
        strips = wide(_IDS).logits
    torch.testing.assert_close(strips, whole, rtol=0, atol=1e-13)
    assert 0 < max(read) < 64 * 48 * 8


def test_weights_are_written_down_as_those_of_a_loaded_model(tmp_path: Path) -> None:
    folder = _save(tmp_path, "qwen3_moe")
    loaded, streamed = (weights_of_module(_load(folder, streamed=way)) for way in (False, True))
    assert repr(streamed.weights) == repr(loaded.weights)


def test_tied_weights_stay_tied(tmp_path: Path) -> None:
    model = _load(_save(tmp_path, "gemma3"), streamed=True)
    assert model.lm_head.weight is model.model.embed_tokens.weight
    wide = copy.deepcopy(model).double()
    assert wide.lm_head.weight is wide.model.embed_tokens.weight


def test_what_is_written_into_a_weight_stays_and_the_file_does_not_change(tmp_path: Path) -> None:
    folder = _save(tmp_path, "llama", dtype=torch.float32)
    model = _load(folder, streamed=True)
    weight = model.model.norm.weight
    before = weight.whole().clone()
    copied = copy.deepcopy(model)
    with torch.no_grad():
        weight.data[3] *= 2
        weight.mul_(3)
    assert torch.equal(weight + 0, before * torch.tensor([3.0 * (1 + (i == 3)) for i in range(48)]))
    assert torch.equal(copied.model.norm.weight + 0, before)
    assert torch.equal(_load(folder, streamed=False).model.norm.weight, before)


def test_a_mapped_weight_is_known_as_memory_that_lasts(tmp_path: Path) -> None:
    model = _load(_save(tmp_path, "llama", dtype=torch.float32), streamed=True)
    mapped = model.model.norm.weight.whole()
    assert mapped.untyped_storage().data_ptr() in lasting_storages(model)


def test_other_weights_than_safetensors_are_refused(tmp_path: Path) -> None:
    folder = _save(tmp_path, "llama")
    state = _load(folder, streamed=False).state_dict()
    for file in folder.glob("*.safetensors*"):
        file.unlink()
    torch.save(state, folder / "pytorch_model.bin")
    with pytest.raises(BadInputError, match="only safetensors can be streamed"):
        _load(folder, streamed=True)


def test_nothing_streamed_is_an_error_and_the_patches_go() -> None:
    from transformers import modeling_utils

    before = modeling_utils.safe_open, modeling_utils.convert_and_load_state_dict_in_model
    with pytest.raises(BadInputError, match="no weights were streamed"), streamed_weights():
        assert modeling_utils.safe_open is not before[0]
    assert (modeling_utils.safe_open, modeling_utils.convert_and_load_state_dict_in_model) == before


def _anonymous_bytes() -> int:
    found = re.search(r"RssAnon:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found.group(1)) * 1024


def test_a_streamed_model_takes_no_memory_for_its_weights(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    torch.manual_seed(0)
    config = LlamaConfig(**_SIZES | {"vocab_size": 200_003, "hidden_size": 64})
    config.save_pretrained(tmp_path)
    weights = AutoModelForCausalLM.from_config(config).bfloat16().state_dict()
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    size = sum(weight.nbytes for weight in weights.values())
    del weights
    before = _anonymous_bytes()
    model = _load(tmp_path, streamed=True)
    with torch.no_grad():
        model.model(_IDS)
    assert size > 50e6
    assert _anonymous_bytes() - before < size / 2
