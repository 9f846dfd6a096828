"""Token ids that differ, with the text around them."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from comparison.schema.errors import BadInputError
from comparison.schema.manifest import Manifest, Padding, Row
from diagnosis.decoded_text import decoder_of, text_around
from diagnosis.inputs import input_differences
from oracles.registry import PIPELINE_ORACLES

WORDS = ["the ", "cat ", "sat ", "on ", "a ", "mat ", "and ", "dog ", "ran ", "off."]


def spelled(ids: Sequence[int]) -> str:
    return "".join(WORDS[token] for token in ids)


def of_rows(*rows: tuple[int, ...]) -> Manifest:
    return Manifest(
        engine="torch",
        versions={},
        model="m",
        pipeline="p",
        encoding="float32",
        device="cpu",
        padding=Padding.LEFT,
        rows=tuple(Row(prompt=None, token_ids=row) for row in rows),
        steps=1,
        config={},
    )


def test_the_first_token_that_differs_is_shown_within_its_text() -> None:
    same, ids = (1, 2, 3), (0, 1, 2, 3, 4, 5, 6, 7, 8, 9)
    reference, candidate = of_rows(same, ids), of_rows(same, (*ids[:7], 1, 8, 9))
    (found,) = input_differences(reference, candidate, spelled)
    assert found.what == "token ids of row 1, from token 7 on"
    assert found.reference == (
        "10 tokens, there [7, 8, 9], in the text 'cat sat on a mat and |dog ran off.'"
    )
    assert found.candidate == (
        "10 tokens, there [1, 8, 9], in the text 'cat sat on a mat and |cat ran off.'"
    )
    (plain,) = input_differences(reference, candidate)
    assert plain == replace(
        found, reference="10 tokens, there [7, 8, 9]", candidate="10 tokens, there [1, 8, 9]"
    )


def test_a_row_that_ends_before_and_one_that_begins_otherwise() -> None:
    assert text_around((0, 1), 2, spelled) == ", in the text 'the cat |'"
    assert text_around((0, 1), 0, spelled) == ", in the text '|the cat '"
    assert text_around((0, 1), 0, lambda ids: None) == ""


def test_a_tokenizer_is_loaded_when_ids_are_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    oracle = PIPELINE_ORACLES["tiny-random/llama"]
    loaded = []

    class Tokenizer:
        def decode(self, ids: list[int]) -> str:
            return spelled(ids)

    def load(path: object, **options: object) -> Tokenizer:
        loaded.append(path)
        return Tokenizer()

    monkeypatch.setattr("test_common.prompts.load_tokenizer", load)
    decode = decoder_of(oracle)
    assert loaded == []
    assert (decode((0, 1)), decode((99,)), decode((2,))) == ("the cat ", None, "sat ")
    assert loaded == [oracle.model_path]


def test_without_a_tokenizer_ids_are_told_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(path: object, **options: object) -> None:
        raise BadInputError("there is none")

    monkeypatch.setattr("test_common.prompts.load_tokenizer", load)
    decode = decoder_of(PIPELINE_ORACLES["tiny-random/llama"])
    assert decode((0, 1)) is None
    assert text_around((0, 1), 1, decode) == ""
