"""The elements around one, of a tensor that is given in blocks."""

from collections.abc import Sequence

import numpy as np

from comparison.numerics.blocks import Block
from comparison.numerics.dtypes import Array
from comparison.schema.detail import Window
from comparison.schema.outcome import Scalar, Shape

SIZE = 7


def window_around(blocks: Sequence[Block], *, shape: Shape, center: Shape) -> Window:
    """Cut the elements around one out of both sides, over the last two axes.

    Args:
        blocks: as for `measure_blocks`.
        shape: the shape of the whole.
        center: index of the element.
    """
    rows = _span(center[-2], shape[-2]) if len(shape) > 1 else range(1)
    columns = _span(center[-1], shape[-1]) if shape else range(1)
    if len(shape) == 2:
        found = [_row(blocks, (row,), columns) for row in rows]
    elif len(shape) > 2:
        found = [_row(blocks, (*center[:-2], row), columns) for row in rows]
    else:
        found = [_row(blocks, (), columns)]
    return Window(
        row_start=rows.start,
        column_start=columns.start,
        reference=tuple(reference for reference, _ in found),
        candidate=tuple(candidate for _, candidate in found),
    )


def _span(at: int, size: int) -> range:
    """Give up to SIZE indices around one, all of them on the axis."""
    first = max(0, min(at - SIZE // 2, size - SIZE))
    return range(first, min(first + SIZE, size))


def _row(
    blocks: Sequence[Block], index: Shape, columns: range
) -> tuple[tuple[Scalar, ...], tuple[Scalar, ...]]:
    """Read one row of both sides, whichever block holds it."""
    if not index:  # a scalar or a single axis
        return _read_axis(blocks, columns)
    block = next(b for b in blocks if 0 <= index[0] - b.origin < b.reference.shape[0])
    place = (index[0] - block.origin, *index[1:])
    sides = block.reference[place], block.candidate[place]
    cut = slice(columns.start, columns.stop)
    return _values(sides[0][cut]), _values(sides[1][cut])


def _read_axis(
    blocks: Sequence[Block], columns: range
) -> tuple[tuple[Scalar, ...], tuple[Scalar, ...]]:
    """Read elements of a tensor of one axis, over the ends of blocks."""
    found: tuple[list[Scalar], list[Scalar]] = ([], [])
    for block in blocks:
        for values, side in zip(found, (block.reference, block.candidate), strict=True):
            flat = side.reshape(-1)
            first = max(columns.start - block.origin, 0)
            values += _values(flat[first : max(columns.stop - block.origin, 0)])
    return tuple(found[0]), tuple(found[1])


def _values(values: Array) -> tuple[Scalar, ...]:
    # Narrow dtypes are exact in float64; numpy's own give Python numbers as they are.
    plain = values.astype(np.float64) if values.dtype.kind == "V" else values
    numbers: list[Scalar] = plain.tolist()
    return tuple(int(number) if isinstance(number, bool) else number for number in numbers)
