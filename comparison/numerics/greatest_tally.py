"""The greatest difference, and where it is."""

import math
from dataclasses import dataclass

import numpy as np

from comparison.numerics.blocks import Block, Chunk, index_at
from comparison.numerics.dtypes import Array, Kind
from comparison.schema.outcome import Extreme, Scalar, Shape


@dataclass(slots=True)
class GreatestTally:
    """The greatest value so far, with the elements that gave it."""

    value: int | float = -1
    position: int = 0
    reference: Scalar = 0
    candidate: Scalar = 0

    def offer(self, values: Array, chunk: Chunk, kind: Kind, excluded: Array | None) -> None:
        """Take the greatest of a chunk if it is greater."""
        at = int(np.argmax(values))
        value = values[at].item() if isinstance(values[at], np.generic) else values[at]
        if value <= self.value:
            return
        if excluded is not None and excluded[at]:  # all are 0: take one that was measured
            at = int(np.argmin(excluded))
        self._take(value, chunk, at, kind)

    def offer_one(self, value: float, block: Block, at: int, kind: Kind) -> None:
        """Take a value if it is greater.

        Args:
            value: a difference.
            block: what it is of.
            at: its row-major position in the block.
            kind: of the elements; integers below 2**53.
        """
        if value > self.value:
            start = block.origin * math.prod(block.reference.shape[1:])
            chunk = Chunk(reference=block.reference, candidate=block.candidate, start=start)
            self._take(value, chunk, at, kind)

    def _take(self, value: int | float, chunk: Chunk, at: int, kind: Kind) -> None:
        self.value, self.position = value, chunk.start + at
        self.reference = _element(chunk.reference, at, kind)
        self.candidate = _element(chunk.candidate, at, kind)

    def as_extreme(self, shape: Shape) -> Extreme:
        """Give it with its index in a shape."""
        return Extreme(
            value=self.value,
            index=index_at(self.position, shape),
            reference=self.reference,
            candidate=self.candidate,
        )


def _element(array: Array, position: int, kind: Kind) -> Scalar:
    value = array.item(position)
    if kind is Kind.COMPLEX:
        return complex(value)
    return float(value) if kind is Kind.FLOAT else int(value)
