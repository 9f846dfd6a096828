"""Tests of prompts as token ids, with a real tokenizer."""

import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
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


@pytest.mark.parametrize(
    ("prompt", "shown"),
    [
        (None, "None"),
        (5, "5"),
        (["a"], "['a']"),
        ([1.5], "[1.5]"),
        ([None], "[None]"),
        ({"a": 1}, "{'a': 1}"),
        ({1}, "{1}"),
        (b"ab", "b'ab'"),
        (iter([1]), "<list_iterator object at "),
        (torch.tensor([0.5]), "tensor([0.5000])"),
        (torch.tensor(5), "tensor(5)"),
    ],
)
def test_prompt_that_is_neither_text_nor_ids(prompt: Any, shown: str) -> None:
    with pytest.raises(BadInputError) as raised:
        encode_prompts(_tokenizer(), ["fine", prompt])
    told = "prompt 1 must be a text or a list of token ids, found "
    assert str(raised.value).startswith(told + shown)


@pytest.mark.parametrize("ids", [[1, 2], (1, 2), np.array([1, 2]), torch.tensor([1, 2])])
def test_ids_may_be_any_whole_numbers(ids: Any) -> None:
    rows = encode_prompts(_tokenizer(), [ids])
    assert rows == [[1, 2]]
    assert {type(token) for token in rows[0]} == {int}


def test_text_that_no_encoding_can_spell_is_named() -> None:
    with pytest.raises(BadInputError, match=r"^prompt 1 is no text: character 2 is '\\udcff'$"):
        encode_prompts(_tokenizer(), ["fine", "ab\udcff"])


def test_without_tokenizer_token_ids_pass_and_texts_do_not() -> None:
    assert encode_prompts(None, [[1, 2]], add_bos_token=True) == [[1, 2]]
    with pytest.raises(BadInputError, match="prompt 0 is a text, and without a model path there"):
        encode_prompts(None, ["text"])


def test_error_of_a_tokenizer_is_quoted() -> None:
    def broken(text: str, **options: Any) -> Any:
        raise TypeError("first\nlast")

    with pytest.raises(EngineError, match=r"cannot encode prompt 0: TypeError: last$"):
        encode_prompts(broken, ["text"])


def test_long_prompt_is_told_once() -> None:
    code = (
        "from test_common.prompts import encode_prompts\n"
        "from test_common.tiny_checkpoints import ensure_tiny_checkpoint\n"
        "print(len(encode_prompts(ensure_tiny_checkpoint('llama'), ['x ' * 2000])[0]))"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    assert int(run.stdout) > 2000
    assert "longer than the specified maximum" not in run.stderr


def test_folder_without_tokenizer_is_an_error_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(EngineError, match=f"transformers cannot load {tmp_path}: ") as raised:
        encode_prompts(str(tmp_path), ["text"])
    assert "\n" not in str(raised.value)
