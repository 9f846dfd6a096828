"""Tiny GGUF files: what stands in the file is what stands beside it, dequantised."""

import json
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFReader
from gguf.quants import dequantize
from safetensors.numpy import load_file

from comparison.schema.errors import BadInputError
from test_common.tiny_checkpoints import GGUF_ENCODINGS, ensure_tiny_gguf, gguf_file_name
from test_common.tiny_checkpoints.gguf_checkpoint import GGUF_RECIPE, gguf_name

HEADS = GGUF_RECIPE.config["num_attention_heads"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ensure_tiny_gguf("q4_k", tmp_path_factory.mktemp("cache"))


def in_file(folder: Path, encoding: str) -> dict[str, np.ndarray]:
    reader = GGUFReader(folder / gguf_file_name(encoding))
    return {tensor.name: dequantize(tensor.data, tensor.tensor_type) for tensor in reader.tensors}


def test_file_holds_each_weight_and_its_dequantised_value_lies_beside(folder: Path) -> None:
    blocks, beside = in_file(folder, "q4_k"), load_file(folder / "model.safetensors")
    assert {gguf_name(name) for name in beside} == set(blocks)
    for name, weight in beside.items():
        if "q_proj" not in name and "k_proj" not in name:
            np.testing.assert_array_equal(weight, blocks[gguf_name(name)], err_msg=name)


def test_rotated_rows_of_a_head_are_pairs_in_the_file_and_halves_beside(folder: Path) -> None:
    blocks, beside = in_file(folder, "q4_k"), load_file(folder / "model.safetensors")
    paired = blocks["blk.1.attn_q.weight"].reshape(HEADS, -1, 256)  # [N, D, I]
    halves = beside["model.layers.1.self_attn.q_proj.weight"].reshape(HEADS, -1, 256)
    half = halves.shape[1] // 2
    np.testing.assert_array_equal(paired[:, 0::2], halves[:, :half])
    np.testing.assert_array_equal(paired[:, 1::2], halves[:, half:])


def test_weights_are_quantised_and_norms_are_not(folder: Path) -> None:
    kinds = {
        t.name: t.tensor_type.name for t in GGUFReader(folder / gguf_file_name("q4_k")).tensors
    }
    assert kinds["token_embd.weight"] == kinds["blk.0.ffn_down.weight"] == "Q4_K"
    assert kinds["blk.0.attn_norm.weight"] == kinds["output_norm.weight"] == "F32"


def test_folder_has_config_and_tokenizer(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert config["intermediate_size"] % 256 == 0
    assert (folder / "tokenizer.json").is_file()


@pytest.mark.parametrize("encoding", ["q4_0", "q6_k"])
def test_other_encodings_are_made_the_same_way(encoding: str, tmp_path: Path) -> None:
    made = ensure_tiny_gguf(encoding, tmp_path)
    weight = load_file(made / "model.safetensors")["lm_head.weight"]
    np.testing.assert_array_equal(weight, in_file(made, encoding)["output.weight"])


def test_each_encoding_names_its_file_as_max_reads_it() -> None:
    assert {name: gguf_file_name(name).lower() for name in GGUF_ENCODINGS} == {
        "q4_k": "llama-gguf-q4_k_m.gguf",
        "q4_0": "llama-gguf-q4_0.gguf",
        "q6_k": "llama-gguf-q6_k.gguf",
    }


def test_unknown_encoding_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="'q4_1'; nearest: q4_"):
        ensure_tiny_gguf("q4_1", tmp_path)
