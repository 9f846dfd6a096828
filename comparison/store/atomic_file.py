"""Files that are there whole or not at all."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from comparison.schema.errors import UnwritableOutputError


@contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """Open a temporary file beside `path` that takes its place when the block ends well.

    Raises:
        UnwritableOutputError: the folder does not exist or cannot be written.
    """
    temporary = path.with_name(f".{uuid.uuid4().hex}.tmp")
    try:
        with temporary.open("xb") as file:
            yield file
        temporary.replace(path)
    except OSError as error:
        raise UnwritableOutputError(
            f"cannot write {path}: {error.strerror}; the folder must exist and be writable"
        ) from error
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file whole or not at all, in UTF-8.

    Raises:
        UnwritableOutputError: the folder does not exist or cannot be written.
    """
    with atomic_file(path) as file:
        file.write(text.encode("utf-8"))
