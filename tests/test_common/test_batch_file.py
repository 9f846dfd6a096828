from pathlib import Path

import pytest

from comparison.schema.errors import BadInputError, MissingPathError
from test_common.batch_file import parse_token_ids, read_batch


def test_text_has_one_prompt_a_line(tmp_path: Path) -> None:
    file = tmp_path / "prompts.txt"
    file.write_text("first\n\n  \nsecond é\n", encoding="utf-8")
    assert read_batch(file) == ("first", "second é")


def test_json_has_texts_and_token_ids(tmp_path: Path) -> None:
    file = tmp_path / "prompts.json"
    file.write_text('["first\\nline two", [1, 5, 7]]')
    assert read_batch(file) == ("first\nline two", (1, 5, 7))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("[", "is not JSON"),
        ("{}", "must hold a JSON list"),
        ('["a", 5]', "entry 1: expected a text or a list of token ids, found 5"),
        ("[[1, true]]", "entry 0"),
        ("[]", "holds no prompt"),
        ("[[1" + "0" * 5000 + "]]", "is not JSON: Exceeds the limit"),
        ("[" * 100_000, "is not JSON: .*nested too deeply"),
    ],
)
def test_json_of_another_form_is_refused(tmp_path: Path, content: str, words: str) -> None:
    file = tmp_path / "prompts.json"
    file.write_text(content)
    with pytest.raises(BadInputError, match=words):
        read_batch(file)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(MissingPathError, match="does not exist"):
        read_batch(tmp_path / "none.txt")
    (tmp_path / "binary.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(BadInputError, match="cannot be read as UTF-8"):
        read_batch(tmp_path / "binary.txt")
    with pytest.raises(BadInputError, match="expected a file, found a folder"):
        read_batch(tmp_path)
    (tmp_path / "empty.txt").write_text("\n \n")
    with pytest.raises(BadInputError, match="holds no prompt"):
        read_batch(tmp_path / "empty.txt")


@pytest.mark.parametrize("text", ["1,5,7", "1 5 7", " 1, 5,7 "])
def test_token_ids(text: str) -> None:
    assert parse_token_ids(text) == (1, 5, 7)


@pytest.mark.parametrize("text", ["", "1,x", "-1", "1.5", "[1]", "1" * 5000])
def test_token_ids_that_are_none(text: str) -> None:
    with pytest.raises(BadInputError, match="prompt ids must be numbers"):
        parse_token_ids(text)
