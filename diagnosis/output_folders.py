"""The folders that the dumps of one diagnosis go to, and what an earlier one left there."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

from comparison.schema.errors import UnwritableOutputError
from test_common.output_folder import check_content, clear_old_dump, unwritable

_DUMP = re.compile(r"(reference-of-)?(reference|candidate[0-9]*)(-(sketch|coarse|finer?|drill))?")


def is_dump_folder(name: str) -> bool:
    """Tell whether a dump of a diagnosis may go to a folder of that name."""
    return _DUMP.fullmatch(name) is not None


def check_output(output: Path, *, overwrite: bool) -> None:
    """Refuse a folder that is in use, before anything is run.

    Args:
        output: the folder that the dumps go to.
        overwrite: whether those of an earlier diagnosis may be replaced; other files stay.

    Raises:
        UnwritableOutputError: it is no folder, is not empty, or holds what is no dump where one is
            to go.
    """
    if not output.exists():
        return
    if not output.is_dir():
        raise UnwritableOutputError(f"--output needs a new or empty folder, got {output}")
    if not overwrite:
        if any(output.iterdir()):
            raise UnwritableOutputError(
                f"--output needs a new or empty folder, got {output}; --overwrite replaces the "
                "dumps of an earlier run"
            )
        return
    for folder in _earlier(output):
        if folder.is_symlink() or not folder.is_dir():
            raise UnwritableOutputError(f"--output {output}: {folder.name} is no dump of a run")
        check_content(folder, overwrite=True)


def clear_earlier(output: Path, *, besides: Collection[str]) -> None:
    """Remove the dumps of an earlier diagnosis that this one may not replace by its own.

    Args:
        output: a folder that `check_output` has passed with `overwrite`.
        besides: names of the folders that were written already.

    Raises:
        UnwritableOutputError: something cannot be removed.
    """
    for folder in _earlier(output) if output.is_dir() else ():
        if folder.name not in besides:
            remove_dump(folder)


def remove_dump(folder: Path) -> None:
    """Remove a dump, and its folder if nothing else is in it.

    Raises:
        UnwritableOutputError: something cannot be removed.
    """
    clear_old_dump(folder)
    with suppress(OSError):  # something of the user's
        folder.rmdir()


def _earlier(output: Path) -> Iterator[Path]:
    try:
        yield from sorted(path for path in output.iterdir() if is_dump_folder(path.name))
    except OSError as error:
        raise unwritable(output, error) from error
