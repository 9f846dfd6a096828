"""Dumps: what tensors there are, in which order, and how to read one.

Taken are the directories of contract 1 (`<step>/`, `<step>.partial/`, `rank<r>/<step>/`, with
`manifest.json` and `tensor_names.txt`), directories made by hand without any of these, and
single files.
"""

import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from comparison.numerics.dtypes import Array
from comparison.schema.errors import BadInputError, CorruptFileError, MissingPathError
from comparison.schema.manifest import Manifest, RawTensor
from comparison.schema.tensor_entry import TensorEntry
from comparison.store.manifest_file import MANIFEST_NAME, read_manifest
from comparison.store.promised import (
    broken_promises,
    broken_rank,
    missing_ranks,
    promised_ranks,
)
from comparison.store.regular_file import kind_of_file
from comparison.store.sketch_file import SKETCH_NAME
from comparison.store.step_folder import ORDER_FILE_NAME, StepListing, list_step
from comparison.store.tensor_file import TENSOR_SUFFIXES, list_file, read_tensor
from comparison.store.weights_file import WEIGHTS_NAME, is_weights_record

_STEP = re.compile(r"(?P<step>[0-9]{1,9})(?P<partial>\.partial)?")
_RANK = re.compile(r"rank(?P<rank>[0-9]{1,9})")
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
        rank_folders: numbers of the ranks that have a folder, be it empty.
        notes: what a reader of a result should know about it.
    """

    path: Path
    manifest: Manifest | None
    entries: tuple[TensorEntry, ...]
    problems: dict[TensorEntry, str] = field(default_factory=dict)
    complete: bool = True
    order_known: bool = False
    is_file: bool = False
    rank_folders: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def promised_ranks(self) -> int:
        """Number of ranks that there should be, by the manifest and the folders' numbers."""
        return promised_ranks(self.manifest, self.rank_folders)

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
        if entry in self.problems:
            raise CorruptFileError(self.problems[entry])
        return read_tensor(entry, raw=self.raw_of(entry))

    def raw_of(self, entry: TensorEntry) -> RawTensor | None:
        """Return what the manifest says of a file's numbers; None where the file says it itself."""
        if self.manifest is None or not self.manifest.raw_tensors:
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
    try:
        kind = _kind(path)
        if kind == "a folder":
            return _open_folder(path)
        if kind is not None:
            raise BadInputError(f"expected a file or folder, found {kind}: {path}")
        return _open_file(path)
    except BadInputError:
        raise
    except (FileNotFoundError, NotADirectoryError) as error:
        where = error.filename or path
        raise MissingPathError(f"expected a file or folder, found nothing at {where}") from None
    except OSError as error:
        where = error.filename or path
        raise BadInputError(f"cannot read {where}: {error.strerror}") from None


def _kind(path: Path) -> str | None:
    try:
        return kind_of_file(os.stat(path).st_mode)
    except ValueError as error:  # a NUL, or what the file system's encoding cannot spell
        raise BadInputError(f"cannot read {str(path)!r}: {error}") from None


def _open_file(path: Path) -> Dump:
    if path.name == WEIGHTS_NAME and is_weights_record(path):
        raise BadInputError(
            f"expected a file of tensors, found projections of a run's weights: {path}; name its "
            "folder, and compare weights with diff_models"
        )
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
            if os.path.lexists(candidate / MANIFEST_NAME):
                return read_manifest(candidate / MANIFEST_NAME), int(match["step"])
    return None, 0


def _open_folder(path: Path) -> Dump:
    manifest_path = path / MANIFEST_NAME
    own = read_manifest(manifest_path) if os.path.lexists(manifest_path) else None
    manifest, own_step = _surroundings(path) if own is None else (own, 0)
    listings = list(_list_everything(path, manifest, own_step))
    entries, problems = _merge(listings)
    notes = [note for listing in listings for note in listing.notes]
    partial = any(listing.partial for listing in listings)
    if manifest is not None and not manifest.complete:
        partial = True
        notes.append("the run was cut off before its end (manifest: complete is false)")
    elif own is not None:
        broken = broken_promises(own, [e for listing in listings for e in listing.there])
        partial = partial or bool(broken)
        notes += broken
    broken = list(_broken_by_ranks(path, own, listings))
    partial = partial or bool(broken)
    notes += broken
    if not any(listing.there for listing in listings):
        _refuse_sketches(path)
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
        rank_folders=tuple(rank for rank, _ in _roots(path) if rank is not None),
        order_known=all(listing.order_known for listing in listings if listing.entries),
        notes=tuple(notes),
    )


def _refuse_sketches(path: Path) -> None:
    """Say so where a dump holds sketches, which no one can read whole tensors from."""
    if (path / SKETCH_NAME).exists() or any(path.glob(f"*/{SKETCH_NAME}")):
        raise BadInputError(
            f"expected whole tensors in {path}, found sketches of them: capture them with "
            "--mode full, or compare the sketches with compare_tensors without --verdict"
        )


def _broken_by_ranks(
    path: Path, own: Manifest | None, listings: list[StepListing]
) -> Iterator[str]:
    """Say what the folders of ranks lack, by their manifests and by their numbers."""
    there: defaultdict[int | None, list[TensorEntry]] = defaultdict(list)
    for listing in listings:
        for entry in listing.there:
            there[entry.rank].append(entry)
    folders = [(rank, folder) for rank, folder in _roots(path) if rank is not None]
    run = own
    for rank, folder in folders:
        held = there[rank]
        if not held:
            yield f"no tensors in {folder}"
        if not os.path.lexists(folder / MANIFEST_NAME):
            continue
        manifest = read_manifest(folder / MANIFEST_NAME)
        run = run or manifest
        yield from (f"{folder.name}: {text}" for text in broken_rank(manifest, run, held))
    missing = missing_ranks(own, [rank for rank, _ in folders])
    if missing is not None:
        yield missing


def _list_everything(path: Path, manifest: Manifest | None, own_step: int) -> Iterator[StepListing]:
    roots = list(_roots(path))
    ranks = {root.name for rank, root in roots if rank is not None}
    for rank, root in roots:
        steps = _step_folders(root)
        apart = {folder.name for _, folder, _ in steps} | (ranks if root == path else set())
        first_order = next((folder / ORDER_FILE_NAME for _, folder, _ in steps), None)
        flat = list_step(
            root,
            step=own_step,
            rank=rank,
            manifest=manifest,
            root=path,
            order_file=first_order,
            read_apart=frozenset(apart),
        )
        if flat.there or flat.notes:
            yield flat if flat.there else StepListing(notes=flat.notes)
        # MAX's own hook writes the order into step 0 and the files one level up.
        order_apart = bool(flat.there) and manifest is None
        for step, folder, partial in steps:
            listing = list_step(folder, step=step, rank=rank, manifest=manifest, root=path)
            if listing.there or not order_apart:
                yield _marked(listing, folder, partial=partial)


def _marked(listing: StepListing, folder: Path, *, partial: bool) -> StepListing:
    """Mark a step of which something is missing for certain."""
    if listing.entries:
        return replace(listing, partial=listing.partial or partial)
    return replace(listing, partial=True, notes=(*listing.notes, f"no tensors in {folder}"))


def _roots(path: Path) -> Iterator[tuple[int | None, Path]]:
    yield None, path
    yield from sorted((int(match["rank"]), folder) for match, folder in _folders(path, _RANK))


def _step_folders(root: Path) -> list[tuple[int, Path, bool]]:
    return sorted(
        (int(match["step"]), folder, match["partial"] is not None)
        for match, folder in _folders(root, _STEP)
    )


def _folders(path: Path, pattern: re.Pattern[str]) -> Iterator[tuple[re.Match[str], Path]]:
    """Find the folders in a folder whose names have a form."""
    for name in os.listdir(path):  # there may be thousands of files beside them
        match = pattern.fullmatch(name)
        if match and (path / name).is_dir():
            yield match, path / name


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
