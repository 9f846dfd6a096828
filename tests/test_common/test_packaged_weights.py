"""Tests of packaged weights, on a package and a GGUF file made here; real ones are an extra."""

from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from gguf import GGMLQuantizationType, GGUFWriter, dequantize, quantize

from comparison.schema.errors import BadInputError, EngineError, MissingPathError
from test_common import packaged_weights
from test_common.gguf_tokenizer import TokenType
from test_common.packaged_weights import PackagedModel, convert_gguf, ensure_packaged_checkpoint

HIDDEN, INTERMEDIATE, HEADS, KV_HEADS, LAYERS, VOCAB = 64, 96, 4, 2, 2, 260
QUANTIZED = GGMLQuantizationType.Q8_0


def _write_llama(path: Path) -> dict[str, np.ndarray]:
    """Write a tiny quantised llama; return the values that its matrices stand for."""
    generator = np.random.default_rng(0)
    kv_size = HIDDEN // HEADS * KV_HEADS
    shapes = {"token_embd": (VOCAB, HIDDEN), "output": (VOCAB, HIDDEN)}
    for layer in range(LAYERS):
        shapes |= {
            f"blk.{layer}.attn_q": (HIDDEN, HIDDEN),
            f"blk.{layer}.attn_k": (kv_size, HIDDEN),
            f"blk.{layer}.attn_v": (kv_size, HIDDEN),
            f"blk.{layer}.attn_output": (HIDDEN, HIDDEN),
            f"blk.{layer}.ffn_gate": (INTERMEDIATE, HIDDEN),
            f"blk.{layer}.ffn_up": (INTERMEDIATE, HIDDEN),
            f"blk.{layer}.ffn_down": (HIDDEN, INTERMEDIATE),
        }
    norms = ["output_norm"]
    norms += [f"blk.{n}.{kind}" for n in range(LAYERS) for kind in ("attn_norm", "ffn_norm")]
    writer = GGUFWriter(path, "llama")
    writer.add_context_length(128)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INTERMEDIATE)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(3e-6)
    writer.add_rope_freq_base(50000.0)
    writer.add_rope_dimension_count(HIDDEN // HEADS)
    writer.add_vocab_size(VOCAB)
    _add_vocabulary(writer)
    values = {}
    for name, shape in shapes.items():
        packed = quantize(generator.standard_normal(shape, dtype=np.float32) / 8, QUANTIZED)
        values[name] = dequantize(packed, QUANTIZED)
        writer.add_tensor(f"{name}.weight", packed, raw_dtype=QUANTIZED)
    for name in norms:
        values[name] = 1 + generator.standard_normal(HIDDEN, dtype=np.float32) / 5
        writer.add_tensor(f"{name}.weight", values[name])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return values


def _add_vocabulary(writer: GGUFWriter) -> None:
    from tokenizers.pre_tokenizers import ByteLevel

    tokens = ["<bos>", "<eos>", *sorted(ByteLevel.alphabet()), "ca", "cat"]
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_types([TokenType.CONTROL] * 2 + [TokenType.NORMAL] * (VOCAB - 2))
    writer.add_token_merges(["c a", "ca t"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, np.ndarray]]:
    """A converted checkpoint, and the values in its GGUF file."""
    folder = tmp_path_factory.mktemp("gguf")
    values = _write_llama(folder / "tiny.gguf")
    (folder / "checkpoint").mkdir()
    convert_gguf(folder / "tiny.gguf", folder / "checkpoint")
    return folder / "checkpoint", values


@pytest.mark.parametrize(
    ("gguf_name", "torch_name"),
    [
        ("token_embd", "model.embed_tokens.weight"),
        ("output", "lm_head.weight"),
        ("output_norm", "model.norm.weight"),
        ("blk.1.attn_v", "model.layers.1.self_attn.v_proj.weight"),
        ("blk.0.ffn_down", "model.layers.0.mlp.down_proj.weight"),
        ("blk.1.ffn_norm", "model.layers.1.post_attention_layernorm.weight"),
    ],
)
def test_weights_are_the_dequantised_ones(
    converted: tuple[Path, dict[str, np.ndarray]], gguf_name: str, torch_name: str
) -> None:
    folder, values = converted
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    weight = model.state_dict()[torch_name]
    assert weight.dtype == torch.float32
    np.testing.assert_array_equal(weight.numpy(), values[gguf_name])


def test_settings_and_tokenizer_come_along(
    converted: tuple[Path, dict[str, np.ndarray]],
) -> None:
    folder, _ = converted
    config = transformers.AutoConfig.from_pretrained(folder)
    assert config.architectures == ["LlamaForCausalLM"]
    assert config.num_key_value_heads == KV_HEADS
    assert config.rms_norm_eps == pytest.approx(3e-6)
    assert config.rope_parameters["rope_theta"] == 50000.0
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    assert len(tokenizer) == config.vocab_size
    assert tokenizer.tokenize("cat") == ["cat"]


def test_file_that_is_no_gguf(tmp_path: Path) -> None:
    (tmp_path / "bad.gguf").write_bytes(b"not a gguf file")
    with pytest.raises(EngineError, match=r"transformers cannot load .*bad\.gguf: "):
        convert_gguf(tmp_path / "bad.gguf", tmp_path)


def test_unknown_name_lists_the_known() -> None:
    with pytest.raises(BadInputError, match="no packaged model 'x'; known: gemma3-270m, smollm2"):
        ensure_packaged_checkpoint("x")


def _copy_weights(source: Path, target: Path) -> None:
    (target / "made").write_text((source / "weights").read_text())


def _install(folder: Path, monkeypatch: pytest.MonkeyPatch, *, with_module: bool) -> None:
    """Make `folder` a package index of one installed package of weights."""
    info = folder / "some_weights-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: some-weights\nVersion: 1.0\n")
    if with_module:
        (folder / "some_weights").mkdir()
        (folder / "some_weights" / "__init__.py").write_text("raise ImportError('a runtime')\n")
        (folder / "some_weights" / "weights").write_text("content")
    monkeypatch.syspath_prepend(folder)
    model = PackagedModel(
        distribution="some-weights",
        module="some_weights",
        make=_copy_weights,
    )
    monkeypatch.setattr(packaged_weights, "PACKAGED_MODELS", {"some": model})


def test_package_is_found_without_importing_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _install(tmp_path, monkeypatch, with_module=True)
    folder = ensure_packaged_checkpoint("some", tmp_path / "cache")
    assert folder.parent == tmp_path / "cache"
    assert (folder / "made").read_text() == "content"


def test_absent_package_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _install(tmp_path, monkeypatch, with_module=False)
    with pytest.raises(MissingPathError) as raised:
        ensure_packaged_checkpoint("some", tmp_path / "cache")
    assert str(raised.value) == (
        "the weights of packaged/some are not installed: package some-weights is missing; install "
        "the optional extra requirements/weights.txt, or with Bazel add --//:weights=packaged"
    )
