"""Makes a tiny GGUF file, beside a checkpoint of exactly the weights that it dequantises to."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from comparison.schema.errors import BadInputError
from test_common.checkpoint_cache import content_key, default_cache_dir, ensure_folder
from test_common.tiny_checkpoints.checkpoint import VERSIONED, recipe_content, write_checkpoint
from test_common.tiny_checkpoints.recipes import RECIPES

if TYPE_CHECKING:
    import numpy as np
    import torch

# Encoding to what MAX looks for in the file's name.
GGUF_ENCODINGS: Mapping[str, str] = {"q4_k": "Q4_K_M", "q4_0": "Q4_0", "q6_k": "Q6_K"}
# Rows of weights are multiples of 256, as K blocks want.
GGUF_RECIPE = replace(
    RECIPES["llama"], config={**RECIPES["llama"].config, "intermediate_size": 768}
)
_ARCH = "llama-gguf"
_LAYOUT = 1  # raise it when the code changes what a folder holds

# As llama.cpp names them.
_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def ensure_tiny_gguf(encoding: str, cache_dir: Path | None = None) -> Path:
    """Return the folder of a tiny llama in an encoding of GGUF, making it if need be.

    It holds the GGUF file (see `gguf_file_name`), its tokenizer, and as model.safetensors the
    float32 weights that the file dequantises to: what an engine makes of the blocks is then all
    that tells a run of the file from a run of the checkpoint.

    Args:
        encoding: a key of `GGUF_ENCODINGS`.
        cache_dir: where to keep it; by default the user's cache folder.

    Raises:
        BadInputError: the encoding is not known.
        UnwritableOutputError: the cache folder cannot be written.
    """
    if encoding not in GGUF_ENCODINGS:
        near = difflib.get_close_matches(encoding, GGUF_ENCODINGS, n=1) or sorted(GGUF_ENCODINGS)
        raise BadInputError(f"no tiny GGUF file in {encoding!r}; nearest: {', '.join(near)}")
    content = {**recipe_content(_ARCH, GGUF_RECIPE), "encoding": encoding, "gguf_layout": _LAYOUT}
    key = content_key(content, (*VERSIONED, "gguf"))
    folder = (cache_dir or default_cache_dir()) / f"{_ARCH}-{encoding}-{key}"
    return ensure_folder(folder, lambda partial: _make(encoding, partial))


def gguf_file_name(encoding: str) -> str:
    """Return the name of the GGUF file in a folder of `ensure_tiny_gguf`."""
    return f"{_ARCH}-{GGUF_ENCODINGS[encoding]}.gguf"


def _make(encoding: str, folder: Path) -> None:
    def write_and_dequantise(model: torch.nn.Module) -> None:
        import torch

        path = folder / gguf_file_name(encoding)
        dequantised = dict(_write_gguf(model, encoding, path))
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.copy_(torch.from_numpy(dequantised[name]))

    write_checkpoint(_ARCH, GGUF_RECIPE, folder, before_saving=write_and_dequantise)


def _write_gguf(
    model: torch.nn.Module, encoding: str, path: Path
) -> Iterator[tuple[str, np.ndarray]]:
    """Write the file, and yield the name and float32 value of each weight as it is in the file."""
    from gguf import GGMLQuantizationType, GGUFWriter
    from gguf.quants import dequantize

    writer = GGUFWriter(path, "llama")
    _write_settings(writer)
    kind = GGMLQuantizationType[encoding.upper()]
    for name, parameter in model.named_parameters():
        heads = _rotated_heads(name)
        values = _paired(parameter.detach().numpy(), heads)
        if values.ndim < 2:  # norm weights stay as they are
            writer.add_tensor(gguf_name(name), values)
            yield name, values
            continue
        blocks = _quantise(values, encoding)
        writer.add_tensor(gguf_name(name), blocks, raw_dtype=kind)
        yield name, _unpaired(dequantize(blocks, kind), heads)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _write_settings(writer: object) -> None:
    """Write what readers of GGUF besides MAX want; MAX reads config.json."""
    config = GGUF_RECIPE.config
    settings = {
        "add_context_length": config["max_position_embeddings"],
        "add_embedding_length": config["hidden_size"],
        "add_block_count": config["num_hidden_layers"],
        "add_feed_forward_length": config["intermediate_size"],
        "add_head_count": config["num_attention_heads"],
        "add_head_count_kv": config["num_key_value_heads"],
        "add_layer_norm_rms_eps": config["rms_norm_eps"],
        "add_rope_freq_base": config["rope_parameters"]["rope_theta"],
        "add_vocab_size": GGUF_RECIPE.vocab_size,
    }
    for method, value in settings.items():
        getattr(writer, method)(value)


def gguf_name(name: str) -> str:
    """Return llama.cpp's name of a weight of transformers' llama."""
    stem = name.removesuffix(".weight")
    layer, is_of_layer, rest = stem.removeprefix("model.layers.").partition(".")
    if stem.startswith("model.layers.") and is_of_layer:
        return f"blk.{layer}.{_NAMES[rest]}.weight"
    return f"{_NAMES[stem]}.weight"


def _rotated_heads(name: str) -> int | None:
    """Return the heads of a projection whose output is rotated, else None."""
    for part, heads in (
        ("q_proj", "num_attention_heads"),
        ("k_proj", "num_key_value_heads"),
    ):
        if part in name:
            return int(GGUF_RECIPE.config[heads])
    return None


def _paired(weight: np.ndarray, heads: int | None) -> np.ndarray:
    """Order the rows of each head as llama.cpp rotates them: a pair side by side.

    Transformers rotates row i with row i + D/2. Source: `permute` in llama.cpp's converter.
    """
    if heads is None:
        return weight
    halves = weight.reshape(heads, 2, -1, weight.shape[1])  # [N, half, D/2, I]
    return halves.swapaxes(1, 2).reshape(weight.shape)


def _unpaired(weight: np.ndarray, heads: int | None) -> np.ndarray:
    """Undo `_paired`."""
    if heads is None:
        return weight
    pairs = weight.reshape(heads, -1, 2, weight.shape[1])  # [N, D/2, half, I]
    return pairs.swapaxes(1, 2).reshape(weight.shape)


def _quantise(weight: np.ndarray, encoding: str) -> np.ndarray:
    from gguf import GGMLQuantizationType
    from gguf.quants import quantize

    from test_common.tiny_checkpoints.k_quants import K_QUANTISERS

    own = K_QUANTISERS.get(encoding)
    if own is not None:
        return own(weight)
    blocks: np.ndarray = quantize(weight, GGMLQuantizationType[encoding.upper()])
    return blocks
