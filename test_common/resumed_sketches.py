"""Sketches of a step that an earlier run has written, against those of a run that goes on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from comparison.store.sketch_file import SKETCH_NAME, read_sketches
from test_common.earlier_run import mixed_runs

if TYPE_CHECKING:
    from comparison.numerics.tensor_sketch import TensorSketch


def compare_sketches(folder: Path, sketches: Mapping[str, TensorSketch]) -> tuple[int, str | None]:
    """Compare the sketches of a step with what is there of them.

    Args:
        folder: of the step.
        sketches: of this run so far, in order of execution.

    Returns:
        How many are equal, and the first tensor that is there and that this run has not come to.

    Raises:
        UnwritableOutputError: one is of other values.
        BadInputError: the file cannot be read.
    """
    path = folder / SKETCH_NAME
    earlier = read_sketches(path) if path.exists() else {}
    for name, our_name in zip(earlier, sketches, strict=False):
        if name != our_name:
            raise mixed_runs(folder, f"{name} comes where this run has {our_name}")
        if _values(earlier[name]) != _values(sketches[name]):
            raise mixed_runs(folder, f"{name} has another sketch than in this run")
    equal = min(len(earlier), len(sketches))
    return equal, next(iter(list(earlier)[equal:]), None)


def _values(sketch: TensorSketch) -> tuple[object, ...]:
    """Return what is the same for the same values only, on any machine."""
    return sketch.dtype, sketch.shape, sketch.fingerprint, sketch.non_finite, sketch.rows is None
