"""Prompts from a file, one row of the batch each."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from comparison.schema.errors import BadInputError, MissingPathError

Prompt = str | tuple[int, ...]


def read_batch(path: Path) -> tuple[Prompt, ...]:
    """Read prompts.

    Args:
        path: a `.json` file with a list, each entry a text or a list of token ids; or any other
            text file in UTF-8, one prompt a line, empty lines left out.

    Raises:
        MissingPathError: there is no such file.
        BadInputError: the file is of another form, or holds no prompt.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise MissingPathError(f"batch file {path} does not exist") from None
    except (OSError, UnicodeDecodeError) as error:
        raise BadInputError(f"batch file {path} cannot be read as UTF-8 text: {error}") from error
    prompts = _parse_json(path, text) if path.suffix == ".json" else _lines(text)
    if not prompts:
        raise BadInputError(f"batch file {path} holds no prompt")
    return prompts


def parse_token_ids(text: str) -> tuple[int, ...]:
    """Parse token ids separated by commas or blanks.

    Raises:
        BadInputError: one of them is no number, or there are none.
    """
    words = text.replace(",", " ").split()
    wrong = [word for word in words if not word.isdecimal()]
    if wrong or not words:
        raise BadInputError(f"prompt ids must be numbers separated by commas, got {text!r}")
    return tuple(int(word) for word in words)


def _lines(text: str) -> tuple[Prompt, ...]:
    return tuple(line for line in text.splitlines() if line.strip())


def _parse_json(path: Path, text: str) -> tuple[Prompt, ...]:
    try:
        entries = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise BadInputError(f"batch file {path} is not JSON: {error}") from error
    if not isinstance(entries, list):
        raise BadInputError(f"batch file {path} must hold a JSON list, found {entries!r:.60}")
    return tuple(_prompt(path, number, entry) for number, entry in enumerate(entries))


def _prompt(path: Path, number: int, entry: Any) -> Prompt:
    if isinstance(entry, str):
        return entry
    if isinstance(entry, Sequence) and all(type(token) is int for token in entry):
        return tuple(entry)
    raise BadInputError(
        f"batch file {path}, entry {number}: expected a text or a list of token ids, "
        f"found {entry!r:.60}"
    )
