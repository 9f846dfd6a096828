"""Checking and clearing the folder that a dump goes to."""

from __future__ import annotations

import re
import shutil
import tempfile
from pathlib import Path

from comparison.schema.errors import UnwritableOutputError
from comparison.store.manifest_file import MANIFEST_NAME

# As in comparison.store.step_folder, which takes a quarter of a second to import.
ORDER_FILE_NAME = "tensor_names.txt"
_STEP_FOLDER = re.compile(r"\d+(\.partial)?")
_RANK_FOLDER = re.compile(r"rank\d+")


def check_output_folder(out: Path, overwrite: bool = False) -> None:
    """Check early that a dump can be written, and leave nothing behind.

    Args:
        out: the folder; it and its parents need not exist.
        overwrite: whether an earlier dump in it may be replaced.

    Raises:
        UnwritableOutputError: it is a file, is not empty, or cannot be written.
    """
    place = out
    try:
        while not place.exists():
            if place.is_symlink():
                raise UnwritableOutputError(f"output folder {out}: {place} is a dangling link")
            place = place.parent
        if not place.is_dir():
            raise UnwritableOutputError(
                f"output folder {out}: {place} is a file, give the path of a folder"
            )
        if place == out:
            _check_content(out, overwrite=overwrite)
        # Permission bits do not tell of read-only file systems, nor do they bind root.
        Path(tempfile.mkdtemp(prefix=".probe-", dir=place)).rmdir()
    except OSError as error:
        if isinstance(error, UnwritableOutputError):
            raise
        raise unwritable(place, error) from error


def clear_old_dump(out: Path) -> None:
    """Remove an earlier dump: its manifest and its step and rank folders, nothing else.

    Args:
        out: a folder that `check_output_folder` has passed with `overwrite`.

    Raises:
        UnwritableOutputError: something cannot be removed.
    """
    try:
        for entry in sorted(out.iterdir()):
            if entry.is_symlink() and _is_dump_name(entry.name):
                entry.unlink()  # never follow a link out of the folder
            elif entry.is_dir() and _is_dump_name(entry.name):
                shutil.rmtree(entry)
            elif entry.name == MANIFEST_NAME:
                entry.unlink()
    except OSError as error:
        raise unwritable(out, error) from error


def unwritable(path: Path, error: OSError) -> UnwritableOutputError:
    """Say what the system said, and about which path."""
    return UnwritableOutputError(f"cannot write {path}: {error.strerror or error}")


def _check_content(out: Path, *, overwrite: bool) -> None:
    """Refuse a folder with content, unless it may be overwritten and is a dump."""
    entries = sorted(entry.name for entry in out.iterdir())
    if entries and not overwrite:
        shown = ", ".join(entries[:3]) + (", ..." if len(entries) > 3 else "")
        raise UnwritableOutputError(
            f"output folder {out} is not empty ({shown}): give a new folder, or allow overwriting"
        )
    foreign = [name for name in entries if not _may_remove(out / name)]
    if foreign:
        raise UnwritableOutputError(
            f"output folder {out}: {', '.join(foreign[:3])} would be overwritten, and is not "
            "part of a dump: give another folder"
        )


def _is_dump_name(name: str) -> bool:
    return bool(_STEP_FOLDER.fullmatch(name) or _RANK_FOLDER.fullmatch(name))


def _may_remove(entry: Path) -> bool:
    """Tell what overwriting leaves alone or may remove from a folder like `2024/` of photos."""
    if entry.is_symlink() or not entry.is_dir() or not _is_dump_name(entry.name):
        return True
    if _RANK_FOLDER.fullmatch(entry.name):
        return all(_may_remove(child) and _is_dump_name(child.name) for child in entry.iterdir())
    children = list(entry.iterdir())
    if any(child.is_dir() for child in children):
        return False
    names = {child.name for child in children}
    return not names or ORDER_FILE_NAME in names or entry.name.endswith(".partial")
