"""Dumps laid out by hand, for tests."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from comparison.numerics.dtypes import Array
from comparison.schema.manifest import Manifest, Padding, Row
from comparison.schema.tensor_names import file_stem
from comparison.store.manifest_file import write_manifest
from comparison.store.max_file import write_max_file

Tensors = Mapping[str, Array]


def write_step(folder: Path, tensors: Tensors, *, order: bool = True) -> Path:
    """Write tensors as .max files, in order, and the list of names."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in tensors.items():
        write_max_file(folder / f"{file_stem(name)}.max", array, key=file_stem(name))
    if order:
        names = "".join(f"{name}\n" for name in tensors)
        (folder / "tensor_names.txt").write_text(names, encoding="utf-8")
    return folder


def make_manifest(
    engine: str,
    *,
    padding: Padding = Padding.NONE,
    rows: Sequence[Sequence[int]] = (),
    complete: bool = True,
    file_names: Mapping[str, str] | None = None,
    steps: int = 1,
) -> Manifest:
    """Make a manifest of rows of token ids."""
    return Manifest(
        engine=engine,
        versions={},
        model="tiny-random/llama",
        pipeline="tiny-random/llama",
        encoding="float32",
        device="cpu",
        padding=padding,
        rows=tuple(Row(prompt=None, token_ids=tuple(row)) for row in rows),
        steps=steps,
        complete=complete,
        file_names=dict(file_names or {}),
    )


def write_dump(
    path: Path,
    steps: Sequence[Tensors],
    *,
    engine: str = "max",
    padding: Padding = Padding.NONE,
    lengths: Sequence[int] = (),
) -> Path:
    """Write a whole dump with its manifest."""
    for step, tensors in enumerate(steps):
        write_step(path / str(step), tensors)
    rows = [range(length) for length in lengths]
    manifest = make_manifest(engine, padding=padding, rows=rows, steps=len(steps))
    write_manifest(path / "manifest.json", manifest)
    return path


def numbers(*shape: int, seed: int = 0) -> Array:
    """Give random float32 numbers."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
