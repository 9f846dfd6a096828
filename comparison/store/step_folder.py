"""The tensors of one folder, in order."""

import itertools
import os
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from comparison.schema.errors import BadInputError, CorruptFileError
from comparison.schema.manifest import Manifest
from comparison.schema.tensor_entry import TensorEntry
from comparison.schema.tensor_names import name_of_stem
from comparison.store.manifest_file import MANIFEST_NAME
from comparison.store.partial_file import is_partial_file
from comparison.store.regular_file import read_regular
from comparison.store.sketch_file import SKETCH_NAME
from comparison.store.tensor_file import TENSOR_SUFFIXES, list_file
from comparison.store.weights_file import WEIGHTS_NAME, is_weights_record

ORDER_FILE_NAME = "tensor_names.txt"
# A sketch holds summaries of tensors under the tensors' own names.
_NOT_TENSORS = {MANIFEST_NAME, ORDER_FILE_NAME, SKETCH_NAME}
_QUIET_SUFFIXES = {".txt", ".log", ".json", ".md", ".py"}
_TEMPORARY_SUFFIX = ".tmp"
# Folders below that are looked into for tensors which are not read.
_MOST_FOLDERS = 1000
MOST_ORDER_BYTES = 40_000_000
_MOST_ORDER_LINES = 1_000_000
# Names without a file that are listed one by one; each costs as much as a tensor.
_MOST_MISSING = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class StepListing:
    """What one folder holds.

    Attributes:
        entries: its tensors, in order of execution where that is known, else by name.
        problems: why an entry cannot be read.
        order_known: whether there was a list of names in order of execution.
        partial: whether files are missing.
        notes: what was left out.
        there: the entries that have a file, whether it can be read or not.
    """

    entries: tuple[TensorEntry, ...] = ()
    problems: dict[TensorEntry, str] = field(default_factory=dict)
    order_known: bool = False
    partial: bool = False
    notes: tuple[str, ...] = ()
    there: tuple[TensorEntry, ...] = ()


def list_step(
    folder: Path,
    *,
    step: int,
    rank: int | None,
    manifest: Manifest | None,
    root: Path,
    order_file: Path | None = None,
    read_apart: frozenset[str] = frozenset(),
) -> StepListing:
    """List the tensors that lie in a folder itself.

    Args:
        folder: a step's folder, or a folder made by hand.
        step: the step that it holds.
        rank: the rank that it holds.
        manifest: of the dump, if it has one.
        root: the dump's folder, which paths in the manifest start from.
        order_file: where the order is told if the folder itself does not tell it.
        read_apart: names of folders in it that are listed by themselves.
    """
    files, notes = _tensor_files(folder, manifest, root, read_apart)
    found: list[TensorEntry] = []
    problems: dict[TensorEntry, str] = {}
    for file in files:
        entries, problem = _entries_of(file, manifest, step=step, rank=rank)
        found += entries
        if problem is not None:
            problems[entries[0]] = problem
    found = _tell_apart(found, problems)
    text = _read_order(folder / ORDER_FILE_NAME, manifest)
    own_order = text is not None
    if text is None and order_file is not None:
        text = _read_order(order_file, manifest)
    order = _Order.of(text or "", found)
    missing = order.missing if own_order else ()
    for name in missing:
        entry = TensorEntry(name=name, step=step, order=0, path=folder / ORDER_FILE_NAME, rank=rank)
        problems[entry] = f"{ORDER_FILE_NAME} lists {name:.200}, but {folder} has no file for it"
        found.append(entry)
    if own_order and order.further:
        further = f"lists {order.further} further names that have no file in {folder}"
        notes.append(f"{ORDER_FILE_NAME} {further}")
    in_order = tuple(order.sort(found))
    lacking = set(found[len(found) - len(missing) :])
    return StepListing(
        entries=in_order,
        there=tuple(entry for entry in in_order if entry not in lacking) if lacking else in_order,
        problems=problems,
        order_known=text is not None,
        partial=bool(missing) or any(map(is_partial_file, files)),
        notes=tuple(notes),
    )


def _tensor_files(
    folder: Path, manifest: Manifest | None, root: Path, read_apart: frozenset[str]
) -> tuple[list[Path], list[str]]:
    """Give what should be a tensor's file, and notes on what else lies there."""
    raw = set() if manifest is None else set(manifest.raw_tensors)
    files: list[Path] = []
    left_out: dict[str, list[str]] = {"hidden or temporary file(s)": []}
    left_out |= {"file(s) of unknown suffix": [], "folder(s) with tensor files": []}
    left_out |= {"file(s) of weights, no tensors of the run,": []}
    hidden, unknown, folders, weights = left_out.values()
    of_run = bool(read_apart) or (folder / ORDER_FILE_NAME).exists()
    for name in sorted(os.listdir(folder)):
        if name in _NOT_TENSORS or name in read_apart:
            continue
        if name == WEIGHTS_NAME and manifest is not None:
            continue
        path = folder / name
        # A folder made by hand may call its tensors so, but not beside the tensors of a run.
        if name == WEIGHTS_NAME and (of_run or is_weights_record(path)):
            weights.append(name)
            continue
        is_tensor = path.suffix in TENSOR_SUFFIXES or is_partial_file(path)
        if name.startswith("."):
            if is_tensor or path.suffix == _TEMPORARY_SUFFIX:
                hidden.append(name)
        elif is_tensor or (bool(raw) and path.relative_to(root).as_posix() in raw):
            files.append(path)
        elif path.is_dir():
            if _holds_tensors(path):
                folders.append(name)
        elif path.suffix not in _QUIET_SUFFIXES or not path.is_file():
            unknown.append(name)
    return files, [
        f"{len(names)} {what} in {folder} left out: {_shown(names)}"
        for what, names in left_out.items()
        if names
    ]


def _holds_tensors(folder: Path) -> bool:
    below = itertools.islice(os.walk(folder), _MOST_FOLDERS)
    return any(name.endswith(TENSOR_SUFFIXES) for _, _, names in below for name in names)


def _shown(names: list[str]) -> str:
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")


def _entries_of(
    file: Path, manifest: Manifest | None, *, step: int, rank: int | None
) -> tuple[tuple[TensorEntry, ...], str | None]:
    """List a file, or name its tensor by the file and say what is wrong."""
    file_names = {} if manifest is None else manifest.file_names
    problem = None
    stem = file.name  # of bare bytes, whose names have no suffix to take off
    if file.suffix in TENSOR_SUFFIXES or is_partial_file(file):
        try:
            return list_file(file, file_names, step=step, rank=rank), None
        except (BadInputError, OSError) as error:
            stem, problem = file.stem, str(error)
    name = file_names.get(stem, name_of_stem(stem))
    return (TensorEntry(name=name, step=step, order=0, path=file, rank=rank),), problem


def _tell_apart(entries: list[TensorEntry], problems: dict[TensorEntry, str]) -> list[TensorEntry]:
    """Put the file's name before keys that several files of several tensors have."""
    count = Counter(entry.name for entry in entries)
    return [
        replace(entry, name=f"{entry.path.stem}.{entry.name}")
        if entry.key is not None and count[entry.name] > 1 and entry not in problems
        else entry
        for entry in entries
    ]


def _read_order(path: Path, manifest: Manifest | None) -> str | None:
    try:
        content = read_regular(path, most_bytes=MOST_ORDER_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        if path.is_symlink():
            raise
        return None
    if max(content.count(b"\n"), content.count(b"\r")) > _MOST_ORDER_LINES:
        raise CorruptFileError(f"{path}: expected at most {_MOST_ORDER_LINES} lines, found more")
    text = content.decode("utf-8", errors="surrogateescape")
    if manifest is not None and not manifest.complete:
        text = text[: text.rfind("\n") + 1]  # a killed run may have been writing the last name
    return text


def _spellings(entry: TensorEntry) -> tuple[str, ...]:
    return (entry.name, entry.path.stem, entry.path.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Order:
    """What a list of names says of the tensors that are there; of others it takes no memory.

    Attributes:
        place: in the list, of each spelling of a tensor, and of `missing`.
        lines: number of names in the list.
        missing: the first names of no tensor.
        further: number of lines with others.
    """

    place: dict[str, int]
    lines: int
    missing: tuple[str, ...]
    further: int

    @classmethod
    def of(cls, text: str, entries: Iterable[TensorEntry]) -> "_Order":
        """Go through a list, a name a line."""
        there = {spelling for entry in entries for spelling in _spellings(entry)}
        place: dict[str, int] = {}
        missing: dict[str, None] = {}
        lines = further = 0
        for match in re.finditer(r"[^\r\n]+", text):
            name = match[0]
            spellings = there.intersection((name, name_of_stem(name)))
            if not spellings and (name in missing or len(missing) < _MOST_MISSING):
                missing[name] = None
                spellings = {name}
            for spelling in spellings:
                place.setdefault(spelling, lines)
            further += not spellings
            lines += 1
        return cls(place=place, lines=lines, missing=tuple(missing), further=further)

    def sort(self, entries: Iterable[TensorEntry]) -> list[TensorEntry]:
        """Sort tensors as they are listed, those that are not listed behind them by name."""

        def sort_key(entry: TensorEntry) -> tuple[int, list[tuple[int, int, str]], str]:
            place = min(self.place.get(name, self.lines) for name in _spellings(entry))
            return place, _natural(entry.name), str(entry.path)

        return sorted(entries, key=sort_key)


def _natural(name: str) -> list[tuple[int, int, str]]:
    """Sort layers.2 before layers.10."""
    parts = re.split(r"([0-9]{1,18})", name)  # Python turns no endless digits into a number
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts]
