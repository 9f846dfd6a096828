"""Checking and clearing the folder that a dump goes to."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from comparison.schema.errors import BadInputError, CorruptFileError, UnwritableOutputError
from comparison.schema.tensor_names import name_of_stem, parse_tensor_name
from comparison.store.json_fields import read_json
from comparison.store.manifest_file import MANIFEST_NAME
from comparison.store.operations_file import OPERATIONS_NAME
from comparison.store.regular_file import read_regular
from comparison.store.step_folder import MOST_ORDER_BYTES, ORDER_FILE_NAME
from comparison.store.weights_file import WEIGHTS_NAME
from test_common.folder_lock import check_unlocked, is_lock

# As in comparison.store.step_folder, which takes a quarter of a second to import.
_STEP_FOLDER = re.compile(r"\d+(\.partial)?")
_RANK_FOLDER = re.compile(r"rank\d+")
_TENSOR_SUFFIXES = (".pt", ".max", ".safetensors")
# Of comparison.store.partial_file, with its index.
_PARTIAL_FILE = re.compile(r"tensors(-\d+)?\.partial(\.json)?")
_TEMPORARY_FILE = re.compile(r"\.[0-9a-f]{32}\.tmp")  # of comparison.store.atomic_file
_OUR_KEYS = {"schema_version", "engine"}
_ROOT_FILES = (MANIFEST_NAME, WEIGHTS_NAME)
_LISTED_NAMES = 3


def check_output_folder(out: Path, overwrite: bool = False) -> None:
    """Check early that a dump can be written, and leave nothing behind.

    Args:
        out: the folder; it and its parents need not exist.
        overwrite: whether an earlier dump in it may be replaced.

    Raises:
        UnwritableOutputError: it is a file, is not empty, cannot be written, is being written by
            another run, or holds what is not part of a dump where a dump is to go.
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
            check_unlocked(out)
            check_content(out, overwrite=overwrite)
        # Permission bits do not tell of read-only file systems, nor do they bind root.
        Path(tempfile.mkdtemp(prefix=".probe-", dir=place)).rmdir()
    except OSError as error:
        if isinstance(error, UnwritableOutputError):
            raise
        raise unwritable(place, error) from error


def check_content(out: Path, *, overwrite: bool) -> None:
    """Refuse a folder with content, unless it may be overwritten and is a dump.

    Args:
        out: a folder that exists.
        overwrite: whether an earlier dump in it may be replaced.

    Raises:
        UnwritableOutputError: it is not empty, or holds what is not part of a dump where a dump
            is to go.
        OSError: it cannot be read.
    """
    # What is left of a killed run's lock locks nothing.
    entries = sorted(entry for entry in out.iterdir() if not is_lock(entry))
    if entries and not overwrite:
        raise UnwritableOutputError(
            f"output folder {out} is not empty ({_listing([entry.name for entry in entries])}): "
            "give a new folder, or allow overwriting (--overwrite)"
        )
    dump = _OldDump.read(out)
    foreign = [str(path.relative_to(out)) for entry in entries for path in dump.foreign(entry)]
    if foreign:
        raise UnwritableOutputError(
            f"output folder {out}: {_listing(foreign)} would be overwritten, and is not part of "
            "a dump: give another folder"
        )


def clear_old_dump(out: Path) -> None:
    """Remove an earlier dump: manifest, weights, step and rank folders, what was being written.

    Args:
        out: a folder that `check_output_folder` has passed with `overwrite`.

    Raises:
        UnwritableOutputError: something cannot be removed.
    """
    try:
        for entry in sorted(out.iterdir()):
            if entry.is_symlink() and is_dump_name(entry.name):
                entry.unlink()  # never follow a link out of the folder
            elif entry.is_dir() and is_dump_name(entry.name):
                shutil.rmtree(entry)
            elif entry.name in _ROOT_FILES:
                entry.unlink()
        clear_temporary_files(out)
    except OSError as error:
        raise unwritable(out, error) from error


def clear_temporary_files(folder: Path) -> None:
    """Remove what killed runs were writing directly in a folder.

    Raises:
        OSError: something cannot be removed.
    """
    for entry in sorted(folder.iterdir()):
        if _TEMPORARY_FILE.fullmatch(entry.name) and entry.is_file() and not entry.is_symlink():
            entry.unlink()


def dump_links(out: Path) -> list[Path]:
    """Name the links where files and folders of a dump lie, which a writer would follow.

    Raises:
        OSError: the folder cannot be read.
    """
    ours = [e for e in sorted(out.iterdir()) if is_dump_name(e.name) or e.name in _ROOT_FILES]
    inside = (e for entry in ours if entry.is_dir() for e in sorted(entry.iterdir()))
    return [entry for entry in (*ours, *inside) if entry.is_symlink()]


def unwritable(path: Path, error: OSError) -> UnwritableOutputError:
    """Say what the system said, and about which path."""
    return UnwritableOutputError(f"cannot write {path}: {error.strerror or error}")


def _listing(names: list[str]) -> str:
    more = len(names) - _LISTED_NAMES
    return ", ".join(names[:_LISTED_NAMES]) + (f" and {more} more" if more > 0 else "")


def is_dump_name(name: str) -> bool:
    """Tell the name of a step's or rank's folder."""
    return bool(_STEP_FOLDER.fullmatch(name) or _RANK_FOLDER.fullmatch(name))


@dataclass(frozen=True, slots=True, kw_only=True)
class _OldDump:
    """What a folder's manifest says of an earlier dump in it.

    Attributes:
        root: the folder.
        manifest: its manifest, None where there is none of ours.
    """

    root: Path
    manifest: dict[str, Any] | None

    @classmethod
    def read(cls, root: Path) -> _OldDump:
        """Read the manifest, also that of a later version of these tools."""
        try:
            value = read_json(root / MANIFEST_NAME, "a manifest")
        except BadInputError:
            value = None
        ours = isinstance(value, dict) and value.keys() >= _OUR_KEYS
        return cls(root=root, manifest=value if ours else None)

    def foreign(self, entry: Path) -> Iterator[Path]:
        """Yield what overwriting would remove or run into without its being part of a dump.

        Args:
            entry: something directly inside the folder, or inside one of its rank folders.
        """
        if entry.name in _ROOT_FILES:
            if self._manifest_of(entry.parent) is None:
                yield entry
        elif entry.is_symlink() or not is_dump_name(entry.name):
            return  # a link is removed and not followed, another name left alone
        elif not entry.is_dir():
            yield entry
        elif _RANK_FOLDER.fullmatch(entry.name):
            for child in sorted(entry.iterdir()):
                if _STEP_FOLDER.fullmatch(child.name) or child.name in _ROOT_FILES:
                    yield from self.foreign(child)
                elif not is_lock(child):
                    yield child
        else:
            yield from self._foreign_in_step(entry)

    def _foreign_in_step(self, folder: Path) -> Iterator[Path]:
        children = sorted(folder.iterdir())
        ours = self._manifest_of(folder.parent) is not None
        if children and not ours and not any(c.name == ORDER_FILE_NAME for c in children):
            yield folder  # a folder of someone's numbered checkpoints, for all that is known
            return
        names = _names_in(folder / ORDER_FILE_NAME)
        for child in children:
            if child.is_symlink() or not child.is_file() or not self._is_dump_file(child, names):
                yield child

    def _is_dump_file(self, file: Path, names: set[str]) -> bool:
        if file.suffix in _TENSOR_SUFFIXES or file.name in (ORDER_FILE_NAME, OPERATIONS_NAME):
            return True
        if _TEMPORARY_FILE.fullmatch(file.name) or _PARTIAL_FILE.fullmatch(file.name):
            return True
        name = name_of_stem(file.name)  # bare bytes have no suffix
        if name in names or file.name in names or self._is_known(file):
            return True
        # MAX writes bare bytes before anyone knows their names; of others the last may be unlisted.
        cut_off = not (self.manifest or {}).get("complete")
        being_written = cut_off or file.parent.name.endswith(".partial")
        return self._style == "binary" and being_written and parse_tensor_name(name) is not None

    def _is_known(self, file: Path) -> bool:
        """Tell a file whose stem the manifest explains, or whose dtype and shape."""
        manifest = self.manifest or {}
        stems, raw = manifest.get("file_names"), manifest.get("raw_tensors")
        path = file.relative_to(self.root).as_posix()
        return (isinstance(stems, dict) and file.name in stems) or (
            isinstance(raw, dict) and path in raw
        )

    @property
    def _style(self) -> object:
        options = (self.manifest or {}).get("options")
        return options.get("style") if isinstance(options, dict) else None

    def _manifest_of(self, folder: Path) -> dict[str, Any] | None:
        if folder == self.root:
            return self.manifest
        return _OldDump.read(folder).manifest or self.manifest


def _names_in(order_file: Path) -> set[str]:
    try:
        content = read_regular(order_file, most_bytes=MOST_ORDER_BYTES)
        lines = content.decode("utf-8", errors="replace").splitlines()
        return {*lines, *map(name_of_stem, lines)}  # what does not print is spelt out
    except (OSError, CorruptFileError):
        return set()
