"""Tensors that several ranks hold in parts, and how the parts join."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from comparison.align.rows import Aligned
from comparison.numerics.blocks import CHUNK_ELEMENTS, Block
from comparison.numerics.dtypes import Array
from comparison.schema.outcome import Outcome, Shape
from comparison.schema.tensor_names import parse_tensor_name

# What each rank fuses by itself: its part holds this many blocks of one size.
_EQUAL_BLOCKS = {"gate_up_proj": 2, "act_fn": 2}
# Fused too, of blocks whose sizes a name does not tell.
_UNEQUAL_BLOCKS = ("qkv_proj", "in_proj")


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """A tensor that lies in parts, which stay in their files.

    Attributes:
        pieces: its pieces in their order along the axis, of one dtype.
        axis: what it is split along, counted from the end.
    """

    pieces: tuple[Array, ...]
    axis: int

    def stand_in(self) -> Array:
        """Give an array of the whole's shape and dtype that holds one element."""
        shape = list(self.pieces[0].shape)
        shape[self.axis] = sum(piece.shape[self.axis] for piece in self.pieces)
        return np.broadcast_to(np.zeros((), self.pieces[0].dtype), shape)

    def cut(self, whole: Array) -> tuple[Array, ...]:
        """Cut the other side's tensor where this one is split; views."""
        ends = np.cumsum([piece.shape[self.axis] for piece in self.pieces])[:-1]
        return tuple(np.split(whole, ends, axis=self.axis))


def shard_axis(whole: Shape, shard: Shape, *, ranks: int) -> int | None:
    """Find the axis that a tensor is split along.

    Args:
        whole: shape of the tensor of one process, perhaps padded: [B, S, ..., H].
        shard: shape of one rank's part, perhaps ragged: [tokens, ..., H / ranks].
        ranks: number of ranks.

    Returns:
        The axis, counted from the end; None where every rank holds the whole tensor, or the shapes
        differ otherwise. The first axis is that of rows and is never split.
    """
    axes = range(1, min(len(whole), len(shard)))
    differing = next((axis for axis in axes if whole[-axis] != shard[-axis]), None)
    if differing is None or whole[-differing] != ranks * shard[-differing]:
        return None
    return -differing


def split_of(
    name: str, shards: Sequence[Array], *, axis: int, given: Shape | None = None
) -> Split | None:
    """Say how the parts of all ranks lie one after the other.

    Args:
        name: the tensor's name, which tells of fused projections.
        shards: one part a rank, of one shape.
        axis: what they are split along, counted from the end.
        given: of an input the shape of what one rank's module gives, where that is known: what
            keeps its shape gets nothing fused.

    Returns:
        The tensor in pieces, or None where the order of its blocks is not known.
    """
    blocks = 1 if given == shards[0].shape else _blocks(name)
    if blocks is None or shards[0].shape[axis] % blocks:
        return None
    parts = [np.split(shard, blocks, axis=axis) for shard in shards]
    pieces = tuple(part[block] for block in range(blocks) for part in parts)
    return Split(pieces=pieces, axis=axis)


class JoinedBlocks(Sequence[Block]):
    """Blocks of a tensor in pieces: a stretch at a time is joined, the rest stays mapped."""

    def __init__(self, pieces: Sequence[Aligned], *, axis: int) -> None:
        """Keep what was aligned piece by piece.

        Args:
            pieces: in their order along the axis, with blocks of the same rows.
            axis: what they are joined along, counted from the end.
        """
        self._pieces, self._axis = pieces, axis

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __getitem__(self, index: int) -> Block:  # type: ignore[override]
        return next(block for at, block in enumerate(self) if at == index)

    def __iter__(self) -> Iterator[Block]:
        for blocks in zip(*(piece.blocks for piece in self._pieces), strict=True):
            width = sum(block.reference.shape[self._axis] for block in blocks)
            shape = list(blocks[0].reference.shape)
            shape[self._axis] = width
            first = blocks[0].origin * math.prod(shape[1:])
            for selection, start in _stretches(tuple(shape), len(shape) + self._axis):
                joined = [
                    np.concatenate([side[selection] for side in sides], axis=self._axis)
                    for sides in (
                        [block.reference for block in blocks],
                        [block.candidate for block in blocks],
                    )
                ]
                rows = math.prod(joined[0].shape[1:])
                yield Block(
                    reference=joined[0],
                    candidate=joined[1],
                    origin=(first + start) // rows if rows else 0,
                )


def join_aligned(whole: Aligned, pieces: Sequence[Aligned | Outcome]) -> Aligned | None:
    """Join what was aligned piece by piece.

    Args:
        whole: how the whole tensors line up; its blocks may hold a stand-in.
        pieces: how the pieces line up, in their order along the axis that they are split by. Where
            heads and tokens were swapped, that axis lies elsewhere than in the files.

    Returns:
        The whole, a stretch at a time; None where it cannot be put together so, as with as many
        heads as tokens.
    """
    fitting = [piece for piece in pieces if isinstance(piece, Aligned)]
    axes = {_axis_of_parts(whole, piece) for piece in fitting}
    axis = axes.pop() if len(axes) == 1 and len(fitting) == len(pieces) else None
    if axis is None or sum(piece.shape[axis] for piece in fitting) != whole.shape[axis]:
        return None
    blocks = JoinedBlocks(fitting, axis=axis)
    return Aligned(blocks=blocks, shape=whole.shape, adjustments=whole.adjustments)


def _axis_of_parts(whole: Aligned, piece: Aligned) -> int | None:
    """Find the one axis, counted from the end, in which a piece is smaller than the whole."""
    if len(piece.shape) != len(whole.shape) or len(piece.blocks) != len(whole.blocks):
        return None
    sizes = enumerate(zip(piece.shape, whole.shape, strict=True))
    smaller = [at - len(whole.shape) for at, (own, all_of_it) in sizes if own != all_of_it]
    return smaller[0] if len(smaller) == 1 else None


def _stretches(shape: Shape, axis: int) -> Iterator[tuple[tuple[int | slice, ...], int]]:
    """Give selections of a chunk's size from the axes before one, with their positions."""
    rest = math.prod(shape[1:])
    if axis == 0 or rest * shape[0] <= CHUNK_ELEMENTS:
        yield (), 0
    elif axis == 1 or rest <= CHUNK_ELEMENTS:
        rows = max(CHUNK_ELEMENTS // rest, 1)
        for first in range(0, shape[0], rows):
            yield (slice(first, first + rows),), first * rest
    else:
        for index in range(shape[0]):
            for selection, start in _stretches(shape[1:], axis - 1):
                yield (index, *selection), index * rest + start


def _blocks(name: str) -> int | None:
    """Count the fused blocks in one rank's part; None where their sizes are not known."""
    parsed = parse_tensor_name(name)
    if parsed is None:
        return 1
    last = parsed.module.rpartition(".")[2]
    fused_side = "input" if last == "act_fn" else "output"
    if parsed.side != fused_side:
        return 1
    return None if last in _UNEQUAL_BLOCKS else _EQUAL_BLOCKS.get(last, 1)


def shares_of_heads(whole: int, ranks: int) -> Iterator[tuple[int, int]]:
    """Give the ways in which ranks share the first axis of a token's value.

    Args:
        whole: its size.
        ranks: number of ranks.

    Yields:
        The size of one rank's part, and that every how-manieth rank holds a part of its own: with
        fewer heads of keys than ranks, several ranks hold the same head.
    """
    for copies in range(1, ranks):
        if ranks % copies == 0 and (whole * copies) % ranks == 0:
            yield whole * copies // ranks, copies


def sizes_on_rank(sizes: Sequence[int | None], total: int, *, ranks: int) -> tuple[int | None, ...]:
    """Say how large each part of a fused projection is on one rank.

    Args:
        sizes: last dimension of each whole part; None where it is not known.
        total: last dimension of one rank's fused tensor.
        ranks: number of ranks.
    """
    known = [size for size in sizes if size is not None]
    if len(known) == len(sizes) and sum(known) not in (total, ranks * total):
        first, others = known[0] // ranks, len(known) - 1
        rest = (total - first) // max(others, 1)  # heads of keys that several ranks share
        if rest > 0 and first + rest * others == total:
            return (first, *(rest,) * others)
    if sum(known) == total:
        return tuple(sizes)
    return tuple(None if size is None else size // ranks for size in sizes)
