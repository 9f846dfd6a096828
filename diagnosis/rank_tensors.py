"""Tensors of which several ranks hold parts, copies, or summands.

A projection that is split by its outputs leaves each rank a part of the channels: the parts lie
one after the other. One that is split by its inputs leaves each rank a summand, until the ranks
are summed up. Everything else each rank holds as a copy.

Legend: n positions, R ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from comparison.align.shards import shares_of_heads
from comparison.align.token_rows import TokenRow, Wanted
from comparison.numerics.dtypes import Array
from comparison.schema.errors import BadInputError
from comparison.schema.tensor_entry import TensorEntry
from comparison.store.dump import Dump

Rows = dict[int, TokenRow]
Cut = Callable[[Array, Wanted], Rows | None]
_OWN = "the ranks hold neither copies nor parts of it that join"


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """Which channels of a flattened token value one rank holds."""

    rank: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Together:
    """What several ranks hold, as one tensor.

    Attributes:
        rows: by number of the row.
        shares: which rank holds which channels; empty for copies and sums.
        summed: the sum over ranks, where it was not what the ranks went on with.
    """

    rows: Rows
    shares: tuple[Share, ...] = ()
    summed: Rows = field(default_factory=dict)


class RankTensors:
    """Puts what the ranks of one dump hold together.

    Attributes:
        ranks: numbers of the ranks, ascending; one or none where there is nothing to join.
        rank: the one whose copies count.
        unlike: tensors that each rank should hold a copy of, and does not.
    """

    def __init__(self, dump: Dump, *, rank: int | None) -> None:
        """Look at which ranks there are.

        Args:
            dump: the candidate's.
            rank: the one whose copies count; None for the first.
        """
        self._dump = dump
        self.ranks = sorted({entry.rank for entry in dump.entries if entry.rank is not None})
        self.rank = rank if rank is not None else (self.ranks or [0])[0]
        self.unlike: list[str] = []
        self._summands: list[tuple[tuple[Array, ...], bool]] = []  # and whether they were summed

    def join(
        self,
        name: str,
        arrays: Mapping[int, Array],
        *,
        entry: TensorEntry,
        wanted: Wanted,
        copies: Callable[[Array], Rows],
        cut: Cut,
        from_parts: Callable[[], bool],
    ) -> Together:
        """Put one step's tensor together.

        Args:
            name: the reference's.
            arrays: by rank.
            entry: the first rank's.
            wanted: what one token's value looks like in the reference.
            copies: reads a whole tensor.
            cut: reads a part of which each token's value looks another way.
            from_parts: tells whether what its module got was split over the ranks.

        Raises:
            BadInputError: the parts do not join.
        """
        if set(arrays) != set(self.ranks):
            gone = [rank for rank in self.ranks if rank not in arrays]
            raise BadInputError(f"rank {gone[0]} lacks {entry.name}")
        parts = tuple(arrays[rank] for rank in self.ranks)
        try:
            whole = copies(arrays[self.rank])
        except BadInputError:
            return self._side_by_side(parts, wanted, cut)
        if all(np.array_equal(part, parts[0]) for part in parts[1:]):
            return Together(rows=whole)
        known = next((done for held, done in self._summands if _same(held, parts)), None)
        if known is None and not (from_parts() or _one_rank_a_token(parts)):
            self.unlike.append(name)
            return Together(rows=whole)
        summed = copies(_sum(parts))
        done = self._summed_later(entry, parts) if known is None else known
        self._summands.append((parts, done))
        return Together(rows=summed) if done else Together(rows=whole, summed=summed)

    def _side_by_side(self, parts: Sequence[Array], wanted: Wanted, cut: Cut) -> Together:
        """Lay the channels of all ranks one after the other; shared heads are held more than once.

        Raises:
            BadInputError: they do not join.
        """
        count = len(parts)
        if not wanted.trailing:
            raise BadInputError(_OWN)
        first = wanted.trailing[0]
        for held, step in shares_of_heads(first, count):
            shape = Wanted(trailing=(held, *wanted.trailing[1:]))
            rows = [cut(part, shape) for part in parts]
            if any(found is None for found in rows):
                continue
            used = range(0, count, step)
            size = int(np.prod(shape.trailing))
            shares = tuple(
                Share(rank=self.ranks[rank], start=at * size, stop=(at + 1) * size)
                for at, rank in enumerate(used)
            )
            joined = [rows[rank] for rank in used]
            return Together(rows=_joined([part for part in joined if part]), shares=shares)
        raise BadInputError(_OWN)

    def _summed_later(self, entry: TensorEntry, parts: Sequence[Array]) -> bool:
        """Tell whether the ranks hold copies again of what comes next of the same shape."""
        by_rank: dict[int, dict[str, TensorEntry]] = {rank: {} for rank in self.ranks}
        for other in self._dump.entries:
            if other.step == entry.step and other.rank is not None:
                by_rank[other.rank][other.name] = other
        later = [o for o in by_rank[self.ranks[0]].values() if o.order > entry.order]
        for following in sorted(later, key=lambda other: other.order):
            peers = [by_rank[rank].get(following.name) for rank in self.ranks]
            try:
                held = tuple(self._dump.read(peer) for peer in peers if peer is not None)
            except BadInputError:  # it is listed among the dump's problems
                continue
            if len(held) < len(peers) or held[0].shape != parts[0].shape or _same(held, parts):
                continue
            return all(np.array_equal(other, held[0]) for other in held[1:])
        return False


def _same(left: Sequence[Array], right: Sequence[Array]) -> bool:
    return len(left) == len(right) and all(map(np.array_equal, left, right))


def _one_rank_a_token(parts: Sequence[Array]) -> bool:
    """Tell summands of an embedding that is split by tokens: all but one rank hold zeros."""
    filled = [np.asarray(part).astype(bool).any(axis=-1) for part in parts]
    return parts[0].ndim > 1 and bool((np.sum(filled, axis=0) <= 1).all())


def _sum(parts: Sequence[Array]) -> Array:
    """Sum in float32 and round once."""
    dtype = parts[0].dtype
    wide = np.promote_types(dtype, np.float32) if dtype.kind in "fc" else np.dtype(np.float32)
    return np.asarray(sum(part.astype(wide) for part in parts)).astype(dtype)


def _joined(parts: Sequence[Rows]) -> Rows:
    return {
        row: TokenRow(
            positions=found.positions,
            values=np.concatenate([part[row].values for part in parts], axis=1),
        )
        for row, found in parts[0].items()
    }
