"""Prompts from a file, one row of the batch each."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from comparison.schema.errors import BadInputError, CorruptFileError, MissingPathError
from comparison.store.json_text import parse_json
from comparison.store.regular_file import read_regular

_MOST_BYTES = 16 << 20  # two million token ids
_MOST_DIGITS = 20

Prompt = str | tuple[int, ...]


def read_batch(path: Path) -> tuple[Prompt, ...]:
    """Read prompts.

    Args:
        path: a `.json` file with a list, each entry a text or a list of token ids; or any other
            text file in UTF-8, one prompt a line, empty lines left out.

    Raises:
        MissingPathError: there is no such file.
        BadInputError: the file is of another form, too large, or holds no prompt.
    """
    try:
        content = read_regular(path, most_bytes=_MOST_BYTES)
        prompts = _parse_json(path, content) if path.suffix == ".json" else _lines(content)
    except FileNotFoundError:
        raise MissingPathError(f"batch file {path} does not exist") from None
    except (OSError, UnicodeDecodeError) as error:
        raise BadInputError(f"batch file {path} cannot be read as UTF-8 text: {error}") from error
    except CorruptFileError as error:
        raise BadInputError(f"batch file {error}") from None
    if not prompts:
        raise BadInputError(f"batch file {path} holds no prompt")
    return prompts


def parse_token_ids(text: str) -> tuple[int, ...]:
    """Parse token ids separated by commas or blanks.

    Raises:
        BadInputError: one of them is no number, or there are none.
    """
    words = text.replace(",", " ").split()
    # Python turns no endless digits into a number.
    wrong = [word for word in words if not word.isdecimal() or len(word) > _MOST_DIGITS]
    if wrong or not words:
        raise BadInputError(f"prompt ids must be numbers separated by commas, got {text!r:.200}")
    return tuple(int(word) for word in words)


def _lines(content: bytes) -> tuple[Prompt, ...]:
    return tuple(line for line in content.decode("utf-8").splitlines() if line.strip())


def _parse_json(path: Path, content: bytes) -> tuple[Prompt, ...]:
    try:
        entries = parse_json(content)
    except UnicodeDecodeError:
        raise
    except ValueError as error:  # of too many digits, too: a bare ValueError
        raise BadInputError(f"batch file {path} is not JSON: {error!s:.200}") from error
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
