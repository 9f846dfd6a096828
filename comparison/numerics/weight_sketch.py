"""Projections of a weight that show transposed, permuted, fused and copied matrices.

R(W) = W v and C(W) = W^T u, where v and u depend on nothing but their length. So
- R of matrices one below the other is the R of each, one behind the other: fused projections;
- R of a permutation of rows is the same permutation of R;
- R(W^T) = C(W);
- a part that is there twice is there twice in R or C;
- a weight that was rounded has nearly the same R and C.
Gaussian vectors keep distances (Johnson and Lindenstrauss), so unlike rows have unlike numbers.
"""

from functools import lru_cache
from math import prod

import numpy as np

from comparison.numerics.directions import directions
from comparison.numerics.dtypes import Array, dtype_name, widen_into
from comparison.numerics.weight_record import WeightSketch, matrix_shape
from comparison.schema.errors import UnsupportedFormatError

_BLOCK_VALUES = 1 << 20  # widened at a time
SKETCHED_DTYPES = ("float64", "float32", "float16", "bfloat16")


def sketch_weight(
    name: str,
    values: Array,
    *,
    storage: int | None = None,
    supplied: bool | None = None,
) -> WeightSketch:
    """Project one weight; it is read once, block by block.

    Args:
        name: as its engine names it.
        values: any shape. Integers, float8 and the like are recorded without a sketch: they are
            codes that stand for other numbers.
        storage: number that weights of the same memory have in common.
        supplied: whether the checkpoint gave the values.
    """
    try:
        dtype = dtype_name(values.dtype)
    except UnsupportedFormatError:
        dtype = str(values.dtype)
    reason = _reason_without(dtype, values)
    if reason:
        return unreadable_weight(name, dtype=dtype, shape=values.shape, reason=reason)
    stack, rows, columns = matrix_shape(values.shape)
    matrices = values.reshape(stack, rows, columns)
    by_row, by_column = np.empty((stack, rows)), np.zeros((stack, columns))
    squares = 0.0
    for index, matrix in enumerate(matrices):
        squares += _project(matrix, by_row[index], by_column[index])
    return WeightSketch(
        name=name,
        dtype=dtype,
        shape=tuple(values.shape),
        rows=by_row,
        columns=None if len(values.shape) < 2 else by_column,
        rms=float(np.sqrt(squares / values.size)),
        storage=storage,
        supplied=supplied,
    )


def unreadable_weight(
    name: str, *, dtype: str, shape: tuple[int, ...], reason: str
) -> WeightSketch:
    """Record a weight whose values cannot be projected.

    Args:
        name: as its engine names it.
        dtype: its dtype's name.
        shape: dimensions.
        reason: why not.
    """
    return WeightSketch(name=name, dtype=dtype, shape=tuple(shape), unreadable=reason)


@lru_cache(maxsize=64)
def direction(length: int) -> Array:
    """Return the fixed vector of a length, float64 [length]; [1] for a length of 1."""
    if length == 1:
        return np.ones(1)
    first: Array = directions(length, 1)[0]
    return first


def _reason_without(dtype: str, values: Array) -> str:
    if prod(values.shape) == 0:
        return "it has no values"
    if dtype not in SKETCHED_DTYPES:
        return f"values of {dtype} are codes for others"
    return ""


def _project(matrix: Array, by_row: Array, by_column: Array) -> float:
    """Fill in R and C of one matrix [O, I], and return the sum of its squares."""
    rows, columns = matrix.shape
    right, left = direction(columns), direction(rows)
    height = max(1, _BLOCK_VALUES // columns)
    wide = np.empty((min(height, rows), columns))
    squares = 0.0
    with np.errstate(invalid="ignore", over="ignore"):
        for start in range(0, rows, height):
            stop = min(start + height, rows)
            block = wide[: stop - start]
            widen_into(matrix[start:stop], block)
            by_row[start:stop] = block @ right
            by_column += left[start:stop] @ block
            squares += float(np.vdot(block, block))
    return squares
