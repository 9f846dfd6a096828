"""Finds rows of one side's weights among those of the other side, by value.

A strip is one line of projections: the rows of a matrix, each multiplied by the vector of its
length, or its columns likewise. A matrix that is stored transposed has the same strips, with rows
and columns exchanged; so strips of one length of vector are looked for among each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from comparison.numerics.dtypes import Array
from comparison.numerics.weight_record import WeightSketch
from diagnosis.weights.slack import slack_of_each

EXACT = 1e-9  # relative; what the order of a sum in float64 makes of equal values
_MOST_LOOKED_AT = 100_000_000  # elements; a second or two
_ALIKE = 0.9  # correlation; rounding leaves that of values which are not all the same


@dataclass(frozen=True, slots=True, kw_only=True)
class Strip:
    """Projections of the rows, or the columns, of one matrix.

    Attributes:
        weight: name of the weight.
        matrix: number of the matrix in its stack.
        is_rows: whether these are its rows.
        length: of the vector that each was multiplied by.
        dtype: name of the weight's dtype.
        values: float64 [n].
    """

    weight: str
    matrix: int
    is_rows: bool
    length: int
    dtype: str
    values: Array = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Located:
    """Where values of one strip lie in others.

    Attributes:
        strips: the strips that hold them, the one with most of them first.
        strip: number of the strip in `strips` of each value, int64 [n]; -1 where none holds it.
        row: its place there, int64 [n].
    """

    strips: tuple[Strip, ...]
    strip: Array
    row: Array

    @property
    def is_whole(self) -> bool:
        """Whether every value was found."""
        return bool(self.strip.size) and bool(np.all(self.strip >= 0))

    @property
    def is_block(self) -> bool:
        """Whether they lie one behind the other, in one strip or in pieces of several."""
        same = self.strip[1:] == self.strip[:-1]
        return self.is_whole and bool(np.all(np.diff(self.row)[same] == 1)) and not self.returns

    @property
    def is_ascending(self) -> bool:
        """Whether they keep their order in each strip that holds some."""
        return self.is_whole and all(
            bool(np.all(np.diff(self.row[self.strip == number]) > 0))
            for number in range(len(self.strips))
        )

    @property
    def returns(self) -> bool:
        """Whether a strip is left and entered again."""
        changes = 1 + int(np.count_nonzero(np.diff(self.strip)))
        return changes > len(set(self.strip.tolist()))


def strips_of(weight: WeightSketch) -> Iterator[Strip]:
    """Yield the strips of a weight; none of one that has no sketch."""
    _, rows, columns = weight.matrix
    lines = ((weight.rows, True, columns), (weight.columns, False, rows))
    for values, is_rows, length in lines:
        if values is None or not values.size:
            continue
        for number, line in enumerate(values):
            yield Strip(
                weight=weight.name,
                matrix=number,
                is_rows=is_rows,
                length=length,
                dtype=weight.dtype,
                values=line,
            )


class StripIndex:
    """All strips of one side, to be searched by value."""

    def __init__(self, strips: Iterable[Strip]) -> None:
        """Sort the values of strips, by the length of their vector."""
        self._strips: dict[int, list[Strip]] = {}
        for strip in strips:
            self._strips.setdefault(strip.length, []).append(strip)
        self._sorted: dict[int, tuple[Array, Array, Array]] = {}

    def locate(self, values: Array, *, length: int, besides: str | None = None) -> Located:
        """Find each of a strip's values.

        Of equal values, that one is taken which continues the piece before it.

        Args:
            values: float64 [n].
            length: of the vector that they were made with.
            besides: a weight that is not looked into.
        """
        all_strips = self._strips.get(length, [])
        number, row = self._nearest(values, length, all_strips, besides)
        number, row = _straightened(values, number, row, all_strips)
        order = [int(n) for n in _by_count(number)]
        place = {old: new for new, old in enumerate(order)}
        return Located(
            strips=tuple(all_strips[n] for n in order),
            strip=np.array([place.get(int(n), -1) for n in number], dtype=np.int64),
            row=row,
        )

    def block(self, values: Array, *, length: int) -> Strip | None:
        """Find a strip that has all values one behind the other.

        Args:
            values: float64 [n], of which some may be equal.
            length: of the vector that they were made with.
        """
        if not len(values):
            return None
        slack = _allowed(values)
        for strip in self._with_value(float(values[0]), length, slack):
            if len(_starts(values, strip.values, np.full(len(values), slack))):
                return strip
        return None

    def _with_value(self, value: float, length: int, slack: float) -> Iterator[Strip]:
        """Give the strips that have a value, in their order; of a value that is none, all."""
        strips = self._strips.get(length, [])
        if not strips or not np.isfinite(value):
            yield from strips
            return
        ordered, owner, _ = self._table(length, strips)
        first = np.searchsorted(ordered, value - slack, side="left")
        last = np.searchsorted(ordered, value + slack, side="right")
        yield from (strips[number] for number in np.unique(owner[first:last]))

    def rounded(
        self, values: Array, *, length: int, dtype: str, besides: str | None = None
    ) -> Located | None:
        """Find values one behind the other as another dtype holds them.

        Args:
            values: float64 [n].
            length: of the vector that they were made with.
            dtype: name of theirs; strips of that dtype have the very values, or not.
            besides: a weight that is not looked into.
        """
        for strip in self._strips.get(length, []):
            if strip.dtype == dtype or strip.weight == besides:
                continue
            slack = slack_of_each(dtype, strip.dtype, values)
            for start in _starts(values, strip.values, slack):
                if _alike(values, strip.values[start : start + len(values)]):
                    return Located(
                        strips=(strip,),
                        strip=np.zeros(len(values), dtype=np.int64),
                        row=start + np.arange(len(values)),
                    )
        return None

    def _nearest(
        self, values: Array, length: int, strips: list[Strip], besides: str | None
    ) -> tuple[Array, Array]:
        missing = np.full(len(values), -1, dtype=np.int64)
        if not strips:
            return missing, missing.copy()
        ordered, owner, row = self._table(length, strips)
        if besides is not None:
            kept = np.array([strip.weight != besides for strip in strips])[owner]
            ordered, owner, row = ordered[kept], owner[kept], row[kept]
        if not ordered.size:
            return missing, missing.copy()
        right = np.searchsorted(ordered, values).clip(0, len(ordered) - 1)
        left = (right - 1).clip(0)
        with np.errstate(invalid="ignore"):
            closer = np.abs(ordered[left] - values) < np.abs(ordered[right] - values)
            best = np.where(closer, left, right)
            found = np.abs(ordered[best] - values) <= _allowed(values)
        found |= _both_odd(ordered[best], values)
        return np.where(found, owner[best], -1), np.where(found, row[best], -1)

    def _table(self, length: int, strips: list[Strip]) -> tuple[Array, Array, Array]:
        if length not in self._sorted:
            values = np.concatenate([strip.values for strip in strips])
            sizes = [len(strip.values) for strip in strips]
            owner = np.repeat(np.arange(len(strips)), sizes)
            row = np.concatenate([np.arange(size) for size in sizes])
            order = np.argsort(values, kind="stable")
            self._sorted[length] = values[order], owner[order], row[order]
        return self._sorted[length]


def same_values(left: Array, right: Array) -> Array:
    """Tell which of two lines' values are the same but for the order of a sum, bool [n].

    NaN is the same as NaN, and infinity as infinity of its sign.
    """
    with np.errstate(invalid="ignore"):
        close = np.abs(left - right) <= _allowed(left)
    return np.asarray(close | _both_odd(left, right))


def _both_odd(left: Array, right: Array) -> Array:
    infinite = np.isinf(left) & (left == right)
    return np.asarray(infinite | (np.isnan(left) & np.isnan(right)))


def _starts(values: Array, line: Array, slack: Array) -> Array:
    """Give the places where a line has values one behind the other, but for rounding.

    None where values that come again and again, such as zeros, leave too many places to look at.
    """
    starts = np.arange(max(len(line) - len(values) + 1, 0))
    looked_at = 0
    for index, value in enumerate(values):
        looked_at += starts.size
        if looked_at > _MOST_LOOKED_AT:
            return starts[:0]
        if not starts.size:
            break
        here = line[starts + index]
        starts = starts[np.isclose(here, value, rtol=0, atol=slack[index], equal_nan=True)]
    return starts


def _alike(left: Array, right: Array) -> bool:
    """Tell whether values go up and down together: those of a norm are all nearly 1."""
    numbers = np.isfinite(left) & np.isfinite(right)
    a, b = left[numbers], right[numbers]
    if a.size < 2 or not np.ptp(a) or not np.ptp(b):
        return bool(numbers.any()) and np.ptp(a) == np.ptp(b)
    return float(np.corrcoef(a, b)[0, 1]) > _ALIKE


def _allowed(values: Array) -> float:
    finite = values[np.isfinite(values)]
    return EXACT * float(np.sqrt(np.mean(finite**2))) if finite.size else 0.0


def _by_count(number: Array) -> Array:
    found, counts = np.unique(number[number >= 0], return_counts=True)
    return np.asarray(found[np.argsort(-counts, kind="stable")])


def _straightened(
    values: Array, number: Array, row: Array, strips: list[Strip]
) -> tuple[Array, Array]:
    """Prefer one whole piece of one strip where values occur more than once."""
    found = np.flatnonzero(number >= 0)
    if found.size != len(values) or not found.size:
        return number, row
    shifts = row - np.arange(len(values))
    for candidate in _by_count(number)[:4]:
        here = number == candidate
        shift = int(np.median(shifts[here]))
        line = strips[int(candidate)].values
        if 0 <= shift <= len(line) - len(values):
            piece = line[shift : shift + len(values)]
            if np.all(same_values(values, piece)):
                steps = np.arange(len(values))
                return np.full(len(values), candidate), steps + shift
    return number, row
