"""The relative L2 distance of each row, of which the worst is kept."""

import math
from dataclasses import dataclass

import numpy as np

from comparison.numerics.blocks import index_at
from comparison.numerics.dtypes import Array
from comparison.numerics.sums import SMALLEST_DENOMINATOR
from comparison.schema.outcome import RowDistance, Shape


@dataclass(slots=True)
class _Open:
    """A row that is not at its end: its number, and its sums divided by 4**exponent."""

    number: int
    difference: float
    reference: float
    exponent: int


class RowTally:
    """Rows are what lies along the last axis."""

    def __init__(self, shape: Shape) -> None:
        """Begin with no row.

        Args:
            shape: the compared shape.
        """
        self._shape = shape
        self._row = shape[-1] if shape else 1
        self._open: _Open | None = None
        self._value, self._number = -1.0, 0

    def add(self, difference: Array, reference: Array, *, start: int, exponent: int) -> None:
        """Take in a chunk.

        Args:
            difference: [n] float64, squares of differences, divided by 4**exponent.
            reference: as difference, squares of the reference's elements.
            start: row-major position of the first element.
            exponent: what the values are scaled by.
        """
        first, inside = divmod(start, self._row)
        begins = np.arange(self._row - inside, difference.size, self._row)
        begins = np.concatenate([[0], begins])
        self._add_rows(
            first,
            np.add.reduceat(difference, begins),
            np.add.reduceat(reference, begins),
            exponent,
        )

    def add_piece(self, difference: float, reference: float, *, start: int) -> None:
        """Take in the sums of a piece of one row.

        Args:
            difference: sum of squared differences.
            reference: sum of squared elements of the reference.
            start: row-major position of its first element.
        """
        sums = np.array([difference]), np.array([reference])
        self._add_rows(start // self._row, *sums, 0)

    def add_worst(self, number: int, value: float, *, start: int) -> None:
        """Take in the worst of some whole rows.

        Args:
            number: of the row, counted from that of `start`.
            value: its distance.
            start: row-major position of the first row.
        """
        self._offer(start // self._row + number, value)

    def worst(self) -> RowDistance:
        """Give the worst row, the first of equals."""
        self._close()
        number = self._number if self._value > 0 else 0
        return RowDistance(
            index=index_at(number, self._shape[:-1]), relative_l2=max(self._value, 0.0)
        )

    def _add_rows(self, first: int, difference: Array, reference: Array, exponent: int) -> None:
        """Take in rows of which the first may have begun before, and the last may go on."""
        before = self._open
        if before is not None and before.number == first:
            factor = math.ldexp(1.0, 2 * (before.exponent - exponent))
            difference[0] += before.difference * factor
            reference[0] += before.reference * factor
        else:
            self._close()
        if difference.size > 1:
            distances = _distances(difference[:-1], reference[:-1], exponent)
            at = int(np.argmax(distances))
            self._offer(first + at, float(distances[at]))
        last = first + difference.size - 1
        self._open = _Open(last, float(difference[-1]), float(reference[-1]), exponent)

    def _close(self) -> None:
        """Take the open row as ended."""
        row, self._open = self._open, None
        if row is not None:
            sums = np.array([row.difference]), np.array([row.reference])
            self._offer(row.number, float(_distances(*sums, row.exponent)[0]))

    def _offer(self, number: int, value: float) -> None:
        if value > self._value:
            self._value, self._number = value, number


def _distances(difference: Array, reference: Array, exponent: int) -> Array:
    smallest = math.ldexp(SMALLEST_DENOMINATOR, -exponent)
    with np.errstate(over="ignore"):  # beyond float64 it is infinite
        distances: Array = np.sqrt(difference) / np.maximum(np.sqrt(reference), smallest)
    return distances
