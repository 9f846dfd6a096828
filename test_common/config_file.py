"""Reads JSON files that belong to a model or an adapter, within bounds."""

from pathlib import Path
from typing import Any

from comparison.schema.errors import CorruptFileError
from comparison.store.json_text import parse_json
from comparison.store.regular_file import read_regular

MOST_LABELS = 1_000_000  # of a classifier; transformers writes a name for each
_MOST_BYTES = 64 << 20  # far more than any; a file may claim terabytes and hold nothing


def read_config_text(path: Path) -> bytes:
    """Read such a file as a whole.

    Raises:
        CorruptFileError: no regular file, a larger one, or it cannot be opened.
    """
    try:
        return read_regular(path, most_bytes=_MOST_BYTES)
    except OSError as error:
        raise CorruptFileError(f"{path} cannot be read: {error.strerror}") from error


def parse_config(text: bytes) -> Any:
    """Parse it as transformers does: of a key that is there twice the last counts.

    Raises:
        ValueError: it is no JSON, is nested too deeply, or has too many values.
    """
    return parse_json(text, make_object=dict)


def read_config(path: Path) -> Any:
    """Read and parse such a file.

    Raises:
        CorruptFileError: as read_config_text, or it is no JSON.
    """
    text = read_config_text(path)
    try:
        return parse_config(text)
    except ValueError as error:
        raise CorruptFileError(f"{path} cannot be read as JSON: {error!s:.200}") from error


def read_config_object(path: Path) -> dict[str, Any]:
    """Read a file that holds a JSON object.

    Raises:
        CorruptFileError: as read_config, or it holds something else.
    """
    config = read_config(path)
    if not isinstance(config, dict):
        raise CorruptFileError(f"{path} is not a JSON object")
    return config
