"""A pair of arrays cut into pieces small enough for the processor's cache.

Nothing here copies: a piece is a view, so that memory-mapped files are read once, front to
back, whatever their size.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import EllipsisType

from comparison.numerics.dtypes import Array
from comparison.schema.outcome import Shape

# 16 Ki elements are 128 KiB in float64: the handful of buffers a chunk needs stays in the cache,
# and malloc reuses them; from 64 Ki on each one is mapped and faulted in anew, at twice the time.
CHUNK_ELEMENTS = 1 << 14

Selection = tuple[int | slice | EllipsisType, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A stretch of the compared tensor along its first dimension.

    Attributes:
        reference: a view, any dtype and strides.
        candidate: a view of the same shape.
        origin: index along the first dimension of the compared shape where the block begins.
    """

    reference: Array
    candidate: Array
    origin: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A piece of a block.

    Attributes:
        reference: a view of at most CHUNK_ELEMENTS elements.
        candidate: a view of the same shape.
        start: row-major position of its first element in the compared tensor.
    """

    reference: Array
    candidate: Array
    start: int


def iterate_chunks(blocks: Sequence[Block]) -> Iterator[Chunk]:
    """Cut blocks into chunks, in row-major order of the compared tensor."""
    for block in blocks:
        reference, candidate = block.reference, block.candidate
        row_elements = math.prod(reference.shape[1:])
        if reference.flags.c_contiguous and candidate.flags.c_contiguous:
            reference, candidate = reference.reshape(-1), candidate.reshape(-1)
        for selection, start in _pieces(reference.shape):
            yield Chunk(
                reference=reference[selection],
                candidate=candidate[selection],
                start=block.origin * row_elements + start,
            )


def index_at(position: int, shape: Shape) -> Shape:
    """Turn a row-major position into an index, as `numpy.unravel_index` does, but sooner.

    Args:
        position: of an element, from 0.
        shape: without a 0.
    """
    index = []
    for size in reversed(shape):
        position, along = divmod(position, size)
        index.append(along)
    return tuple(reversed(index))


def _pieces(shape: Shape) -> Iterator[tuple[Selection, int]]:
    """Give selections of at most CHUNK_ELEMENTS elements, each with its row-major position."""
    if math.prod(shape) <= CHUNK_ELEMENTS:
        yield (...,), 0  # the Ellipsis keeps a 0-d array an array
        return
    row_elements = math.prod(shape[1:])
    if row_elements <= CHUNK_ELEMENTS:
        rows = CHUNK_ELEMENTS // row_elements
        for first in range(0, shape[0], rows):
            yield (slice(first, first + rows),), first * row_elements
        return
    for index in range(shape[0]):
        for selection, start in _pieces(shape[1:]):
            yield (index, *selection), index * row_elements + start
