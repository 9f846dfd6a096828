"""Token ids as text, by the tokenizer of a pipeline, loaded when there is something to decode."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from comparison.schema.errors import AccuracyToolsError
from test_common.secret_text import without_tokens

if TYPE_CHECKING:
    from oracles.oracle import PipelineOracle

Decode = Callable[[Sequence[int]], str | None]
_BESIDE = 6  # tokens on each side of a place


def decoder_of(oracle: PipelineOracle) -> Decode:
    """Return what decodes a pipeline's token ids, None for ids where its tokenizer is not at hand.

    Args:
        oracle: of the pipeline; its tokenizer is loaded when the first ids are decoded.
    """

    @cache
    def tokenizer() -> Any:
        from test_common.prompts import load_tokenizer

        params = oracle.config_params
        try:
            return load_tokenizer(
                oracle.model_path,
                trust_remote_code=bool(params.get("trust_remote_code", False)),
                revision=params.get("huggingface_model_revision"),
            )
        except AccuracyToolsError:  # the ids say it all the same
            return None

    def decode(ids: Sequence[int]) -> str | None:
        known = tokenizer()
        try:
            return None if known is None else str(known.decode(list(ids)))
        except Exception:  # a tokenizer may raise anything at ids that it does not know
            return None

    return decode


def text_around(ids: Sequence[int], place: int, decode: Decode | None) -> str:
    """Show the text around a token, which a bar stands before; empty where it cannot be decoded.

    It is empty too where the row's text has a token or password in it, of which a part would show.

    Args:
        ids: of a whole row.
        place: of the token.
        decode: gives their text; None where there is no tokenizer.
    """
    if decode is None:
        return ""
    whole = decode(ids)
    if whole is None or without_tokens(whole) != whole:
        return ""
    before = decode(ids[max(place - _BESIDE, 0) : place]) if place else ""
    after = decode(ids[place : place + _BESIDE]) if place < len(ids) else ""
    return "" if before is None or after is None else f", in the text {before + '|' + after!r}"
