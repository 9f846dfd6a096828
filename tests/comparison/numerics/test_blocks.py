"""Chunks cover every element once, in order, whatever the strides."""

import numpy as np
import pytest

from comparison.numerics.blocks import CHUNK_ELEMENTS, Block, index_at, iterate_chunks
from comparison.numerics.dtypes import Array


@pytest.mark.parametrize(
    "shape",
    [(), (0, 3), (5,), (3, 7), (2, CHUNK_ELEMENTS + 3), (2, 3, CHUNK_ELEMENTS - 1), (40_001,)],
)
@pytest.mark.parametrize("strided", [False, True])
def test_chunks_tile_a_tensor(shape: tuple[int, ...], strided: bool) -> None:
    values: Array = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    if strided and values.ndim > 1:
        values = np.asfortranarray(values)
        assert not values.size or not values.flags.c_contiguous
    position = 0
    for chunk in iterate_chunks([Block(reference=values, candidate=-values)]):
        assert chunk.start == position
        assert chunk.reference.size <= CHUNK_ELEMENTS
        assert np.shares_memory(chunk.reference, values) or not chunk.reference.size
        wanted = np.arange(position, position + chunk.reference.size)
        np.testing.assert_array_equal(chunk.reference.ravel(), wanted)
        np.testing.assert_array_equal(chunk.candidate.ravel(), -wanted)
        position += chunk.reference.size
    assert position == values.size


def test_a_later_block_begins_at_its_origin() -> None:
    values = np.asfortranarray(np.arange(2 * 40_000).reshape(2, 40_000))
    blocks = [
        Block(reference=values[row : row + 1], candidate=values[row : row + 1], origin=row)
        for row in range(2)
    ]
    for chunk in iterate_chunks(blocks):
        assert chunk.reference.ravel()[0] == chunk.start


@pytest.mark.parametrize("shape", [(), (1,), (7,), (3, 5), (2, 1, 3, 4)])
def test_positions_are_in_row_major_order(shape: tuple[int, ...]) -> None:
    for position in range(np.prod(shape, dtype=int)):
        assert index_at(position, shape) == np.unravel_index(position, shape)
