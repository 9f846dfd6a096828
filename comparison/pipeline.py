"""Comparing two dumps: open, pair, align, measure."""

from pathlib import Path

from comparison.align.pairing import PlannedPair
from comparison.chunks import joined_chunks
from comparison.dump_run import CompareOptions, DumpRun, Look, Progress
from comparison.rank_parts import UnknownBlocksError
from comparison.schema.comparison import Comparison, Pair, Unpaired
from comparison.schema.errors import BadInputError
from comparison.schema.outcome import Side
from comparison.store.dump import Dump, open_dump
from comparison.store.mapping_guard import mappings_guarded
from comparison.store.sketch_dump import holds_sketches

__all__ = ["CompareOptions", "Look", "Progress", "compare"]


def compare(
    reference: Path,
    candidate: Path,
    options: CompareOptions | None = None,
    *,
    progress: Progress | None = None,
    look: Look | None = None,
) -> Comparison:
    """Compare two dumps, each a folder or a file.

    Args:
        reference: what is taken to be right.
        candidate: what is in question.
        options: how to compare; None measures without a verdict.
        progress: called after each pair with the number of pairs done, of all pairs, and of the
            bytes that were read of both sides.
        look: is shown each pair that was measured, with both sides as they were compared; none
            where a side holds sketches.

    Returns:
        All pairs, measured or not, and all tensors that are left over.

    Raises:
        BadInputError: a path that does not exist or holds no tensors; problems of both sides are
            in one message.
    """
    options = options or CompareOptions()
    if holds_sketches(reference) or holds_sketches(candidate):
        from comparison.sketch_comparison import compare_sketches  # few dumps need it

        return compare_sketches(reference, candidate, options, progress=progress)
    with mappings_guarded():
        return _compare_tensors(reference, candidate, options, progress=progress, look=look)


def _compare_tensors(
    reference: Path,
    candidate: Path,
    options: CompareOptions,
    *,
    progress: Progress | None,
    look: Look | None,
) -> Comparison:
    run = DumpRun(*_open_both(reference, candidate), options, look)
    pairing = run.pair()
    pairs: list[Pair] = []
    unpaired: list[Unpaired] = []
    for done, planned in enumerate(pairing.pairs, start=1):
        try:
            pairs.append(run.compare_pair(planned))
            pairs += map(run.compare_pair, run.unlike_copies(planned))
        except UnknownBlocksError:
            unpaired += _parts(planned)
        if progress is not None:
            progress(done, len(pairing.pairs), run.bytes_read)
    return run.result(tuple(pairs), (*pairing.unpaired, *unpaired))


def _open_both(reference: Path, candidate: Path) -> tuple[Dump, Dump]:
    dumps: list[Dump] = []
    problems: list[BadInputError] = []
    for path in (reference, candidate):
        try:
            dumps.append(joined_chunks(open_dump(path)))
        except BadInputError as error:
            problems.append(error)
    if len(problems) == 1:
        raise problems[0]
    if problems:
        both = zip(Side, problems, strict=True)
        raise BadInputError("; ".join(f"{side}: {problem}" for side, problem in both))
    return dumps[0], dumps[1]


def _parts(planned: PlannedPair) -> tuple[Unpaired, Unpaired]:
    """List a pair of which one side is a part as unpaired."""
    reason = "one side is split over ranks, and fused, so that the parts do not tell how they join"
    return (
        Unpaired(side=Side.REFERENCE, entry=planned.reference, reason=reason),
        Unpaired(side=Side.CANDIDATE, entry=planned.candidate, reason=reason),
    )
