"""The tensors that several ranks hold, for holding them against a dump of one process."""

import itertools
from collections import defaultdict
from collections.abc import Callable, Sequence

import numpy as np

from comparison.align.shards import Split, shard_axis, split_of
from comparison.numerics.blocks import Block, iterate_chunks
from comparison.numerics.dtypes import Array
from comparison.schema.errors import BadInputError
from comparison.schema.outcome import NotComparable, Shape, ShapeDiffers
from comparison.schema.tensor_entry import TensorEntry
from comparison.store.dump import Dump

_Key = tuple[int, str, str | None]  # step, name, key within the file
Read = Callable[[TensorEntry], Array]
Problem = NotComparable | ShapeDiffers

_MOST_LISTED = 3
_MOST_RANKS = 20


class UnknownBlocksError(Exception):
    """Parts of a fused projection that do not tell how they join."""


class RankParts:
    """What the ranks of one dump hold of each tensor.

    Attributes:
        count: number of ranks; 1 where the dump is held against one of as many ranks, so that
            each rank is compared by itself.
        joined: number of tensors that were joined from parts.
        copies: number of tensors of which the first rank's was compared.
        first_lacks: whether other ranks hold tensors that the first rank, which is compared, lacks.
    """

    def __init__(self, dump: Dump, *, other: Dump, read: Read) -> None:
        """Look at the ranks of both dumps.

        Args:
            dump: the dump in question.
            other: what it is compared with.
            read: reads a tensor of the dump.
        """
        ranks = {entry.rank for entry in dump.entries}
        alone = {entry.rank for entry in other.entries} == {None}
        self.count = dump.promised_ranks if alone and None not in ranks else 1
        self.joined = self.copies = 0
        self._ranks = sorted(rank for rank in ranks if rank is not None)
        self._gone = next((rank for rank in range(self.count) if rank not in ranks), None)
        self._read = read
        self._entries: defaultdict[_Key, list[TensorEntry]] = defaultdict(list)
        self._held: defaultdict[int | None, set[_Key]] = defaultdict(set)  # by rank
        self._fates: dict[TensorEntry, str] = {}
        self._diverged: dict[TensorEntry, dict[TensorEntry, None]] = {}
        if self.count > 1:
            for entry in dump.entries:
                self._entries[_key(entry)].append(entry)
                self._held[entry.rank].add(_key(entry))
        self._held_by_first = self._held[self._ranks[0]] if self._entries else set()
        self.first_lacks = len(self._held_by_first) < len(self._entries)

    @property
    def diverged(self) -> int:
        """Number of tensors of further ranks that should be copies of the first rank's."""
        return sum(len(peers) for peers in self._diverged.values())

    def unlike(self, entry: TensorEntry) -> Sequence[TensorEntry]:
        """Give what further ranks hold in place of a copy of the first rank's tensor."""
        return tuple(self._diverged.get(entry, ()))

    def fate(self, entry: TensorEntry) -> str | None:
        """Say what became of a further rank's tensor, None where nothing is known."""
        if _key(entry) in self._entries and _key(entry) not in self._held_by_first:
            return f"rank {self._ranks[0]} lacks this tensor"
        return self._fates.get(entry)

    def lacks(self) -> list[str]:
        """Say which ranks lack tensors that other ranks have."""
        if self.count == 1:
            return []
        told = [f"rank {rank} lacks {text}" for rank in self._ranks if (text := self._lacks(rank))]
        further = len(told) - _MOST_RANKS
        return [*told[:_MOST_RANKS], f"{further} further ranks lack some"] if further > 0 else told

    def _lacks(self, rank: int) -> str:
        """Name the first tensors that a rank lacks, without going through all of them."""
        held = self._held[rank]
        missing = (peers[0] for key, peers in self._entries.items() if key not in held)
        return _shown(
            list(itertools.islice(missing, _MOST_LISTED)), count=len(self._entries) - len(held)
        )

    def whole(self, entry: TensorEntry, first: Array, *, shape: Shape) -> Split | Problem | None:
        """Find the parts of all ranks of a tensor, if it is split.

        Args:
            entry: the first rank's.
            first: its array.
            shape: the shape of the other dump's tensor.

        Returns:
            The tensor in pieces; or why there are none; None where the first rank's is compared.

        Raises:
            BadInputError: a part cannot be read.
            UnknownBlocksError: it is split, and the order of its blocks is not known.
        """
        if self.count == 1 or entry.rank != self._ranks[0]:
            return None
        axis = shard_axis(shape, first.shape, ranks=self.count)
        if axis is None and self._gone is not None and _may_be_part(first.shape, shape):
            part = f"{list(first.shape)} may be a part of {list(shape)}"
            return NotComparable(reason=f"rank {self._gone} is gone: {part}")
        if axis is None:
            self._check_copies(entry, first)
            return None
        shards = self._shards(entry)
        if not isinstance(shards, list):
            return shards
        split = split_of(entry.name, shards, axis=axis, given=self._given(entry))
        if split is None:
            raise UnknownBlocksError
        return split

    def _given(self, entry: TensorEntry) -> Shape | None:
        """Return the shape of what the module of an input gives, where the same rank has that."""
        module, _, side = entry.name.rpartition("-")
        if not side.startswith("input"):
            return None
        outputs = self._entries.get((entry.step, f"{module}-output", entry.key), ())
        output = next((peer for peer in outputs if peer.rank == entry.rank), None)
        try:
            return None if output is None else self._read(output).shape
        except BadInputError:  # it is told of where it is compared
            return None

    def fused_part(self, entry: TensorEntry, place: slice) -> Split | Problem:
        """Find one part of a fused projection, of which each rank holds its own.

        Args:
            entry: the first rank's fused tensor.
            place: where the part lies along the last axis of each rank's tensor.
        """
        shards = self._shards(entry)
        if not isinstance(shards, list):
            return shards
        return Split(pieces=tuple(shard[..., place] for shard in shards), axis=-1)

    def note_joined(self, entry: TensorEntry, axis: int) -> str:
        """Keep, and say, that the parts of a tensor were compared together."""
        self.joined += 1
        for peer in self._others(entry):
            self._fates[peer] = f"a part; it was compared together with that of rank {entry.rank}"
        return f"the parts of {self.count} ranks were joined along axis {axis}"

    def _shards(self, entry: TensorEntry) -> list[Array] | Problem:
        """Read every rank's part; say so where one is missing, or is unlike the first one."""
        peers = self._entries[_key(entry)]
        for peer in self._others(entry):
            self._fates[peer] = f"a part; that of rank {entry.rank} could not be compared"
        there = {peer.rank for peer in peers}
        missing = next((rank for rank in range(self.count) if rank not in there), None)
        if missing is not None:
            return NotComparable(reason=f"rank {missing} lacks {_shown([entry], count=1)}")
        if len(peers) != self.count:
            return NotComparable(reason=f"several folders hold {entry.name} of one rank")
        shards = [self._read(peer) for peer in peers]
        for peer, shard in zip(peers, shards, strict=True):
            if shard.shape != shards[0].shape:
                shapes = f"{list(shards[0].shape)}, rank {peer.rank} of {list(shard.shape)}"
                return ShapeDiffers(reason=f"rank {entry.rank} holds a part of {shapes}")
            if shard.dtype != shards[0].dtype:
                dtypes = f"{shards[0].dtype}, rank {peer.rank} of {shard.dtype}"
                return NotComparable(reason=f"rank {entry.rank} holds a part of {dtypes}")
        return shards

    def _others(self, entry: TensorEntry) -> Sequence[TensorEntry]:
        return [peer for peer in self._entries.get(_key(entry), ()) if peer is not entry]

    def _check_copies(self, entry: TensorEntry, first: Array) -> None:
        self.copies += 1
        for peer in self._others(entry):
            if self._is_copy(peer, first):
                self._fates[peer] = f"a copy of rank {entry.rank}'s, the same bit for bit"
            else:
                self._diverged.setdefault(entry, {})[peer] = None

    def _is_copy(self, peer: TensorEntry, first: Array) -> bool:
        try:
            copy = self._read(peer)
        except BadInputError:
            return False  # it becomes a pair, which says what is wrong
        return copy.shape == first.shape and _same_bytes(copy, first)


def _may_be_part(part: Shape, whole: Shape) -> bool:
    """Tell whether some number of such parts, along the last axis that differs, gives the whole."""
    sizes = zip(reversed(part[1:]), reversed(whole[1:]), strict=False)
    own, other = next(((a, b) for a, b in sizes if a != b), (1, 0))
    return 0 < own < other and other % own == 0


def _same_bytes(left: Array, right: Array) -> bool:
    """Compare two arrays of one shape bit for bit, a chunk at a time."""
    if left.dtype != right.dtype:
        return False
    chunks = iterate_chunks([Block(reference=left, candidate=right)])
    return all(np.array_equal(_bytes(c.reference), _bytes(c.candidate)) for c in chunks)


def _bytes(array: Array) -> Array:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _shown(entries: Sequence[TensorEntry], *, count: int) -> str:
    """Name the first of so many tensors."""
    named = ", ".join(f"{entry.name} of step {entry.step}" for entry in entries)
    return f"{named} and {count - len(entries)} more" if count > len(entries) else named


def _key(entry: TensorEntry) -> _Key:
    return entry.step, entry.name, entry.key
