"""Tests of tokenizers rebuilt from GGUF metadata, on files written here with the gguf package."""

from pathlib import Path

import pytest
import transformers
from gguf import GGUFWriter

from comparison.schema.errors import UnsupportedFormatError
from test_common.gguf_tokenizer import (
    TokenType,
    build_gguf_tokenizer,
    merges_from_scores,
    read_vocabulary,
    save_gguf_tokenizer,
)

_BYTES = [f"<0x{value:02X}>" for value in range(256)]
# Scores fall with the rank, as SentencePiece's do; 'at' comes before 'ca'.
_PIECES = ["▁c", "at", "▁cat", "ca", "▁", "a", "c", "s", "t"]


def _sentencepiece_file(folder: Path) -> Path:
    specials = ["<pad>", "<eos>", "<bos>", "<unk>", "  "]
    types = [TokenType.CONTROL] * 3 + [TokenType.UNKNOWN, TokenType.USER_DEFINED]
    tokens = [*specials, *_BYTES, *_PIECES]
    types += [TokenType.BYTE] * 256 + [TokenType.NORMAL] * len(_PIECES)
    scores = [0.0] * (len(specials) + 256) + [-float(rank) for rank in range(len(_PIECES))]
    path = folder / "sentencepiece.gguf"
    writer = GGUFWriter(path, "gemma3")
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores(scores)
    writer.add_token_types(types)
    writer.add_pad_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_bos_token_id(2)
    writer.add_unk_token_id(3)
    writer.add_add_bos_token(True)
    _close(writer)
    return path


def _byte_level_file(folder: Path, model: str = "gpt2") -> Path:
    from tokenizers.pre_tokenizers import ByteLevel

    alphabet = sorted(ByteLevel.alphabet())
    tokens = ["<|end|>", *alphabet, "ca", "cat", "Ġcat", "12"]
    path = folder / "byte_level.gguf"
    writer = GGUFWriter(path, "llama")
    writer.add_tokenizer_model(model)
    writer.add_token_list(tokens)
    writer.add_token_types([TokenType.CONTROL] + [TokenType.NORMAL] * (len(tokens) - 1))
    writer.add_token_merges(["c a", "ca t", "Ġ cat", "1 2"])
    writer.add_eos_token_id(0)
    writer.add_chat_template("{{ messages[0]['content'] }}")
    _close(writer)
    return path


def _close(writer: GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _load(gguf_path: Path) -> transformers.PreTrainedTokenizerBase:
    folder = gguf_path.parent / "checkpoint"
    folder.mkdir()
    save_gguf_tokenizer(gguf_path, folder)
    return transformers.AutoTokenizer.from_pretrained(folder)


def test_scores_order_the_merges(tmp_path: Path) -> None:
    merges = merges_from_scores(read_vocabulary(_sentencepiece_file(tmp_path)))
    assert merges == [("▁", "c"), ("a", "t"), ("▁c", "at"), ("c", "a")]


def test_sentencepiece_merges_by_score_and_starts_with_bos(tmp_path: Path) -> None:
    tokenizer = _load(_sentencepiece_file(tmp_path))
    ids = tokenizer(" cat cats")["input_ids"]
    assert tokenizer.convert_ids_to_tokens(ids) == ["<bos>", "▁cat", "▁cat", "s"]
    # 'at' has the better score, so 'ca' is not made first.
    assert tokenizer.tokenize("cat") == ["c", "at"]
    assert len(tokenizer) == 5 + 256 + len(_PIECES)


def test_sentencepiece_spells_unknown_characters_in_bytes(tmp_path: Path) -> None:
    tokenizer = _load(_sentencepiece_file(tmp_path))
    assert tokenizer.tokenize("é") == ["<0xC3>", "<0xA9>"]
    text = "cat é 🦊  cat"
    ids = tokenizer(text)["input_ids"]
    assert tokenizer.decode(ids, skip_special_tokens=True) == text
    assert tokenizer.convert_ids_to_tokens(ids).count("  ") == 1


def test_byte_level_splits_digits_and_adds_no_bos(tmp_path: Path) -> None:
    tokenizer = _load(_byte_level_file(tmp_path))
    assert tokenizer.tokenize("cat cat12") == ["cat", "Ġcat", "1", "2"]
    text = "naïve 🦊\n\tcat"
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
    assert tokenizer.eos_token == "<|end|>"
    assert tokenizer.bos_token is None


def test_chat_template_comes_along(tmp_path: Path) -> None:
    tokenizer = _load(_byte_level_file(tmp_path))
    chat = [{"role": "user", "content": "cat"}]
    assert tokenizer.apply_chat_template(chat, tokenize=False) == "cat"


def test_unknown_kind_is_refused(tmp_path: Path) -> None:
    vocabulary = read_vocabulary(_byte_level_file(tmp_path, model="rwkv"))
    with pytest.raises(UnsupportedFormatError, match="'rwkv' is not supported; known: llama, gpt2"):
        build_gguf_tokenizer(vocabulary)
