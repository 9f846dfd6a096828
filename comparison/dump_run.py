"""Two open dumps: which of their tensors are pairs, and what each pair comes to."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from comparison.align.pairing import (
    Listing,
    Pairing,
    PlannedPair,
    pair_lone_files,
    pair_tensors,
)
from comparison.align.rows import Aligned, Layout, align_arrays
from comparison.align.shards import join_aligned
from comparison.chunks import skipped_tokens
from comparison.config_differences import config_differences
from comparison.known_pairs import KnownPairs
from comparison.numerics.dtypes import Array
from comparison.numerics.fused import (
    TENSOR_BYTES,
    WORTH_COMPILING_BYTES,
    WORTH_LOADING_BYTES,
    FusedKernel,
)
from comparison.numerics.metrics import measure_blocks
from comparison.pair_reader import PairReader, ReadPair
from comparison.schema.comparison import Comparison, DumpSummary, Pair, Unpaired, Unreadable
from comparison.schema.errors import BadInputError
from comparison.schema.outcome import NotComparable, Outcome, ShapeDiffers, Side
from comparison.schema.tolerance import Tolerance
from comparison.store.dump import Dump
from comparison.store.file_stamp import FileStamps
from comparison.store.mapping_guard import take_mapping_error

_FIELDS = 3  # of the configurations, that a note names
Progress = Callable[[int, int, int], None]
Look = Callable[[Pair, Aligned], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareOptions:
    """How to compare.

    Attributes:
        tolerance: what to judge by; None measures without a verdict.
        allow_reshape: compare tensors of equal element count and different shape.
        reference_engine: engine of the reference, where there is no manifest to tell.
        candidate_engine: engine of the candidate, where there is no manifest to tell.
        kernels: folder for compiled code, which large dumps are measured with; None measures all
            by NumPy.
    """

    tolerance: Tolerance | None = None
    allow_reshape: bool = False
    reference_engine: str | None = None
    candidate_engine: str | None = None
    kernels: Path | None = None


class DumpRun:
    """Two open dumps and how to compare them."""

    def __init__(
        self, reference: Dump, candidate: Dump, options: CompareOptions, look: Look | None
    ) -> None:
        self._reference, self._candidate = reference, candidate
        self._options, self._look = options, look
        self._engines = (
            _engine(reference, options.reference_engine),
            _engine(candidate, options.candidate_engine),
        )
        self._order_known = reference.order_known or candidate.order_known
        self._layouts = _layout(reference, candidate), _layout(candidate, reference)
        self._reader = PairReader(reference, candidate)
        self._known = KnownPairs(reference, candidate)
        self._kernel = _load_kernel(options.kernels, (reference, candidate))
        self.bytes_read = 0

    def pair(self) -> Pairing:
        """Find what means the same on both sides."""
        reference, candidate = self._reference, self._candidate
        lone = [d for d in (reference, candidate) if d.is_file and len(d.entries) == 1]
        if len(lone) == 2:
            return pair_lone_files(reference.entries[0], candidate.entries[0])
        listings = (
            Listing(entries=dump.entries, engine=engine, order_known=dump.order_known)
            for dump, engine in zip((reference, candidate), self._engines, strict=True)
        )
        return pair_tensors(*listings)

    def unlike_copies(self, planned: PlannedPair) -> list[PlannedPair]:
        """Plan pairs of further ranks that should hold copies of this one's, and do not."""
        return self._reader.unlike_copies(planned)

    def compare_pair(self, planned: PlannedPair) -> Pair:
        """Read, align and measure one pair; what goes wrong with it becomes its outcome.

        Raises:
            UnknownBlocksError: one side is split over ranks, and does not tell how it joins.
        """
        place = self._known.place(planned) if self._look is None else None
        known = self._known.find(place, planned)
        if known is not None:
            return known
        pair, aligned = self._compare(planned)
        error = take_mapping_error()
        if error is not None and not isinstance(pair.outcome, NotComparable):
            return replace(pair, outcome=NotComparable(reason=str(error)))
        self._known.keep(place, pair)
        if self._look is not None and aligned is not None:
            self._look(pair, aligned)
        return pair

    def _compare(self, planned: PlannedPair) -> tuple[Pair, Aligned | None]:
        """Compare one pair, as if no mapped file ever became shorter."""
        reference_shape = candidate_shape = None
        adjustments: tuple[str, ...] = ()
        aligned: Aligned | ShapeDiffers | NotComparable | None = None
        outcome: Outcome
        files = FileStamps((planned.reference.path, planned.candidate.path))
        try:
            read = self._reader.read(planned)
            reference_shape, candidate_shape = read.reference.shape, read.candidate.shape
            self.bytes_read += read.reference.nbytes + read.candidate.nbytes
            if read.problem is not None:
                outcome = read.problem
            else:
                aligned = self._align_pair(read, planned)
                outcome = self._measure(aligned)
                files.check()
                if isinstance(aligned, Aligned):
                    adjustments = (*read.note_joined(), *aligned.adjustments)
        except BadInputError as error:
            outcome = NotComparable(reason=str(error))
        except MemoryError:
            outcome = NotComparable(reason="there is not enough memory to compare it")
        pair = Pair(
            reference=planned.reference,
            candidate=planned.candidate,
            reason=planned.reason,
            outcome=outcome,
            reference_shape=reference_shape,
            candidate_shape=candidate_shape,
            adjustments=adjustments,
        )
        return pair, aligned if isinstance(aligned, Aligned) else None

    def _align_pair(
        self, read: ReadPair, planned: PlannedPair
    ) -> Aligned | ShapeDiffers | NotComparable:
        whole = self.align(read.reference, read.candidate, planned)
        if not isinstance(whole, Aligned) or read.split_by is None:
            return whole
        pieces = [self.align(*piece, planned) for piece in read.pieces]
        joined = join_aligned(whole, pieces)
        return joined if joined is not None else self._align_in_memory(read, planned)

    def _align_in_memory(
        self, read: ReadPair, planned: PlannedPair
    ) -> Aligned | ShapeDiffers | NotComparable:
        if not read.pieces:
            return NotComparable(reason="the parts of the ranks do not line up one by one")
        return self.align(*read.joined(), planned)

    def align(
        self, reference: Array, candidate: Array, planned: PlannedPair
    ) -> Aligned | ShapeDiffers | NotComparable:
        """Bring two arrays to one shape, by what both manifests say of rows.

        Args:
            reference: of any dtype, in the layout of the reference's tensor.
            candidate: the same of the candidate's.
            planned: which tensors they are of.
        """
        return align_arrays(
            reference,
            candidate,
            reference_layout=_at_step(self._layouts[0], planned.reference.step),
            candidate_layout=_at_step(self._layouts[1], planned.candidate.step),
            allow_reshape=self._options.allow_reshape,
        )

    def _measure(self, aligned: Aligned | ShapeDiffers | NotComparable) -> Outcome:
        if not isinstance(aligned, Aligned):
            return aligned
        return measure_blocks(
            aligned.blocks,
            shape=aligned.shape,
            tolerance=self._options.tolerance,
            kernel=self._kernel,
        )

    def result(self, pairs: tuple[Pair, ...], unpaired: tuple[Unpaired, ...]) -> Comparison:
        """Join everything; unpaired files that cannot be read are told apart."""
        problems = {**self._reference.problems, **self._candidate.problems}
        paired = {(Side.REFERENCE, pair.reference) for pair in pairs}
        paired |= {(Side.CANDIDATE, pair.candidate) for pair in pairs}
        by_place = {(u.side, u.entry): u for u in unpaired if (u.side, u.entry) not in paired}
        unpaired = tuple(by_place.values())
        return Comparison(
            reference=self._summary(Side.REFERENCE, self._reference, self._engines[0]),
            candidate=self._summary(Side.CANDIDATE, self._candidate, self._engines[1]),
            tolerance=self._options.tolerance,
            pairs=pairs,
            unpaired=tuple(self._told(u) for u in unpaired if u.entry not in problems),
            unreadable=tuple(
                Unreadable(side=u.side, entry=u.entry, reason=problems[u.entry])
                for u in unpaired
                if u.entry in problems
            ),
            notes=tuple(self.notes()),
            order_known=self._order_known,
        )

    def _told(self, unpaired: Unpaired) -> Unpaired:
        """Say what became of a tensor of a further rank."""
        if _in_part(self._reference) or _in_part(self._candidate):
            unpaired = replace(unpaired, is_gap=False)
        fate = self._reader.ranks[unpaired.side].fate(unpaired.entry)
        if fate is not None:
            return replace(unpaired, reason=fate, is_gap=False)
        if self._reader.ranks[unpaired.side.other].first_lacks:
            reason = f"{unpaired.reason} in its first rank, which lacks some that other ranks have"
            return replace(unpaired, reason=reason)
        return unpaired

    def _summary(self, side: Side, dump: Dump, engine: str | None) -> DumpSummary:
        lacks = self._reader.ranks[side].lacks()
        return DumpSummary(
            path=dump.path,
            engine=engine,
            tensors=len(dump.entries),
            complete=dump.complete and not lacks,
            notes=(*dump.notes, *lacks),
        )

    def notes(self) -> list[str]:
        """Say what a reader should know about the two dumps together."""
        notes = []
        for side, parts in self._reader.ranks.items():
            done = "parts were joined" if parts.joined else ""
            if parts.copies:
                done += f"{', ' if done else ''}of whole tensors the first rank's were compared"
            if parts.count > 1 and done:
                notes.append(f"the {side} has {parts.count} ranks: {done}")
            if parts.diverged:
                notes.append(
                    f"{parts.diverged} tensor(s) of the {side}'s further ranks should be copies "
                    "of the first rank's, and are not; they were compared too"
                )
        lengths = _token_ids(self._reference), _token_ids(self._candidate)
        if all(lengths) and lengths[0] != lengths[1]:
            notes.append("the two runs got different token ids: compare what they were given first")
        both = self._reference, self._candidate
        layers = _layers(self._reference), _layers(self._candidate)
        if all(layers) and layers[0] != layers[1]:
            notes.append(
                f"the reference ran {layers[0]} layer(s), the candidate {layers[1]}: dump both "
                "with the same --num-hidden-layers"
            )
        else:
            manifests = [dump.manifest for dump in both if dump.manifest is not None]
            notes += dict.fromkeys(filter(None, (found.layers_left_out for found in manifests)))
        notes += self._config_notes()
        if not self._order_known:
            notes.append("the order of execution is not known; tensors are listed by name")
        return notes

    def _config_notes(self) -> Iterator[str]:
        reference, candidate = self._reference.manifest, self._candidate.manifest
        if reference is None or candidate is None:
            return
        found = [
            f"{item.field} is {item.reference} for the reference and {item.candidate} for the "
            "candidate"
            for item in config_differences(reference.config, candidate.config)
            if item.in_both and item.field != "num_hidden_layers"
        ]
        if found:
            more = f", and {len(found) - _FIELDS} more" if len(found) > _FIELDS else ""
            yield f"the configurations differ: {'; '.join(found[:_FIELDS])}{more}"


def _layers(dump: Dump) -> int | None:
    """Return how many layers the model had, None where the dump does not say."""
    found = None if dump.manifest is None else dump.manifest.config.get("num_hidden_layers")
    return found if type(found) is int else None


def _load_kernel(folder: Path | None, dumps: tuple[Dump, Dump]) -> FusedKernel | None:
    """Load the compiled code, if the dumps are large enough to gain by it."""
    if folder is None or not _hold(dumps, WORTH_LOADING_BYTES):
        return None
    kept = FusedKernel.load(folder, compile_anew=False)
    if kept is not None or not _hold(dumps, WORTH_COMPILING_BYTES):
        return kept
    return FusedKernel.load(folder)


def _hold(dumps: tuple[Dump, Dump], least_bytes: int) -> bool:
    """Tell whether two dumps hold so much, each tensor counted as somewhat larger than it is."""
    size_bytes = sum(len(dump.entries) for dump in dumps) * TENSOR_BYTES
    if size_bytes >= least_bytes:
        return True
    for path in {entry.path for dump in dumps for entry in dump.entries}:
        with suppress(OSError):  # told where it is read
            size_bytes += path.stat().st_size
        if size_bytes >= least_bytes:
            return True
    return False


def _in_part(dump: Dump) -> bool:
    """Tell whether the user had a part of the run captured only."""
    options = {} if dump.manifest is None else dump.manifest.options
    return bool(options.get("filter")) or options.get("steps") is not None


def _engine(dump: Dump, given: str | None) -> str | None:
    """Give the engine: the manifest knows, the user says, the suffix lets one guess."""
    if dump.manifest is not None:
        return dump.manifest.engine
    return given or dump.engine


def _layout(dump: Dump, other: Dump) -> Layout:
    """Return how the rows of a dump's first step lie, as far as both manifests tell."""
    return Layout(
        padding=None if dump.manifest is None else dump.manifest.padding,
        lengths=_lengths(dump) or _lengths(other),
        step=0,
        skipped=skipped_tokens(dump),
    )


def _at_step(layout: Layout, step: int) -> Layout:
    return layout if layout.step == step else replace(layout, step=step)


def _lengths(dump: Dump) -> tuple[int, ...]:
    return tuple(len(ids) for ids in _token_ids(dump))


def _token_ids(dump: Dump) -> tuple[tuple[int, ...], ...]:
    return () if dump.manifest is None else tuple(row.token_ids for row in dump.manifest.rows)
