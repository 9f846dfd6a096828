"""Reading the two tensors of a pair: parts are cut out of fused ones, those of ranks joined."""

from dataclasses import dataclass
from functools import partial

from comparison.align.fused import FusedPart, slice_of_part
from comparison.align.pairing import PlannedPair
from comparison.numerics.dtypes import Array
from comparison.rank_parts import RankParts, UnknownBlocksError
from comparison.schema.errors import BadInputError
from comparison.schema.outcome import Side
from comparison.schema.tensor_entry import TensorEntry
from comparison.store.dump import Dump


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPair:
    """Two tensors that mean the same.

    Attributes:
        reference: the reference's, perhaps a slice or joined.
        candidate: the candidate's, perhaps a slice or joined.
        joined: how parts of several ranks were joined, one sentence each.
        problem: why the part that is meant cannot be cut out; both are whole then.
    """

    reference: Array
    candidate: Array
    joined: tuple[str, ...] = ()
    problem: str | None = None


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
        return pair if pair.problem or pair.joined else self._join(pair, planned)

    def _cut(self, pair: ReadPair, planned: PlannedPair, fused: FusedPart) -> ReadPair:
        """Cut the part that is meant out of a fused tensor."""
        separate, together = Side.REFERENCE, Side.CANDIDATE
        if not fused.fused_is_candidate:
            separate, together = together, separate
        whole = pair.candidate if fused.fused_is_candidate else pair.reference
        if whole.ndim == 0:
            return _with_problem(pair, "the fused tensor is a scalar")
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
            return _with_problem(pair, place)
        taken, joined = whole[..., place], None
        if ranks.count > 1:
            entry = planned.candidate if fused.fused_is_candidate else planned.reference
            taken, joined = ranks.fused_part(entry, place)
        return ReadPair(
            reference=pair.reference if fused.fused_is_candidate else taken,
            candidate=taken if fused.fused_is_candidate else pair.candidate,
            joined=() if joined is None else (joined,),
        )

    def _join(self, pair: ReadPair, planned: PlannedPair) -> ReadPair:
        """Put together what the ranks of one side hold in parts."""
        reference, note = self.ranks[Side.REFERENCE].whole(
            planned.reference, pair.reference, shape=pair.candidate.shape
        )
        candidate, other = self.ranks[Side.CANDIDATE].whole(
            planned.candidate, pair.candidate, shape=pair.reference.shape
        )
        joined = tuple(text for text in (note, other) if text is not None)
        return ReadPair(reference=reference, candidate=candidate, joined=joined)

    @staticmethod
    def _columns(dump: Dump, entry: TensorEntry | None) -> int | None:
        if entry is None or entry in dump.problems:
            return None
        array = dump.read(entry)
        return array.shape[-1] if array.ndim else None


def _with_problem(pair: ReadPair, problem: str) -> ReadPair:
    return ReadPair(reference=pair.reference, candidate=pair.candidate, problem=problem)


def _read(dump: Dump, entry: TensorEntry) -> Array:
    if entry in dump.problems:
        raise BadInputError(dump.problems[entry])
    return dump.read(entry)
