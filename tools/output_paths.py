"""What commands write: refused before anything is run where it would be in its own way."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from comparison.schema.errors import UnwritableOutputError


def check_paths(
    *,
    files: Mapping[str, Path | None],
    folders: Mapping[str, Path | None],
    read: Sequence[Path],
) -> None:
    """Refuse outputs that cannot be made, or that are part of each other or of what is read.

    Args:
        files: output files by the name of their option.
        folders: output folders likewise.
        read: files and dumps that are read.

    Raises:
        UnwritableOutputError: the first that cannot be used; the message names the option.
    """
    asked_files = {option: path for option, path in files.items() if path is not None}
    asked_folders = {option: path for option, path in folders.items() if path is not None}
    for option, path in asked_files.items():
        _check_file(option, path)
    for clash in (
        *_same_files(asked_files),
        *_within_folders(asked_files, asked_folders),
        *_folders_in_each_other(asked_folders),
        *_read(asked_files | asked_folders, read),
    ):
        raise UnwritableOutputError(clash)


def _check_file(option: str, path: Path) -> None:
    from comparison.store.atomic_file import output_target

    target = output_target(path)
    if not target.parent.is_dir():
        raise UnwritableOutputError(f"--{option} needs a file in a folder that exists, got {path}")


def _same_files(files: Mapping[str, Path]) -> Iterator[str]:
    first: dict[Path, str] = {}
    for option, path in files.items():
        other = first.setdefault(path.resolve(), option)
        if other != option:
            yield f"--{other} and --{option} are one file, {path}: give two"


def _within_folders(files: Mapping[str, Path], folders: Mapping[str, Path]) -> Iterator[str]:
    if not folders:
        return
    from diagnosis.output_folders import is_dump_folder

    for option, path in files.items():
        for other, folder in folders.items():
            inside = _below(path, folder)
            if inside is None or (inside and other == "output" and not is_dump_folder(inside[0])):
                continue  # beside the dumps there is room
            yield f"--{option} {path} lies where --{other} {folder} is to go: give another file"


def _folders_in_each_other(folders: Mapping[str, Path]) -> Iterator[str]:
    output, repro = folders.get("output"), folders.get("repro")
    if output is None or repro is None:
        return
    from diagnosis.output_folders import is_dump_folder

    inside = _below(repro, output)
    if _below(output, repro) is not None or (inside and is_dump_folder(inside[0])):
        yield f"--repro {repro} and --output {output} lie in each other: give two folders"


def _read(outputs: Mapping[str, Path], read: Sequence[Path]) -> Iterator[str]:
    for option, path in outputs.items():
        for source in read:
            holds = option == "output" and _below(source, path) is not None
            if _below(path, source) is not None or holds:
                yield f"--{option} {path} would change what is read, {source}: give another"


def _below(path: Path, folder: Path) -> tuple[str, ...] | None:
    """Return the way from a folder down to a path, None where it does not lie there."""
    whole, start = path.resolve(), folder.resolve()
    return whole.relative_to(start).parts if whole.is_relative_to(start) else None
