"""Dumps that hold sketches in place of tensors."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from comparison.numerics.tensor_sketch import TensorSketch
from comparison.schema.errors import BadInputError
from comparison.schema.manifest import Manifest
from comparison.schema.tensor_entry import TensorEntry
from comparison.store.dump import Dump
from comparison.store.manifest_file import MANIFEST_NAME, read_manifest
from comparison.store.promised import broken_promises
from comparison.store.sketch_file import SKETCH_NAME, read_sketches
from comparison.store.tensor_file import TENSOR_SUFFIXES

_STEP = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SketchDump:
    """The sketches of one run.

    Attributes:
        dump: what tensors there were; they cannot be read.
        sketches: of each of them.
    """

    dump: Dump
    sketches: dict[TensorEntry, TensorSketch] = field(repr=False)


def holds_sketches(path: Path) -> bool:
    """Tell a dump of sketches from one of tensors, which may have sketches beside them.

    Args:
        path: a folder or file, or nothing.
    """
    folders = [folder for _, folder in _steps(path) if (folder / SKETCH_NAME).is_file()]
    return bool(folders) and not any(map(_has_tensors, folders))


def open_sketches(path: Path) -> SketchDump:
    """Read a dump of sketches.

    Args:
        path: its folder, or that of one step.

    Raises:
        BadInputError: a file of it cannot be read, or there is none.
    """
    manifest, partial, notes = _manifest(path)
    sketches = dict(_listed(path))
    if not sketches:
        raise BadInputError(
            f"expected {SKETCH_NAME} in the folders 0, 1, ... of {path}, found none: write it with "
            "--mode sketch or stats"
        )
    if manifest is not None and manifest.complete:
        broken = broken_promises(manifest, list(sketches))
        partial, notes = bool(broken), (*notes, *broken)
    dump = Dump(
        path=path,
        manifest=manifest,
        entries=tuple(sketches),
        complete=not partial,
        order_known=True,
        notes=notes,
    )
    return SketchDump(dump=dump, sketches=sketches)


def _manifest(path: Path) -> tuple[Manifest | None, bool, tuple[str, ...]]:
    above = path if (path / MANIFEST_NAME).exists() else path.resolve().parent
    if not (above / MANIFEST_NAME).exists():
        return None, False, ()
    manifest = read_manifest(above / MANIFEST_NAME)
    if above == path and not manifest.complete:
        return manifest, True, ("the run was cut off before its end (manifest: complete is false)",)
    return manifest, False, ()


def _listed(path: Path) -> Iterator[tuple[TensorEntry, TensorSketch]]:
    for step, folder in _steps(path):
        file = folder / SKETCH_NAME
        if not file.is_file():
            continue
        for order, (name, sketch) in enumerate(read_sketches(file).items()):
            yield TensorEntry(name=name, step=step, order=order, path=file, key=name), sketch


def _steps(path: Path) -> list[tuple[int, Path]]:
    """List the folders of steps: those in a dump, or the folder of one step itself."""
    try:
        if (path / SKETCH_NAME).is_file():
            name = path.resolve().name
            return [(int(name) if _STEP.fullmatch(name) else 0, path)]
        below = [folder for folder in path.iterdir() if _STEP.fullmatch(folder.name)]
    except (OSError, ValueError):  # no folder; whoever opens it says so
        return []
    return sorted((int(folder.name), folder) for folder in below if folder.is_dir())


def _has_tensors(folder: Path) -> bool:
    return any(
        file.name.endswith(TENSOR_SUFFIXES) and file.name != SKETCH_NAME
        for file in folder.iterdir()
        if not file.name.startswith(".")
    )
