"""Comparing dumps of which one holds sketches: pairs as ever, estimates instead of differences.

A side that holds tensors is sketched as it is read.
"""

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from comparison.align.pairing import PlannedPair
from comparison.align.rows import Aligned
from comparison.dump_run import CompareOptions, DumpRun, Progress
from comparison.numerics.dtypes import Array, dtype_of_name, kind_of
from comparison.numerics.sketch_estimate import (
    Distance,
    Rows,
    distance_of_rows,
    distance_of_statistics,
)
from comparison.numerics.sketch_judgement import proven_difference
from comparison.numerics.tensor_sketch import TensorSketch, sketch_tensor
from comparison.schema.comparison import Comparison, Pair
from comparison.schema.errors import BadInputError
from comparison.schema.estimate import Estimate, Estimated
from comparison.schema.outcome import KindDiffers, NotComparable, Outcome, Shape, Side
from comparison.schema.tensor_entry import TensorEntry
from comparison.store.dump import Dump, open_dump
from comparison.store.file_stamp import FileStamps
from comparison.store.mapping_guard import mappings_guarded
from comparison.store.sketch_dump import holds_sketches, open_sketches

_NOTE = (
    "estimated from sketches: with a tolerance only what differs for certain, and what is "
    "identical, is decided"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SketchSide:
    """One side, whose tensors are known by their sketches.

    Attributes:
        dump: what tensors there are.
        sketches: of them; None where they are read and sketched one by one.
    """

    dump: Dump
    sketches: dict[TensorEntry, TensorSketch] | None

    def sketch(self, entry: TensorEntry) -> TensorSketch:
        """Give the sketch of a tensor.

        Raises:
            BadInputError: its file cannot be read, or changes meanwhile.
        """
        if self.sketches is not None:
            return self.sketches[entry]
        files = FileStamps((entry.path,))
        sketch = sketch_tensor(self.dump.read(entry))
        files.check()
        return sketch


def open_side(path: Path) -> SketchSide:
    """Open a dump of tensors or of sketches.

    Raises:
        BadInputError: it cannot be read.
    """
    if not holds_sketches(path):
        return SketchSide(dump=open_dump(path), sketches=None)
    found = open_sketches(path)
    return SketchSide(dump=found.dump, sketches=found.sketches)


def compare_sketches(
    reference: Path,
    candidate: Path,
    options: CompareOptions | None = None,
    *,
    progress: Progress | None = None,
) -> Comparison:
    """Compare two dumps of which at least one holds sketches.

    Args:
        reference: what is taken to be right.
        candidate: what is in question.
        options: as `compare`; with a tolerance a pair differs where that is certain, agrees where
            both are identical, and is undecided else.
        progress: as `compare`.

    Raises:
        BadInputError: as `compare`.
    """
    sides: list[SketchSide] = []
    problems: list[str] = []
    for side, path in zip(Side, (reference, candidate), strict=True):
        try:
            sides.append(open_side(path))
        except BadInputError as error:
            problems.append(f"{side}: {error}")
    if problems:
        raise BadInputError("; ".join(problems))
    with mappings_guarded():
        return compare_sides(sides[0], sides[1], options or CompareOptions(), progress=progress)


def compare_sides(
    reference: SketchSide,
    candidate: SketchSide,
    options: CompareOptions,
    *,
    progress: Progress | None = None,
) -> Comparison:
    """Compare two sides that are open; see `compare_sketches`."""
    run = _SketchRun(reference, candidate, options)
    pairing = run.pair()
    pairs = []
    for done, planned in enumerate(pairing.pairs, start=1):
        pairs.append(run.compare_pair(planned))
        if progress is not None:
            progress(done, len(pairing.pairs), run.bytes_read)
    return run.result(tuple(pairs), pairing.unpaired)


class _SketchRun(DumpRun):
    """Two open dumps, at least one of sketches."""

    def __init__(
        self, reference: SketchSide, candidate: SketchSide, options: CompareOptions
    ) -> None:
        super().__init__(reference.dump, candidate.dump, options, None)
        self._sides = (reference, candidate)
        self._tolerance = options.tolerance
        manifests = reference.dump.manifest, candidate.dump.manifest
        layouts = [
            None
            if manifest is None
            else (manifest.padding, [len(r.token_ids) for r in manifest.rows])
            for manifest in manifests
        ]
        self._same_layout = layouts[0] is not None and layouts[0] == layouts[1]

    def _compare(self, planned: PlannedPair) -> tuple[Pair, None]:
        """Estimate one pair; what goes wrong with it becomes its outcome."""
        shapes: tuple[Shape | None, Shape | None] = (None, None)
        adjustments: tuple[str, ...] = ()
        outcome: Outcome
        try:
            left = self._sides[0].sketch(planned.reference)
            right = self._sides[1].sketch(planned.candidate)
            shapes = left.shape, right.shape
            outcome, adjustments = self._estimate(left, right, planned)
        except BadInputError as error:
            outcome = NotComparable(reason=str(error))
        except MemoryError:
            outcome = NotComparable(reason="there is not enough memory to compare it")
        pair = Pair(
            reference=planned.reference,
            candidate=planned.candidate,
            reason=planned.reason,
            outcome=outcome,
            reference_shape=shapes[0],
            candidate_shape=shapes[1],
            adjustments=adjustments,
        )
        return pair, None

    def notes(self) -> list[str]:
        return [*super().notes(), _NOTE]

    def _estimate(
        self, left: TensorSketch, right: TensorSketch, planned: PlannedPair
    ) -> tuple[Outcome, tuple[str, ...]]:
        if planned.fused is not None:
            reason = "a part of a fused tensor cannot be cut out of its sketch: compare full dumps"
            return NotComparable(reason=reason), ()
        if kind_of(dtype_of_name(left.dtype)) is not kind_of(dtype_of_name(right.dtype)):
            return KindDiffers(reference_dtype=left.dtype, candidate_dtype=right.dtype), ()
        whole = self.align(_stand_in(left.shape), _stand_in(right.shape), planned)
        if not isinstance(whole, Aligned):
            return whole, ()
        is_whole = _is_whole(left.shape, right.shape, whole.shape)
        identical = left.fingerprint == right.fingerprint and _same_kind_of_bytes(left, right)
        # Padding is the same then, too.
        identical &= is_whole or (self._same_layout and left.shape == right.shape)
        distance = None
        if not identical:
            distance = self._distance(left, right, planned, is_whole=is_whole)
        if isinstance(distance, NotComparable):
            return distance, whole.adjustments
        certain = proven_difference(
            left, right, distance, tolerance=self._tolerance, is_whole=is_whole or identical
        )
        estimated = Estimated(
            shape=whole.shape,
            reference_dtype=left.dtype,
            candidate_dtype=right.dtype,
            relative_l2=_exactly(0.0) if distance is None else distance.relative_l2(),
            cosine=_exactly(1.0) if distance is None else distance.cosine(),
            basis="fingerprints" if distance is None else distance.basis,
            identical=identical,
            certain=certain or _dtype_difference(left, right),
            is_judged=self._tolerance is not None,
        )
        return estimated, whole.adjustments

    def _distance(
        self, left: TensorSketch, right: TensorSketch, planned: PlannedPair, *, is_whole: bool
    ) -> Distance | NotComparable:
        if not is_whole and (left.non_finite or right.non_finite):
            return NotComparable(reason="it holds NaN or infinities, and not all rows are compared")
        if left.rows is None or right.rows is None:
            if not is_whole:
                reason = "statistics of a whole tensor do not tell of the rows that both have"
                return NotComparable(reason=reason)
            distance = distance_of_statistics(left, right)
        else:
            rows = self._rows(left, right, planned, is_whole=is_whole)
            if isinstance(rows, NotComparable):
                return rows
            distance = distance_of_rows(left, right, rows)
        if not math.isfinite(distance.reference + distance.candidate + distance.high):
            return NotComparable(reason="its values are too large for a sketch")
        return distance

    def _rows(
        self, left: TensorSketch, right: TensorSketch, planned: PlannedPair, *, is_whole: bool
    ) -> Rows | NotComparable:
        """Bring the rows of both into one order, as those of the tensors themselves."""
        assert left.rows is not None  # asked before
        assert right.rows is not None
        if left.shape[-1:] != right.shape[-1:]:
            return NotComparable(reason="rows of one side are cut otherwise than the other's")
        if left.folded or right.folded:
            if is_whole and left.folded and right.folded:
                return [(left.rows, right.rows)]
            return NotComparable(
                reason="a sketch adds up so many rows, and those of padding, or of another layout, "
                "cannot be left out again"
            )
        width = min(left.rows.shape[-1], right.rows.shape[-1])
        if is_whole:
            flat = [rows[..., :width].reshape(-1, width) for rows in (left.rows, right.rows)]
            return [(flat[0], flat[1])]
        aligned = self.align(left.rows[..., :width], right.rows[..., :width], planned)
        if not isinstance(aligned, Aligned) or aligned.shape[-1] != width:
            return NotComparable(reason="rows of one side are cut otherwise than the other's")
        return [(block.reference, block.candidate) for block in aligned.blocks]


def _stand_in(shape: Shape) -> Array:
    """Return an array of a shape that takes no memory."""
    return np.broadcast_to(np.zeros((), np.bool_), shape)


def _is_whole(left: Shape, right: Shape, aligned: Shape) -> bool:
    """Tell whether all of both is compared, in row-major order."""
    if not math.prod(left) == math.prod(right) == math.prod(aligned):
        return False
    left, right = _without_ones(left), _without_ones(right)
    # Rows of equal length: [B, S, F] is [B * S, F] in the same order.
    by_row = left[-1:] == right[-1:] and sorted((len(left), len(right))) == [2, 3]
    return left == right or by_row


def _without_ones(shape: Shape) -> Shape:
    while shape[:1] == (1,):
        shape = shape[1:]
    return shape


def _exactly(value: float) -> Estimate:
    return Estimate(value=value, low=value, high=value)


def _same_kind_of_bytes(left: TensorSketch, right: TensorSketch) -> bool:
    return left.dtype == right.dtype or (_is_integer(left) and _is_integer(right))


def _is_integer(sketch: TensorSketch) -> bool:
    return sketch.dtype.startswith(("int", "uint"))


def _dtype_difference(left: TensorSketch, right: TensorSketch) -> str:
    """Say that the precision differs, as it does where tensors are compared."""
    if _same_kind_of_bytes(left, right):
        return ""
    return f"the dtypes are {left.dtype} and {right.dtype}"
