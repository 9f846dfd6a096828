"""Reading the two tensors of a pair: parts are cut out of fused ones, those of ranks joined."""

from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from comparison.align.fused import FusedPart, slice_of_part
from comparison.align.pairing import PlannedPair
from comparison.align.shards import Split
from comparison.numerics.dtypes import Array
from comparison.rank_parts import Problem, RankParts, UnknownBlocksError
from comparison.schema.errors import BadInputError
from comparison.schema.outcome import ShapeDiffers, Side
from comparison.schema.tensor_entry import TensorEntry
from comparison.store.dump import Dump


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPair:
    """Two tensors that mean the same.

    Attributes:
        reference: the reference's, perhaps a slice, or a stand-in of the whole's shape.
        candidate: as reference.
        pieces: for a side that is split over ranks, both sides piece by piece.
        split_by: the rank's entry, and the axis, that the pieces are of.
        problem: why they cannot be compared; both are whole then.
    """

    reference: Array
    candidate: Array
    pieces: tuple[tuple[Array, Array], ...] = ()
    split_by: tuple[RankParts, TensorEntry, int] | None = None
    problem: Problem | None = None

    def joined(self) -> tuple[Array, Array]:
        """Copy the pieces of each side into one array."""
        axis = -1 if self.split_by is None else self.split_by[2]
        reference, candidate = zip(*self.pieces, strict=True)
        return np.concatenate(reference, axis=axis), np.concatenate(candidate, axis=axis)

    def note_joined(self) -> tuple[str, ...]:
        """Keep, and say, that the pieces were joined."""
        if self.split_by is None:
            return ()
        ranks, entry, axis = self.split_by
        return (ranks.note_joined(entry, axis),)


class PairReader:
    """Reads pairs of two dumps.

    Attributes:
        ranks: what the ranks of each side hold.
    """

    def __init__(self, reference: Dump, candidate: Dump) -> None:
        """Look at the ranks of both dumps."""
        self._dumps = {Side.REFERENCE: reference, Side.CANDIDATE: candidate}
        self.ranks = {
            Side.REFERENCE: RankParts(reference, other=candidate, read=partial(_read, reference)),
            Side.CANDIDATE: RankParts(candidate, other=reference, read=partial(_read, candidate)),
        }

    def read(self, planned: PlannedPair) -> ReadPair:
        """Read one pair.

        Args:
            planned: which tensors.

        Raises:
            BadInputError: a file cannot be read.
            UnknownBlocksError: one side is split over ranks, and does not tell how it joins.
        """
        reference = _read(self._dumps[Side.REFERENCE], planned.reference)
        candidate = _read(self._dumps[Side.CANDIDATE], planned.candidate)
        pair = ReadPair(reference=reference, candidate=candidate)
        if planned.fused is not None:
            pair = self._cut(pair, planned, planned.fused)
        return pair if pair.problem or pair.split_by else self._split(pair, planned)

    def unlike_copies(self, planned: PlannedPair) -> list[PlannedPair]:
        """Plan pairs of what further ranks hold in place of a copy of the first rank's tensor."""
        pairs = []
        for side, entry in (
            (Side.REFERENCE, planned.reference),
            (Side.CANDIDATE, planned.candidate),
        ):
            for peer in self.ranks[side].unlike(entry):
                reason = f"no copy of rank {entry.rank}'s, so it is compared too"
                changed = replace(planned, reason=reason)
                pairs.append(
                    replace(changed, reference=peer)
                    if side is Side.REFERENCE
                    else replace(changed, candidate=peer)
                )
        return pairs

    def _cut(self, pair: ReadPair, planned: PlannedPair, fused: FusedPart) -> ReadPair:
        """Cut the part that is meant out of a fused tensor."""
        separate, together = Side.REFERENCE, Side.CANDIDATE
        if not fused.fused_is_candidate:
            separate, together = together, separate
        whole = pair.candidate if fused.fused_is_candidate else pair.reference
        if whole.ndim == 0:
            return replace(pair, problem=ShapeDiffers(reason="the fused tensor is a scalar"))
        ranks = self.ranks[together]
        columns = [self._columns(self._dumps[separate], part) for part in fused.parts]
        sizes = [
            None if size is None else size * self.ranks[separate].count // ranks.count
            for size in columns
        ]
        place = slice_of_part(sizes, fused.position, whole.shape[-1])
        if isinstance(place, str):
            if ranks.count > 1:  # ranks that share kv heads hold more than their part
                raise UnknownBlocksError
            return replace(pair, problem=ShapeDiffers(reason=place))
        if ranks.count > 1:
            entry = planned.candidate if fused.fused_is_candidate else planned.reference
            return _with_split(pair, ranks.fused_part(entry, place), ranks, entry, together)
        taken = whole[..., place]
        return (
            replace(pair, candidate=taken)
            if fused.fused_is_candidate
            else replace(pair, reference=taken)
        )

    def _split(self, pair: ReadPair, planned: PlannedPair) -> ReadPair:
        """Find what the ranks of one side hold in parts."""
        for side, entry, own, other in (
            (Side.REFERENCE, planned.reference, pair.reference, pair.candidate),
            (Side.CANDIDATE, planned.candidate, pair.candidate, pair.reference),
        ):
            ranks = self.ranks[side]
            found = ranks.whole(entry, own, shape=other.shape)
            if found is not None:
                return _with_split(pair, found, ranks, entry, side)
        return pair

    @staticmethod
    def _columns(dump: Dump, entry: TensorEntry | None) -> int | None:
        if entry is None or entry in dump.problems:
            return None
        array = dump.read(entry)
        return array.shape[-1] if array.ndim else None


def _with_split(
    pair: ReadPair, found: Split | Problem, ranks: RankParts, entry: TensorEntry, side: Side
) -> ReadPair:
    """Put a split tensor in the place of the first rank's part."""
    if not isinstance(found, Split):
        return replace(pair, problem=found)
    whole = found.stand_in()
    split_by = (ranks, entry, found.axis)
    other = pair.candidate if side is Side.REFERENCE else pair.reference
    fits = other.ndim >= -found.axis and other.shape[found.axis] == whole.shape[found.axis]
    cuts = found.cut(other) if fits else ()
    if side is Side.REFERENCE:
        pieces = tuple(zip(found.pieces, cuts, strict=True)) if fits else ()
        return replace(pair, reference=whole, pieces=pieces, split_by=split_by)
    pieces = tuple(zip(cuts, found.pieces, strict=True)) if fits else ()
    return replace(pair, candidate=whole, pieces=pieces, split_by=split_by)


def _read(dump: Dump, entry: TensorEntry) -> Array:
    if entry in dump.problems:
        raise BadInputError(dump.problems[entry])
    return dump.read(entry)
