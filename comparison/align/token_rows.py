"""The values of each row of a batch, by token position, whatever the layout of the tensor.

Legend: B rows, S sequence with padding, T tokens of a row, N heads, D head size.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from comparison.align.rows import Layout
from comparison.numerics.dtypes import Array
from comparison.schema.manifest import Padding, Stretch
from comparison.schema.outcome import Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRow:
    """What a tensor says of one row.

    Attributes:
        positions: token positions, int64 [n], ascending, counted from the row's first token.
        values: one value a position, [n, ...].
    """

    positions: Array
    values: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What the values of one row have to look like.

    Attributes:
        trailing: shape of one token's value.
        square: whether the last dimension counts tokens too, as in a mask [S, S].
    """

    trailing: Shape
    square: bool = False


def token_rows(array: Array, layout: Layout, wanted: Wanted) -> tuple[TokenRow, ...] | None:
    """Cut one step's tensor into rows.

    Args:
        array: as dumped.
        layout: how rows lie in it; its lengths are those of the prompts.
        wanted: what one token's value looks like in the reference.

    Returns:
        One record a row, its values of the wanted shape; None where the tensor holds none of
        that shape by token.
    """
    if wanted.square and layout.lengths:
        if layout.stretches is not None:
            return None  # a part of a mask is not needed: its effect is seen where it is used
        return _square_rows(array, layout)
    size = math.prod(wanted.trailing)
    for exact in (True, False):  # heads may be flat on one side
        for rows in row_readings(array, layout):
            trailing = rows[0].values.shape[1:]
            if trailing == wanted.trailing if exact else math.prod(trailing) == size:
                return tuple(_shaped(row, wanted.trailing) for row in rows)
    return None


def _shaped(row: TokenRow, trailing: Shape) -> TokenRow:
    values = row.values.reshape(row.values.shape[0], *trailing)
    return TokenRow(positions=row.positions, values=values)


def row_readings(array: Array, layout: Layout) -> Iterator[tuple[TokenRow, ...]]:
    """Give each way in which a tensor can hold values by token, whole rows first."""
    if not layout.lengths or array.ndim == 0:
        return
    if layout.stretches is not None:
        yield from stretch_readings(array, layout, layout.stretches)
        return
    lengths, step = layout.lengths, layout.step
    tokens = [length + step for length in lengths]  # so far, those generated before included
    now = lengths if step == 0 else (1,) * len(lengths)
    if layout.padding is Padding.RAGGED:
        if array.shape[0] == sum(now):
            yield _consecutive(array, now, step, lengths)
    else:
        yield from _padded(array, layout, tokens)
    if layout.last_tokens and array.shape[0] == len(lengths):  # only the last token of each row
        yield tuple(
            TokenRow(positions=np.array([count - 1]), values=array[row : row + 1])
            for row, count in enumerate(tokens)
        )


def stretch_readings(
    array: Array, layout: Layout, stretches: Sequence[Stretch]
) -> Iterator[tuple[TokenRow, ...]]:
    """Yield each way in which a tensor can hold the tokens that a step computed.

    Args:
        array: as dumped: rows one after the other, a padded batch of them, or one value a row.
        layout: of the dump.
        stretches: what the step computed.
    """
    if not stretches:  # a step that computed nothing
        return
    counts = [stretch.count for stretch in stretches]
    flat = array[0] if array.ndim > 1 and array.shape[:2] == (1, sum(counts)) else array
    if flat.shape[0] == sum(counts):
        starts = np.cumsum([0, *counts])
        yield _of_rows([flat[a:b] for a, b in pairwise(starts)], layout, stretches)
    width = max(counts, default=0)
    for axis in (1, 2) if array.ndim == 4 else (1,):
        if array.ndim > axis and array.shape[0] == len(counts) and array.shape[axis] == width:
            by_token = array.swapaxes(1, axis)  # [B, S, ...]
            valid = [_valid(width, count, layout.padding) for count in counts]
            parts = [by_token[row, place] for row, place in enumerate(valid)]
            yield _of_rows(parts, layout, stretches)
    if layout.last_tokens and array.shape[0] == len(counts):
        ends = [replace(s, first=s.first + s.count - 1, count=1) for s in stretches]
        yield _of_rows([array[row : row + 1] for row in range(len(counts))], layout, ends)


def _of_rows(
    parts: Sequence[Array], layout: Layout, stretches: Sequence[Stretch]
) -> tuple[TokenRow, ...]:
    """Put parts to their rows; a row without any gets an empty record."""
    by_row: defaultdict[int, list[int]] = defaultdict(list)
    for at, stretch in enumerate(stretches):
        by_row[stretch.row].append(at)
    found: list[TokenRow] = []
    for row in range(len(layout.lengths)):
        own = by_row.get(row, [])
        positions = [np.arange(s.first, s.first + s.count) for s in (stretches[at] for at in own)]
        found.append(
            TokenRow(
                positions=np.concatenate(positions) if own else np.zeros(0, dtype=int),
                values=np.concatenate([parts[at] for at in own]) if own else parts[0][:0],
            )
        )
    return tuple(found)


def _consecutive(
    array: Array, now: tuple[int, ...], step: int, lengths: tuple[int, ...]
) -> tuple[TokenRow, ...]:
    rows, start = [], 0
    for count, length in zip(now, lengths, strict=True):
        first = 0 if step == 0 else length + step - 1
        rows.append(_row(array[start : start + count], first, step))
        start += count
    return tuple(rows)


def _padded(array: Array, layout: Layout, tokens: list[int]) -> Iterator[tuple[TokenRow, ...]]:
    count, width = len(tokens), max(tokens)
    yield from _by_batch(array, layout, tokens)
    for wide in {width, 1} if layout.step else {width}:
        if count > 1 and array.shape[0] == count * wide:  # [B * S, ...]
            yield from _by_batch(array.reshape(count, wide, *array.shape[1:]), layout, tokens)
    if count > 1 and array.shape[0] == 1 and array.ndim > 1:  # [1, S, ...], the same for all rows
        shared = np.broadcast_to(array, (count, *array.shape[1:]))
        if layout.padding is not Padding.LEFT or len(set(tokens)) == 1:
            yield from _by_batch(shared, layout, tokens)


def _by_batch(array: Array, layout: Layout, tokens: list[int]) -> Iterator[tuple[TokenRow, ...]]:
    if array.ndim < 2 or array.shape[0] != len(tokens):
        return
    width = max(tokens)
    for axis in (1, 2) if array.ndim == 4 else (1,):
        by_token = array.swapaxes(1, axis)  # [B, S, ...]
        if by_token.shape[1] == width:
            yield tuple(
                _row(by_token[row, _valid(width, n, layout.padding)], 0, layout.step)
                for row, n in enumerate(tokens)
            )
        elif layout.step > 0 and by_token.shape[1] == 1:
            yield tuple(_row(by_token[row], n - 1, layout.step) for row, n in enumerate(tokens))


def _square_rows(array: Array, layout: Layout) -> tuple[TokenRow, ...] | None:
    """Cut masks [B, 1, S, S]; in decode steps [B, 1, 1, S]."""
    tokens = [length + layout.step for length in layout.lengths]
    if array.ndim != 4 or array.shape[0] not in (1, len(tokens)) or array.shape[1] != 1:
        return None
    if array.shape[-1] != max(tokens) or layout.padding is Padding.RAGGED:
        return None
    rows = []
    for row, count in enumerate(tokens):
        valid = _valid(max(tokens), count, layout.padding)
        one = array[row if array.shape[0] > 1 else 0, 0][..., valid]
        first = 0 if one.shape[0] == max(tokens) else count - 1
        rows.append(_row(one[valid] if one.shape[0] == max(tokens) else one, first, layout.step))
    return tuple(rows)


def _row(values: Array, first: int, step: int) -> TokenRow:
    """Number the tokens; of a decode step only the newest one counts."""
    if step > 0 and values.shape[0] > 1:
        first, values = first + values.shape[0] - 1, values[-1:]
    return TokenRow(positions=np.arange(first, first + values.shape[0]), values=values)


def _valid(width: int, length: int, padding: Padding | None) -> slice:
    return slice(width - length, width) if padding is Padding.LEFT else slice(0, length)
