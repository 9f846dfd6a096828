"""Rebuilds the exact fast tokenizer from a GGUF file's metadata.

The conversion in transformers falls short for some files: it leaves out BOS, splits into single
characters where the file lists no merges, and forgets how the model splits digits.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from comparison.schema.errors import UnsupportedFormatError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_SPACE = "\N{LOWER ONE EIGHTH BLOCK}"  # how SentencePiece spells a space


class TokenType(IntEnum):
    """GGUF's `tokenizer.ggml.token_type`."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufVocabulary:
    """The tokenizer part of a GGUF file's metadata.

    Attributes:
        model: `llama` for SentencePiece with scores, `gpt2` for byte-level BPE with merges.
        tokens: the tokens in the order of their ids.
        token_types: one `TokenType` a token.
        scores: one score a token, greater merges earlier; empty for `gpt2`.
        merges: `left right` pairs in order; empty for `llama`.
        special_ids: `bos`, `eos`, `unk`, `pad` to the token's id.
        adds_bos: whether a text starts with BOS.
        chat_template: Jinja template, or None.
    """

    model: str
    tokens: Sequence[str]
    token_types: Sequence[int]
    scores: Sequence[float]
    merges: Sequence[str]
    special_ids: Mapping[str, int]
    adds_bos: bool
    chat_template: str | None


def read_vocabulary(gguf_path: Path) -> GgufVocabulary:
    """Read the tokenizer part of a GGUF file."""
    from gguf import GGUFReader

    fields = GGUFReader(gguf_path).fields

    def value(name: str, default: Any) -> Any:
        field = fields.get(f"tokenizer.{name}")
        return default if field is None else field.contents()

    names = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
    ids = {short: value(f"ggml.{name}_token_id", None) for short, name in names.items()}
    return GgufVocabulary(
        model=value("ggml.model", ""),
        tokens=value("ggml.tokens", ()),
        token_types=value("ggml.token_type", ()),
        scores=value("ggml.scores", ()),
        merges=value("ggml.merges", ()),
        special_ids={name: index for name, index in ids.items() if index is not None},
        adds_bos=bool(value("ggml.add_bos_token", False)),
        chat_template=value("chat_template", None),
    )


def save_gguf_tokenizer(gguf_path: Path, folder: Path) -> None:
    """Write tokenizer.json and tokenizer_config.json of a GGUF file into `folder`.

    Raises:
        UnsupportedFormatError: the tokenizer is neither SentencePiece BPE nor byte-level BPE.
    """
    vocabulary = read_vocabulary(gguf_path)
    build_gguf_tokenizer(vocabulary).save(str(folder / "tokenizer.json"))
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        **{f"{k}_token": vocabulary.tokens[i] for k, i in vocabulary.special_ids.items()},
    }
    if vocabulary.chat_template:
        config["chat_template"] = vocabulary.chat_template
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")


def build_gguf_tokenizer(vocabulary: GgufVocabulary) -> "Tokenizer":
    """Build the fast tokenizer of a vocabulary.

    Raises:
        UnsupportedFormatError: the tokenizer is neither SentencePiece BPE nor byte-level BPE.
    """
    builders = {"llama": _sentencepiece, "gpt2": _byte_level}
    builder = builders.get(vocabulary.model)
    if builder is None:
        raise UnsupportedFormatError(
            f"GGUF tokenizer {vocabulary.model!r} is not supported; known: {', '.join(builders)}"
        )
    tokenizer = builder(vocabulary)
    _add_special_tokens(tokenizer, vocabulary)
    if vocabulary.adds_bos:
        _add_bos(tokenizer, vocabulary)
    return tokenizer


def _sentencepiece(vocabulary: GgufVocabulary) -> "Tokenizer":
    from tokenizers import Tokenizer, decoders, models, normalizers

    ids = {token: index for index, token in enumerate(vocabulary.tokens)}
    model = models.BPE(
        vocab=ids,
        merges=merges_from_scores(vocabulary),
        unk_token=vocabulary.tokens[vocabulary.special_ids["unk"]],
        fuse_unk=True,
        byte_fallback=True,
    )
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Replace(" ", _SPACE)
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    return tokenizer


def _byte_level(vocabulary: GgufVocabulary) -> "Tokenizer":
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    ids = {token: index for index, token in enumerate(vocabulary.tokens)}
    pairs = [_pair(merge) for merge in vocabulary.merges]
    tokenizer = Tokenizer(models.BPE(vocab=ids, merges=pairs))
    # `tokenizer.ggml.pre` smollm: single digits, then GPT-2's pattern.
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _pair(merge: str) -> tuple[str, str]:
    left, _, right = merge.partition(" ")
    return left, right


def merges_from_scores(vocabulary: GgufVocabulary) -> list[tuple[str, str]]:
    """Return the merges that SentencePiece's scores imply, in order.

    SentencePiece merges the neighbours whose joint piece has the greatest score; so every split of
    a piece into two pieces is a merge, ranked by the piece.
    """
    score = {
        token: value
        for token, value, kind in zip(
            vocabulary.tokens, vocabulary.scores, vocabulary.token_types, strict=True
        )
        if kind == TokenType.NORMAL
    }
    ranked = sorted((token for token in score if len(token) > 1), key=lambda token: -score[token])
    return [
        (token[:cut], token[cut:])
        for token in ranked
        for cut in range(1, len(token))
        if token[:cut] in score and token[cut:] in score
    ]


def _add_special_tokens(tokenizer: "Tokenizer", vocabulary: GgufVocabulary) -> None:
    from tokenizers import AddedToken

    kinds = list(zip(vocabulary.tokens, vocabulary.token_types, strict=True))
    control = [token for token, kind in kinds if kind == TokenType.CONTROL]
    user_defined = [token for token, kind in kinds if kind == TokenType.USER_DEFINED]
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in control])
    # GGUF spells their spaces as spaces, so they match the text as it is.
    tokenizer.add_tokens([AddedToken(t, special=False, normalized=False) for t in user_defined])


def _add_bos(tokenizer: "Tokenizer", vocabulary: GgufVocabulary) -> None:
    from tokenizers.processors import TemplateProcessing

    index = vocabulary.special_ids["bos"]
    bos = vocabulary.tokens[index]
    tokenizer.post_processor = TemplateProcessing(
        single=[bos, "$A"], pair=[bos, "$A", bos, "$B"], special_tokens=[(bos, index)]
    )
