"""Comparing two dumps: open, pair, align, measure."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from comparison.align.fused import FusedPart, slice_of_part
from comparison.align.pairing import (
    Listing,
    Pairing,
    PlannedPair,
    pair_lone_files,
    pair_tensors,
)
from comparison.align.rows import Aligned, Layout, align_arrays
from comparison.numerics.dtypes import Array
from comparison.numerics.metrics import measure_blocks
from comparison.schema.comparison import Comparison, DumpSummary, Pair, Unpaired, Unreadable
from comparison.schema.errors import BadInputError
from comparison.schema.manifest import Padding
from comparison.schema.outcome import NotComparable, Outcome, ShapeDiffers, Side
from comparison.schema.tensor_entry import TensorEntry
from comparison.schema.tolerance import Tolerance
from comparison.store.dump import Dump, open_dump

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareOptions:
    """How to compare.

    Attributes:
        tolerance: what to judge by; None measures without a verdict.
        allow_reshape: compare tensors of equal element count and different shape.
        reference_engine: engine of the reference, where there is no manifest to tell.
        candidate_engine: engine of the candidate, where there is no manifest to tell.
    """

    tolerance: Tolerance | None = None
    allow_reshape: bool = False
    reference_engine: str | None = None
    candidate_engine: str | None = None


def compare(
    reference: Path,
    candidate: Path,
    options: CompareOptions | None = None,
    *,
    progress: Progress | None = None,
) -> Comparison:
    """Compare two dumps, each a folder or a file.

    Args:
        reference: what is taken to be right.
        candidate: what is in question.
        options: how to compare; None measures without a verdict.
        progress: called with the number of pairs done and of all pairs after each pair.

    Returns:
        All pairs, measured or not, and all tensors that are left over.

    Raises:
        BadInputError: a path that does not exist or holds no tensors; problems of both sides are
            in one message.
    """
    options = options or CompareOptions()
    run = _Run(*_open_both(reference, candidate), options)
    pairing = run.pair()
    pairs = []
    for done, planned in enumerate(pairing.pairs, start=1):
        pairs.append(run.compare_pair(planned))
        if progress is not None:
            progress(done, len(pairing.pairs))
    return run.result(tuple(pairs), pairing.unpaired)


def _open_both(reference: Path, candidate: Path) -> tuple[Dump, Dump]:
    dumps: list[Dump] = []
    problems: list[BadInputError] = []
    for path in (reference, candidate):
        try:
            dumps.append(open_dump(path))
        except BadInputError as error:
            problems.append(error)
    if len(problems) == 1:
        raise problems[0]
    if problems:
        both = zip(Side, problems, strict=True)
        raise BadInputError("; ".join(f"{side}: {problem}" for side, problem in both))
    return dumps[0], dumps[1]


class _Run:
    """Two open dumps and how to compare them."""

    def __init__(self, reference: Dump, candidate: Dump, options: CompareOptions) -> None:
        self._reference, self._candidate = reference, candidate
        self._options = options
        self._engines = (
            _engine(reference, options.reference_engine),
            _engine(candidate, options.candidate_engine),
        )
        self._order_known = reference.order_known or candidate.order_known

    def pair(self) -> Pairing:
        reference, candidate = self._reference, self._candidate
        lone = [d for d in (reference, candidate) if d.is_file and len(d.entries) == 1]
        if len(lone) == 2:
            return pair_lone_files(reference.entries[0], candidate.entries[0])
        listings = (
            Listing(entries=dump.entries, engine=engine, order_known=dump.order_known)
            for dump, engine in zip((reference, candidate), self._engines, strict=True)
        )
        return pair_tensors(*listings)

    def compare_pair(self, planned: PlannedPair) -> Pair:
        """Read, align and measure one pair; what goes wrong with it becomes its outcome."""
        reference_shape = candidate_shape = None
        adjustments: tuple[str, ...] = ()
        outcome: Outcome
        try:
            reference = self._read(self._reference, planned.reference)
            candidate = self._read(self._candidate, planned.candidate)
            reference_shape, candidate_shape = reference.shape, candidate.shape
            taken = self._take_part(reference, candidate, planned.fused)
            if isinstance(taken, str):
                outcome = ShapeDiffers(reason=taken)
            else:
                reference_shape, candidate_shape = taken[0].shape, taken[1].shape
                aligned = self._align(taken[0], taken[1], planned)
                outcome = self._measure(aligned)
                adjustments = aligned.adjustments if isinstance(aligned, Aligned) else ()
        except BadInputError as error:
            outcome = NotComparable(reason=str(error))
        return Pair(
            reference=planned.reference,
            candidate=planned.candidate,
            reason=planned.reason,
            outcome=outcome,
            reference_shape=reference_shape,
            candidate_shape=candidate_shape,
            adjustments=adjustments,
        )

    @staticmethod
    def _read(dump: Dump, entry: TensorEntry) -> Array:
        if entry in dump.problems:
            raise BadInputError(dump.problems[entry])
        return dump.read(entry)

    def _take_part(
        self, reference: Array, candidate: Array, fused: FusedPart | None
    ) -> tuple[Array, Array] | str:
        if fused is None:
            return reference, candidate
        separate = self._reference if fused.fused_is_candidate else self._candidate
        whole = candidate if fused.fused_is_candidate else reference
        sizes = [self._columns(separate, part) for part in fused.parts]
        if whole.ndim == 0:
            return "the fused tensor is a scalar"
        place = slice_of_part(sizes, fused.position, whole.shape[-1])
        if isinstance(place, str):
            return place
        taken = whole[..., place]
        return (reference, taken) if fused.fused_is_candidate else (taken, candidate)

    def _columns(self, dump: Dump, entry: TensorEntry | None) -> int | None:
        if entry is None or entry in dump.problems:
            return None
        array = dump.read(entry)
        return array.shape[-1] if array.ndim else None

    def _align(
        self, reference: Array, candidate: Array, planned: PlannedPair
    ) -> Aligned | ShapeDiffers | NotComparable:
        lengths = _lengths(self._reference), _lengths(self._candidate)
        return align_arrays(
            reference,
            candidate,
            reference_layout=Layout(
                padding=_padding(self._reference),
                lengths=lengths[0] or lengths[1],
                step=planned.reference.step,
            ),
            candidate_layout=Layout(
                padding=_padding(self._candidate),
                lengths=lengths[1] or lengths[0],
                step=planned.candidate.step,
            ),
            allow_reshape=self._options.allow_reshape,
        )

    def _measure(self, aligned: Aligned | ShapeDiffers | NotComparable) -> Outcome:
        if not isinstance(aligned, Aligned):
            return aligned
        return measure_blocks(
            aligned.blocks, shape=aligned.shape, tolerance=self._options.tolerance
        )

    def result(self, pairs: tuple[Pair, ...], unpaired: tuple[Unpaired, ...]) -> Comparison:
        """Join everything; unpaired files that cannot be read are told apart."""
        problems = {**self._reference.problems, **self._candidate.problems}
        return Comparison(
            reference=_summary(self._reference, self._engines[0]),
            candidate=_summary(self._candidate, self._engines[1]),
            tolerance=self._options.tolerance,
            pairs=pairs,
            unpaired=tuple(u for u in unpaired if u.entry not in problems),
            unreadable=tuple(
                Unreadable(side=u.side, entry=u.entry, reason=problems[u.entry])
                for u in unpaired
                if u.entry in problems
            ),
            notes=tuple(self._notes()),
            order_known=self._order_known,
        )

    def _notes(self) -> list[str]:
        notes = []
        lengths = _token_ids(self._reference), _token_ids(self._candidate)
        if all(lengths) and lengths[0] != lengths[1]:
            notes.append("the two runs got different token ids: compare what they were given first")
        if not self._order_known:
            notes.append("the order of execution is not known; tensors are listed by name")
        return notes


def _engine(dump: Dump, given: str | None) -> str | None:
    """Give the engine: the manifest knows, the user says, the suffix lets one guess."""
    if dump.manifest is not None:
        return dump.manifest.engine
    return given or dump.engine


def _summary(dump: Dump, engine: str | None) -> DumpSummary:
    return DumpSummary(
        path=dump.path,
        engine=engine,
        tensors=len(dump.entries),
        complete=dump.complete,
        notes=dump.notes,
    )


def _lengths(dump: Dump) -> tuple[int, ...]:
    return tuple(len(ids) for ids in _token_ids(dump))


def _token_ids(dump: Dump) -> tuple[tuple[int, ...], ...]:
    return () if dump.manifest is None else tuple(row.token_ids for row in dump.manifest.rows)


def _padding(dump: Dump) -> Padding | None:
    return None if dump.manifest is None else dump.manifest.padding
