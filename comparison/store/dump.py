"""Dumps: what tensors there are, in which order, and how to read one.

Taken are the directories of contract 1 (`<step>/`, `<step>.partial/`, `rank<r>/<step>/`, with
`manifest.json` and `tensor_names.txt`), directories made by hand without any of these, and
single files.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from comparison.numerics.dtypes import Array
from comparison.schema.errors import BadInputError, MissingPathError
from comparison.schema.manifest import Manifest, RawTensor
from comparison.schema.tensor_entry import TensorEntry
from comparison.store.manifest_file import MANIFEST_NAME, read_manifest
from comparison.store.step_folder import StepListing, list_step
from comparison.store.tensor_file import TENSOR_SUFFIXES, list_file, read_tensor

_STEP = re.compile(r"(?P<step>\d+)(?P<partial>\.partial)?")
_RANK = re.compile(r"rank(?P<rank>\d+)")
_ENGINE_OF_SUFFIX = {".max": "max", ".pt": "torch", ".pth": "torch"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Dump:
    """The tensors of one run, known but not read.

    Attributes:
        path: the file or folder as given.
        manifest: who made it, or None for a dump made by hand.
        entries: the tensors, by rank, step and order of execution.
        problems: why an entry cannot be read, for those of which that is known already.
        complete: False where the run was cut off or listed tensors have no file.
        order_known: whether the order is that of execution, not that of names.
        is_file: whether a single file was given.
        notes: what a reader of a result should know about it.
    """

    path: Path
    manifest: Manifest | None
    entries: tuple[TensorEntry, ...]
    problems: dict[TensorEntry, str] = field(default_factory=dict)
    complete: bool = True
    order_known: bool = False
    is_file: bool = False
    notes: tuple[str, ...] = ()

    @property
    def engine(self) -> str | None:
        """The engine that made it, from the manifest or else from the files' suffix."""
        if self.manifest is not None:
            return self.manifest.engine
        found = (entry for entry in self.entries if entry not in self.problems)
        engines = {_ENGINE_OF_SUFFIX.get(entry.path.suffix) for entry in found}
        return engines.pop() if len(engines) == 1 else None

    def read(self, entry: TensorEntry) -> Array:
        """Map one tensor.

        Raises:
            BadInputError: the file cannot be read; the message names it.
        """
        return read_tensor(entry, raw=self._raw(entry))

    def _raw(self, entry: TensorEntry) -> RawTensor | None:
        if self.manifest is None or not self.manifest.raw_tensors:
            return None
        if not entry.path.is_relative_to(self.path):
            return None
        return self.manifest.raw_tensors.get(entry.path.relative_to(self.path).as_posix())


def open_dump(path: Path) -> Dump:
    """Find the tensors of a dump; headers are read, data are not.

    Files that cannot be read are listed among the problems.

    Args:
        path: a folder or a file.

    Raises:
        MissingPathError: there is no such file or folder.
        BadInputError: no tensor in it, a file of unknown suffix, or a manifest that cannot be
            read.
    """
    if not path.exists():
        raise MissingPathError(f"expected a file or folder, found nothing at {path}")
    try:
        return _open_folder(path) if path.is_dir() else _open_file(path)
    except OSError as error:
        if isinstance(error, BadInputError):
            raise
        where = error.filename or path
        raise BadInputError(f"cannot read {where}: {error.strerror}") from None


def _open_file(path: Path) -> Dump:
    if not path.is_file():
        raise BadInputError(f"expected a file or folder, found a device or pipe: {path}")
    manifest, step = _surroundings(path.parent)
    entries = tuple(
        replace(entry, step=step, order=order)
        for order, entry in enumerate(list_file(path, _file_names(manifest)))
    )
    return Dump(path=path, manifest=manifest, entries=entries, order_known=True, is_file=True)


def _surroundings(folder: Path) -> tuple[Manifest | None, int]:
    """Give the manifest and step of the dump that a step folder lies in."""
    match = _STEP.fullmatch(folder.resolve().name)
    if match is not None:
        above = folder.resolve().parent
        for candidate in (above, above.parent) if _RANK.fullmatch(above.name) else (above,):
            if (candidate / MANIFEST_NAME).is_file():
                return read_manifest(candidate / MANIFEST_NAME), int(match["step"])
    return None, 0


def _open_folder(path: Path) -> Dump:
    manifest_path = path / MANIFEST_NAME
    own = (read_manifest(manifest_path), 0) if manifest_path.is_file() else None
    manifest, own_step = own or _surroundings(path)
    listings = list(_list_everything(path, manifest, own_step))
    entries, problems = _merge(listings)
    notes = [note for listing in listings for note in listing.notes]
    partial = any(listing.partial for listing in listings)
    if manifest is not None and not manifest.complete:
        partial = True
        notes.append("the run was cut off before its end (manifest: complete is false)")
    if not entries:
        raise BadInputError(
            f"expected tensor files ({', '.join(TENSOR_SUFFIXES)}) in {path} or in its folders "
            f"0, 1, ..., found none{'; ' + '; '.join(notes) if notes else ''}"
        )
    return Dump(
        path=path,
        manifest=manifest,
        entries=entries,
        problems=problems,
        complete=not partial,
        order_known=all(listing.order_known for listing in listings if listing.entries),
        notes=tuple(notes),
    )


def _list_everything(path: Path, manifest: Manifest | None, own_step: int) -> Iterator[StepListing]:
    for rank, root in _roots(path):
        steps = _step_folders(root)
        first_order = next((folder / "tensor_names.txt" for step, folder, _ in steps), None)
        flat = list_step(
            root, step=own_step, rank=rank, manifest=manifest, root=path, order_file=first_order
        )
        if flat.entries or flat.notes:
            yield flat
        for step, folder, partial in steps:
            listing = list_step(folder, step=step, rank=rank, manifest=manifest, root=path)
            if flat.entries and not listing.entries:
                continue  # MAX's own hook writes the order here and the files one level up
            yield replace(listing, partial=listing.partial or partial) if partial else listing


def _roots(path: Path) -> Iterator[tuple[int | None, Path]]:
    yield None, path
    ranks = (
        (int(match["rank"]), folder)
        for folder in path.iterdir()
        if folder.is_dir() and (match := _RANK.fullmatch(folder.name))
    )
    yield from sorted(ranks)


def _step_folders(root: Path) -> list[tuple[int, Path, bool]]:
    return sorted(
        (int(match["step"]), folder, match["partial"] is not None)
        for folder in root.iterdir()
        if folder.is_dir() and (match := _STEP.fullmatch(folder.name))
    )


def _merge(
    listings: list[StepListing],
) -> tuple[tuple[TensorEntry, ...], dict[TensorEntry, str]]:
    """Number the entries through; several folders may hold one step."""
    position: Counter[tuple[int | None, int]] = Counter()
    entries: list[TensorEntry] = []
    problems: dict[TensorEntry, str] = {}
    for listing in listings:
        for entry in listing.entries:
            place = (entry.rank, entry.step)
            numbered = replace(entry, order=position[place])
            position[place] += 1
            entries.append(numbered)
            if entry in listing.problems:
                problems[numbered] = listing.problems[entry]
    return tuple(entries), problems


def _file_names(manifest: Manifest | None) -> dict[str, str]:
    return {} if manifest is None else manifest.file_names
