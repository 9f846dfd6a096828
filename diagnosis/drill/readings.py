"""One operation's values by row and token, on either side, whatever the order of its axes.

Below a module there are more layouts than at its edge: rows and heads in one axis, tokens in the
second or the last, keys beside queries. A tensor is read in every way that fits the run, and the
values tell which one is meant.

Legend: B rows, S tokens of a step with padding, K keys with padding, T tokens of a row, n tokens of
it in this step, F values a token.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from comparison.align.rows import Layout
from comparison.numerics.dtypes import Array
from comparison.schema.manifest import Padding

BY_TOKEN = "by token"  # [n, F]
BY_KEY = "by token and key"  # [n, F, keys]
WHOLE = "whole"  # [1, F]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What a tensor holds of one row.

    Attributes:
        positions: token positions, int64 [n].
        values: [n, F] or [n, F, keys].
    """

    positions: Array
    values: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One way to read a tensor.

    Attributes:
        kind: `BY_TOKEN`, `BY_KEY` or `WHOLE`.
        parts: by number of the row.
    """

    kind: str
    parts: tuple[Part, ...]

    @property
    def size(self) -> int:
        """Values of one token, keys left out."""
        return int(self.parts[0].values.shape[1])


def reference_reading(values: Sequence[Array], tokens: Sequence[int | None]) -> Reading | None:
    """Read what the reference computed, all tokens of a row at once.

    Args:
        values: one array a row.
        tokens: number of tokens of each row; None where the inputs are no token ids.

    Returns:
        None where rows are of different kinds.
    """
    ranks = {array.ndim for array in values}
    if len(ranks) != 1:
        return None
    axes: list[int] = []
    if all(count is not None for count in tokens):
        shapes = [array.shape for array in values]
        axes = [
            axis
            for axis in range(ranks.pop())
            if all(shape[axis] == count for shape, count in zip(shapes, tokens, strict=True))
        ]
    if len(axes) > 1:
        moved = [np.moveaxis(array, (axes[-2], axes[-1]), (0, -1)) for array in values]
        parts = [_part(array.reshape(len(array), -1, array.shape[-1])) for array in moved]
        return _reading(BY_KEY, parts)
    if axes:
        parts = [_part(_flat(np.moveaxis(array, axes[0], 0))) for array in values]
        return _reading(BY_TOKEN, parts)
    return _reading(WHOLE, [_part(array.reshape(1, -1)) for array in values])


def candidate_readings(array: Array, layout: Layout) -> Iterator[Reading]:
    """Yield each way in which a tensor of the candidate's can hold one step.

    Args:
        array: as dumped.
        layout: how rows lie in the step; without lengths there is one row and no token axis.
    """
    if not layout.lengths:
        yield _reading(WHOLE, [_part(array.reshape(1, -1))])
        return
    step = _Step(layout)
    if layout.padding is Padding.RAGGED:
        yield from step.ragged(array)
    else:
        for batched in step.batched(array):
            yield from step.padded(batched)
    yield _reading(WHOLE, [_part(array.reshape(1, -1))] * len(layout.lengths))


class _Step:
    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._so_far = [length + layout.step for length in layout.lengths]
        self._now = [1] * len(self._so_far) if layout.step else list(layout.lengths)

    def ragged(self, array: Array) -> Iterator[Reading]:
        """Cut rows that lie one after the other along some axis."""
        total = sum(self._now)
        for axis in [axis for axis, size in enumerate(array.shape) if size == total]:
            by_token = np.moveaxis(array, axis, 0)
            ends = np.cumsum(self._now)
            parts = [
                _part(_flat(by_token[end - count : end]), first=so_far - count)
                for end, count, so_far in zip(ends, self._now, self._so_far, strict=True)
            ]
            yield _reading(BY_TOKEN, parts)

    def batched(self, array: Array) -> Iterator[Array]:
        """Give each form [B, ...]."""
        count = len(self._now)
        for axis, size in enumerate(array.shape):
            if size == count:
                yield np.moveaxis(array, axis, 0)
        if array.ndim and array.shape[0] % count == 0 and array.shape[0] != count:
            yield array.reshape(count, array.shape[0] // count, *array.shape[1:])
        same = len(set(self._so_far)) == 1 or self._layout.padding is not Padding.LEFT
        if count > 1 and array.ndim > 1 and array.shape[0] == 1 and same:
            yield np.broadcast_to(array, (count, *array.shape[1:]))

    def padded(self, batched: Array) -> Iterator[Reading]:
        """Give each way to read [B, ...]."""
        keys = max(self._so_far)
        of_keys = [axis for axis in range(1, batched.ndim) if batched.shape[axis] == keys]
        if self._layout.step == 0:
            if len(of_keys) > 1:
                yield self._by_key(batched, of_keys[-2], of_keys[-1])
            for axis in of_keys:
                yield self._by_token(batched, axis)
            return
        for axis in of_keys:  # what a cache holds, or what one token makes of it
            yield self._by_token(batched, axis)
            yield self._by_key(np.expand_dims(batched, 1), 1, axis + 1)
        parts = [
            _part(batched[row].reshape(1, -1), first=count - 1)
            for row, count in enumerate(self._so_far)
        ]
        yield _reading(BY_TOKEN, parts)

    def _by_token(self, batched: Array, axis: int) -> Reading:
        by_token = np.moveaxis(batched, axis, 1)
        parts = [
            _part(_flat(by_token[row, self._valid(count)]))
            for row, count in enumerate(self._so_far)
        ]
        return _reading(BY_TOKEN, parts)

    def _by_key(self, batched: Array, queries: int, keys: int) -> Reading:
        moved = np.moveaxis(batched, (queries, keys), (1, -1))
        parts = []
        for row, count in enumerate(self._so_far):
            valid = self._valid(count)
            one = moved[row][..., valid]
            one = one if self._layout.step else one[valid]
            first = count - 1 if self._layout.step else 0
            parts.append(_part(one.reshape(len(one), -1, one.shape[-1]), first=first))
        return _reading(BY_KEY, parts)

    def _valid(self, count: int) -> slice:
        width = max(self._so_far)
        return slice(width - count, width) if self._layout.padding is Padding.LEFT else slice(count)


def _reading(kind: str, parts: Sequence[Part]) -> Reading:
    return Reading(kind=kind, parts=tuple(parts))


def _part(values: Array, first: int = 0) -> Part:
    return Part(positions=np.arange(first, first + len(values)), values=values)


def _flat(values: Array) -> Array:
    return values.reshape(len(values), -1)
