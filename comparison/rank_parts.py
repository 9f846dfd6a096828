"""The tensors that several ranks hold, for holding them against a dump of one process."""

from collections import defaultdict
from collections.abc import Callable, Sequence

import numpy as np

from comparison.align.shards import join_shards, shard_axis
from comparison.numerics.dtypes import Array
from comparison.schema.outcome import Shape
from comparison.schema.tensor_entry import TensorEntry
from comparison.store.dump import Dump

_Key = tuple[int, str, str | None]  # step, name, key within the file
Read = Callable[[TensorEntry], Array]

_CHUNK_BYTES = 1 << 24
_DIFFERS = "no copy, and no part, of"


class UnknownBlocksError(Exception):
    """Parts of a fused projection that do not tell how they join."""


class RankParts:
    """What the ranks of one dump hold of each tensor.

    Attributes:
        count: number of ranks; 1 where the dump is held against one of as many ranks, so that
            each rank is compared by itself.
    """

    def __init__(self, dump: Dump, *, other: Dump, read: Read) -> None:
        """Look at the ranks of both dumps.

        Args:
            dump: the dump in question.
            other: what it is compared with.
            read: reads a tensor of the dump.
        """
        ranks = {entry.rank for entry in dump.entries}
        several = len(ranks) > 1 and None not in ranks
        alone = {entry.rank for entry in other.entries} == {None}
        self.count = len(ranks) if several and alone else 1
        self._read = read
        self._entries: defaultdict[_Key, list[TensorEntry]] = defaultdict(list)
        self._fates: dict[TensorEntry, str] = {}
        if self.count > 1:
            for entry in dump.entries:
                self._entries[_key(entry)].append(entry)

    @property
    def diverged(self) -> int:
        """Number of tensors of further ranks that should be copies of the first rank's."""
        return sum(fate.startswith(_DIFFERS) for fate in self._fates.values())

    def fate(self, entry: TensorEntry) -> str | None:
        """Say what became of a further rank's tensor, None where nothing is known."""
        return self._fates.get(entry)

    def whole(self, entry: TensorEntry, first: Array, *, shape: Shape) -> tuple[Array, str | None]:
        """Put a tensor together from the parts of all ranks, if it is split.

        Args:
            entry: the first rank's.
            first: its array.
            shape: the shape of the other dump's tensor.

        Returns:
            The array, and what was done to get it.

        Raises:
            UnknownBlocksError: it is split, and the order of its blocks is not known.
        """
        axis = shard_axis(shape, first.shape, ranks=self.count) if self.count > 1 else None
        if axis is None:
            self._check_copies(entry, first)
            return first, None
        shards = self._shards(entry)
        if len(shards) != self.count or any(shard.shape != first.shape for shard in shards):
            return first, None
        joined = join_shards(entry.name, shards, axis=axis)
        if joined is None:
            raise UnknownBlocksError
        return joined, self._note_joined(entry, axis)

    def fused_part(self, entry: TensorEntry, place: slice) -> tuple[Array, str]:
        """Join one part of a fused projection, of which each rank holds its own.

        Args:
            entry: the first rank's fused tensor.
            place: where the part lies along the last axis of each rank's tensor.
        """
        slices = [shard[..., place] for shard in self._shards(entry)]
        return np.concatenate(slices, axis=-1), self._note_joined(entry, -1)

    def _shards(self, entry: TensorEntry) -> list[Array]:
        return [self._read(peer) for peer in self._entries[_key(entry)]]

    def _others(self, entry: TensorEntry) -> Sequence[TensorEntry]:
        return [peer for peer in self._entries.get(_key(entry), ()) if peer.rank != entry.rank]

    def _note_joined(self, entry: TensorEntry, axis: int) -> str:
        for peer in self._others(entry):
            self._fates[peer] = f"a part; it was compared together with that of rank {entry.rank}"
        return f"the parts of {self.count} ranks were joined along axis {axis}"

    def _check_copies(self, entry: TensorEntry, first: Array) -> None:
        for peer in self._others(entry):
            copy = self._read(peer)
            same = copy.shape == first.shape and _same_bytes(copy, first)
            self._fates[peer] = (
                f"a copy of rank {entry.rank}'s, the same bit for bit"
                if same
                else f"{_DIFFERS} rank {entry.rank}'s"
            )


def _same_bytes(left: Array, right: Array) -> bool:
    """Compare two arrays of one shape bit for bit, a chunk at a time."""
    if left.dtype != right.dtype:
        return False
    one, other = (array.reshape(-1).view(np.uint8) for array in (left, right))
    chunks = (slice(at, at + _CHUNK_BYTES) for at in range(0, len(one), _CHUNK_BYTES))
    return all(np.array_equal(one[chunk], other[chunk]) for chunk in chunks)


def _key(entry: TensorEntry) -> _Key:
    return entry.step, entry.name, entry.key
