"""Finds the files of traces in a folder."""

import os
from pathlib import Path

from comparison.schema.errors import BadInputError

FULL_SUFFIX = "_debug_tree_FULL_TENSORS.json"
SUMMARY_SUFFIX = "_debug_tree_SUMMARY.json"


def find_trace(path: Path) -> Path | None:
    """Find the file of a trace: the path itself, or the one in a folder, whole before summary.

    Returns:
        None where there is no trace.

    Raises:
        BadInputError: a folder of several traces.
    """
    found = find_traces(path)
    if len(found) > 1:
        raise _several(path, list(found.values()))
    return next(iter(found.values()), None)


def find_traces(path: Path) -> dict[int, Path]:
    """Find the files of a trace's calls, which lie in folders `0`, `1`, ... if there are several.

    Returns:
        The file of each call by its number, in order, whole before summary; 0 for a trace that has
        no such folders. Empty where there is no trace.

    Raises:
        BadInputError: several traces in one folder.
        OSError: a folder cannot be listed.
    """
    if not path.is_dir():
        return {0: path} if path.suffix == ".json" else {}
    sole = _file_in(path)
    if sole is not None:
        return {0: sole}
    folders = (path / name for name in os.listdir(path))
    numbered = {int(folder.name): folder for folder in folders if _is_number(folder)}
    files = {number: _file_in(numbered[number]) for number in sorted(numbered)}
    return {number: file for number, file in files.items() if file is not None}


def _is_number(folder: Path) -> bool:
    name = folder.name
    return name.isascii() and name.isdecimal() and len(name) < 10 and folder.is_dir()


def _file_in(folder: Path) -> Path | None:
    names = sorted(os.listdir(folder))  # which says when it must not be read, as `glob` does not
    for suffix in (FULL_SUFFIX, SUMMARY_SUFFIX):
        found = [folder / name for name in names if name.endswith(suffix)]
        if len(found) > 1:
            raise _several(folder, found)
        if found:
            return found[0]
    return None


def _several(folder: Path, files: list[Path]) -> BadInputError:
    names = ", ".join(str(file.relative_to(folder)) for file in files[:4])
    return BadInputError(
        f"expected one trace in {folder}, found {len(files)}: {names}; name one of the files"
    )
