"""Files that are there whole or not at all."""

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from comparison.schema.errors import UnwritableOutputError
from comparison.store.regular_file import kind_of_file


@contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """Open a temporary file beside `path` that takes its place when the block ends well.

    Where `path` is a link to a file, that file is written and the link stays.

    Yields:
        The open file.

    Raises:
        UnwritableOutputError: the folder does not exist or cannot be written, or `path` is there
            and is no file.
    """
    target = output_target(path)
    temporary = target.with_name(f".{uuid.uuid4().hex}.tmp")
    try:
        with temporary.open("xb") as file:
            yield file
        temporary.replace(target)
    except OSError as error:
        raise UnwritableOutputError(
            f"cannot write {path}: {error.strerror}; the folder must exist and be writable"
        ) from error
    finally:
        temporary.unlink(missing_ok=True)


def output_target(path: Path) -> Path:
    """Give the file that writing to `path` makes or replaces: behind links, the last one.

    Raises:
        UnwritableOutputError: a folder, pipe, socket or device lies there, or a link to nothing;
            or it cannot be found out what does.
    """
    try:
        kind = kind_of_file(os.stat(path).st_mode)
    except FileNotFoundError:
        if path.is_symlink():
            raise UnwritableOutputError(
                f"cannot write {path}: it is a link to {os.readlink(path)}, which is not there; "
                "remove the link"
            ) from None
        return path
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UnwritableOutputError(f"cannot write {str(path)!r}: {reason}") from None
    if kind is not None:
        raise UnwritableOutputError(
            f"cannot write {path}: expected a file or nothing there, found {kind}"
        )
    return Path(os.path.realpath(path)) if path.is_symlink() else path


def write_text(path: Path, text: str) -> None:
    """Write a text file whole or not at all, in UTF-8.

    Raises:
        UnwritableOutputError: as atomic_file.
    """
    with atomic_file(path) as file:
        file.write(text.encode("utf-8"))
