"""Tests of prompts as token ids, with a real tokenizer."""

from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import transformers

from comparison.schema.errors import BadInputError, EngineError
from test_common.prompts import encode_prompts
from test_common.tiny_checkpoints import ensure_tiny_checkpoint

BOS = 1


@cache
def _tokenizer() -> Any:
    return transformers.AutoTokenizer.from_pretrained(ensure_tiny_checkpoint("llama"))


def test_rows_are_what_the_tokenizer_says() -> None:
    texts = ["One prompt.", "Another, longer prompt."]
    rows = encode_prompts(_tokenizer(), texts)
    assert rows == [_tokenizer()(text)["input_ids"] for text in texts]
    assert [row[0] for row in rows] == [BOS, BOS]


@pytest.mark.parametrize("as_type", [str, Path])
def test_tokenizer_can_be_given_by_path(as_type: type) -> None:
    path = as_type(ensure_tiny_checkpoint("llama"))
    assert encode_prompts(path, ["text"]) == encode_prompts(_tokenizer(), ["text"])


def test_processor_gives_its_tokenizer() -> None:
    processor = SimpleNamespace(tokenizer=_tokenizer())
    assert encode_prompts(processor, ["text"]) == encode_prompts(_tokenizer(), ["text"])


def test_token_ids_pass_unchanged() -> None:
    assert encode_prompts(_tokenizer(), [[5, 6, 7], (8,)], add_bos_token=True) == [[5, 6, 7], [8]]


@pytest.mark.parametrize(
    ("text", "add_bos_token", "leading"),
    [
        ("hi", None, 1),
        ("hi", True, 1),
        ("hi", False, 0),
        ("<bos>hi", True, 1),
        ("<bos>hi", None, 2),
    ],
)
def test_bos_is_put_once_or_left_out(text: str, add_bos_token: bool | None, leading: int) -> None:
    [row] = encode_prompts(_tokenizer(), [text], add_bos_token=add_bos_token)
    assert row[:leading] == [BOS] * leading
    assert BOS not in row[leading:]


def test_chat_template_writes_bos_once() -> None:
    [row] = encode_prompts(_tokenizer(), ["Hi"], apply_chat_template=True)
    assert _tokenizer().decode(row) == "<bos>[user] Hi\n[assistant] "


def test_tokenizer_without_template(tmp_path: Path) -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(ensure_tiny_checkpoint("llama"))
    tokenizer.chat_template = None
    with pytest.raises(
        BadInputError, match="has no chat template; run without apply_chat_template"
    ):
        encode_prompts(tokenizer, ["Hi"], apply_chat_template=True)


def test_tokenizer_without_bos() -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(ensure_tiny_checkpoint("llama"))
    tokenizer.bos_token = None
    with pytest.raises(BadInputError, match=r"add_bos_token: the tokenizer of .* has no BOS token"):
        encode_prompts(tokenizer, ["Hi"], add_bos_token=True)


def test_no_prompt() -> None:
    with pytest.raises(BadInputError, match="no prompt given"):
        encode_prompts(_tokenizer(), [])


def test_empty_prompt_is_named() -> None:
    with pytest.raises(BadInputError, match=r"prompt 1 is empty"):
        encode_prompts(_tokenizer(), ["fine", ""])


def test_empty_row_of_ids_is_named() -> None:
    with pytest.raises(BadInputError, match=r"prompt 0 gives no token"):
        encode_prompts(_tokenizer(), [[]])


def test_ids_that_the_tokenizer_does_not_have() -> None:
    with pytest.raises(BadInputError, match=r"prompt 0: token ids \[-1, 480\] are not below 480"):
        encode_prompts(_tokenizer(), [[3, -1, 479, 480]])


def test_prompt_that_does_not_fit() -> None:
    with pytest.raises(BadInputError, match=r"prompt 0 has 5 tokens, at most 4 fit; shorten it"):
        encode_prompts(_tokenizer(), [[3, 3, 3, 3, 3]], max_length=4)


def test_folder_without_tokenizer_is_an_error_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(EngineError, match=f"transformers cannot load {tmp_path}: ") as raised:
        encode_prompts(str(tmp_path), ["text"])
    assert "\n" not in str(raised.value)
