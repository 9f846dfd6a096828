"""Reduces a pair of arrays, however large, to what can be shown of it, in one pass."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from comparison.numerics.blocks import Block, Chunk, iterate_chunks
from comparison.numerics.detail_parts import HistogramTally, MapTally, PointTally, UlpTally
from comparison.numerics.detail_window import window_around
from comparison.numerics.differences import check_kinds, subtract
from comparison.numerics.dtypes import Array, Kind
from comparison.numerics.ulp import UlpUnit
from comparison.schema.detail import TensorDetail
from comparison.schema.outcome import Shape

_TOKENS, _CHANNELS = "token", "channel"
_Pair = tuple[int, int]


def reduce_pair(
    blocks: Sequence[Block],
    *,
    shape: Shape,
    axes: tuple[str, ...],
    center: Shape,
    by_head: Shape | None = None,
) -> TensorDetail | None:
    """Reduce two tensors of one shape.

    Args:
        blocks: as for `measure_blocks`.
        shape: the shape of the whole.
        axes: what each axis counts.
        center: index of the greatest difference.
        by_head: tokens, heads and channels of a head, where the last axis of the shape holds the
            heads one behind the other; else None.

    Returns:
        None for tensors without elements, of complex numbers, or of two kinds of numbers.

    Raises:
        UnsupportedFormatError: an array that holds no numbers.
    """
    first = blocks[0]
    kind = check_kinds(first.reference, first.candidate)
    if kind in (None, Kind.COMPLEX) or not np.prod(shape, dtype=np.int64):
        return None
    assert kind is not None  # told above, for the type checker
    reduction = _Reduction(shape, axes, kind, (first.reference.dtype, first.candidate.dtype))
    if by_head is not None:
        reduction.add_map(by_head, (_TOKENS, "head", _CHANNELS), (0, 1))
    for chunk in iterate_chunks(blocks):
        reduction.add(chunk)
    return reduction.result(center, blocks)


class _Reduction:
    def __init__(
        self,
        shape: Shape,
        axes: tuple[str, ...],
        kind: Kind,
        dtypes: tuple[np.dtype[Any], np.dtype[Any]],
    ) -> None:
        self._shape, self._axes, self._kind = shape, axes, kind
        self._maps = [MapTally(shape, axes, pair) for pair in _pairs_of(axes)]
        self._histogram = HistogramTally()
        self._points = PointTally(int(np.prod(shape, dtype=np.int64)))
        unit = UlpUnit.of(*dtypes)
        self._ulp = None if unit is None else UlpTally(unit)

    def add_map(self, shape: Shape, axes: tuple[str, ...], pair: _Pair) -> None:
        """Draw another map, of the tensor read in another shape."""
        self._maps.append(MapTally(shape, axes, pair))

    def add(self, chunk: Chunk) -> None:
        """Take in one chunk."""
        if chunk.reference.size == 0:
            return
        found = subtract(chunk, self._kind)
        shown: Array = found.absolute
        finite = None
        if found.excluded is not None:
            finite = ~found.excluded
            shown = np.where(_unlike(found.reference, found.candidate), np.inf, shown)
        for tally in self._maps:
            tally.add(shown, chunk.start)
        if finite is None:
            kept = found.reference, found.candidate, found.absolute
        else:
            kept = found.reference[finite], found.candidate[finite], found.absolute[finite]
        self._histogram.add(kept[2])
        if self._ulp is not None:
            self._ulp.add(kept[0], kept[2])
        positions = chunk.start + np.arange(found.absolute.size)
        self._points.add(*kept, positions if finite is None else positions[finite])

    def result(self, center: Shape, blocks: Sequence[Block]) -> TensorDetail:
        points, worst = self._points.points()
        return TensorDetail(
            shape=self._shape,
            axes=self._axes,
            center=center,
            window=window_around(blocks, shape=self._shape, center=center),
            maps=tuple(tally.heat_map() for tally in self._maps),
            histogram=self._histogram.histogram(),
            scatter=points,
            worst=worst,
            ulp=None if self._ulp is None else self._ulp.distance(),
        )


def _unlike(reference: Array, candidate: Array) -> Array:
    """Mark the elements of which a side is not finite and the other is something else."""
    both_nan = np.isnan(reference) & np.isnan(candidate)
    excluded = ~(np.isfinite(reference) & np.isfinite(candidate))
    unlike: Array = excluded & ~both_nan & (reference != candidate)
    return unlike


def _pairs_of(axes: tuple[str, ...]) -> list[_Pair]:
    """Choose the pairs of axes to draw: tokens against channels first, then against heads."""
    if len(axes) < 2:
        return []
    last = len(axes) - 1
    token = axes.index(_TOKENS) if _TOKENS in axes else 0
    pairs = [(token, last)] if token != last else []
    pairs += [(token, axis) for axis in range(last) if axis != token and axes[axis] == "head"]
    pairs += [(axis, token) for axis in range(last) if axis != token and axes[axis] == "row"]
    if token == last:
        pairs.append((0, last))
    return list(dict.fromkeys(pairs))
