"""A comparison as text for a console."""

from collections import Counter
from collections.abc import Iterator
from typing import assert_never

from comparison.report.names import printable
from comparison.report.unpaired_text import unpaired_lines
from comparison.schema.comparison import Comparison, DumpSummary, Finding, Pair, Verdict
from comparison.schema.estimate import Estimate, Estimated
from comparison.schema.outcome import (
    Compared,
    Extreme,
    Judged,
    KindDiffers,
    Metrics,
    NonFiniteCounts,
    NotComparable,
    NothingFinite,
    ShapeDiffers,
    Side,
)
from comparison.schema.tolerance import Tolerance

_NO_DIFFERENCE = (Finding.AGREES, Finding.MEASURED)
# As in the definition of the relative difference.
_SMALLEST_DENOMINATOR = 1e-10


def format_comparison(comparison: Comparison) -> str:
    """Write a comparison out: each pair, then what is left over, then the verdict."""
    return "\n".join(comparison_lines(comparison)) + "\n"


def comparison_lines(comparison: Comparison, *, only_differing: bool = False) -> Iterator[str]:
    """Give the lines of format_comparison one by one.

    Args:
        comparison: what was found.
        only_differing: whether pairs without a difference are counted and not listed.

    Yields:
        A line without its end.
    """
    words = side_words(comparison)
    shown = [p for p in comparison.pairs if not (only_differing and p.finding in _NO_DIFFERENCE)]
    left_out = len(comparison.pairs) - len(shown)
    more = f"; {left_out} without a difference are not listed" if left_out else ""
    yield f"Found {len(comparison.pairs)} matching tensor pair(s){more}"
    several_steps = len({pair.reference.step for pair in comparison.pairs}) > 1
    for pair in shown:
        yield ""
        yield from _pair_lines(pair, words, comparison.tolerance, several_steps=several_steps)
    yield from unpaired_lines(comparison)
    yield from _unreadable_lines(comparison)
    yield ""
    yield from _note_lines(comparison)
    yield from summary_lines(comparison)


def side_words(comparison: Comparison) -> tuple[str, str]:
    """Name the sides by their engines, or by their roles where that does not tell them apart."""
    engines = comparison.reference.engine, comparison.candidate.engine
    if not engines[0] or not engines[1] or engines[0] == engines[1]:
        return Side.REFERENCE, Side.CANDIDATE
    return printable(engines[0]), printable(engines[1])


def _pair_lines(
    pair: Pair, words: tuple[str, str], tolerance: Tolerance | None, *, several_steps: bool
) -> Iterator[str]:
    yield f"Tensor: {printable(pair.reference.name)} vs {printable(pair.candidate.name)}"
    if several_steps or pair.reference.step != pair.candidate.step:
        yield f"  Step: {_both(pair.reference.step, pair.candidate.step, words)}"
    if pair.reference.rank is not None or pair.candidate.rank is not None:
        yield f"  Rank: {_both(pair.reference.rank, pair.candidate.rank, words)}"
    if pair.reason != "same name":
        yield f"  Paired: {printable(pair.reason)}"
    if pair.reference_shape is not None and pair.candidate_shape is not None:
        shapes = f"{words[0]}{pair.reference_shape}, {words[1]}{pair.candidate_shape}"
        yield f"  Shapes: {shapes}"
    for adjustment in pair.adjustments:
        yield f"  Reshaped: {adjustment}"
    yield from (f"  {line}" for line in _outcome_lines(pair, words, tolerance))
    if pair.finding is Finding.DIFFERS:
        yield "  Differs"


def _both(reference: object, candidate: object, words: tuple[str, str]) -> str:
    if reference == candidate:
        return str(reference)
    return f"{words[0]} {reference}, {words[1]} {candidate}"


def _outcome_lines(
    pair: Pair, words: tuple[str, str], tolerance: Tolerance | None
) -> Iterator[str]:
    match pair.outcome:
        case Compared() as compared:
            yield from _compared_lines(compared, words, tolerance)
        case Estimated() as estimated:
            yield from estimate_lines(estimated, words)
        case ShapeDiffers(reason=reason):
            yield f"Shapes differ: {reason}"
        case KindDiffers() as kinds:
            names = f"{words[0]} {kinds.reference_dtype}, {words[1]} {kinds.candidate_dtype}"
            yield f"Dtypes differ in kind: {names}"
        case NotComparable(reason=reason):
            yield f"Not comparable: {printable(reason)}"
        case _:
            assert_never(pair.outcome)


def _compared_lines(
    compared: Compared, words: tuple[str, str], tolerance: Tolerance | None
) -> Iterator[str]:
    if compared.dtype_differs:
        names = f"{words[0]} {compared.reference_dtype}, {words[1]} {compared.candidate_dtype}"
        yield f"Dtypes differ: {names}"
    match compared.metrics:
        case Metrics() as metrics:
            yield from _metric_lines(metrics, tolerance)
        case NothingFinite(reason=reason):
            yield f"Nothing to measure: {reason}"
        case _:
            assert_never(compared.metrics)
    yield from non_finite_lines(compared.non_finite, words)
    if isinstance(compared.judgement, Judged):
        yield f"Mismatched elements: {mismatched(compared.judgement)}"


def estimate_lines(estimated: Estimated, words: tuple[str, str]) -> Iterator[str]:
    """Say what sketches tell of a pair, and how sure that is."""
    if estimated.certain:
        yield f"Differs for certain: {estimated.certain}"
    if estimated.identical:
        yield "Identical, by the fingerprints of both"
        return
    if estimated.reference_dtype != estimated.candidate_dtype:
        names = f"{words[0]} {estimated.reference_dtype}, {words[1]} {estimated.candidate_dtype}"
        yield f"Dtypes: {names}"
    if estimated.basis == "statistics":
        least, most = estimated.relative_l2.low, estimated.cosine.high
        bounds = f"relative L2 is at least {least:.6g}, cosine at most {most:.9g}"
        yield f"Unequal; by statistics {bounds}"
        return
    yield (
        f"Estimated relative L2: {_estimate(estimated.relative_l2)}, "
        f"cosine: {_estimate(estimated.cosine, digits=9)}"
    )


def _estimate(estimate: Estimate, *, digits: int = 3) -> str:
    low, high = (f"{end:.{digits}g}" for end in (estimate.low, estimate.high))
    return f"{estimate.value:.{digits}g} (95%: {low} to {high})"


def _metric_lines(metrics: Metrics, tolerance: Tolerance | None) -> Iterator[str]:
    absolute, relative = metrics.greatest_absolute, metrics.greatest_relative
    allowed = [""] * 2
    if tolerance is not None:
        permitted = tolerance.allowed(absolute.reference)
        allowed[0] = f" (up to {permitted:.6g} allowed)"
        permitted = tolerance.allowed(relative.reference) / max(
            abs(relative.reference), _SMALLEST_DENOMINATOR
        )
        allowed[1] = f" (up to {permitted:.6g} allowed)"
    yield f"Greatest absolute difference: {_extreme(absolute)}{allowed[0]}"
    yield f"Greatest relative difference: {_extreme(relative)}{allowed[1]}"
    yield (
        f"Mean absolute difference: {metrics.mean_absolute:.6g}, "
        f"relative L2: {metrics.relative_l2:.6g}, cosine: {metrics.cosine:.9g}"
    )
    if metrics.relative_l2:
        yield _further_metrics(metrics)


def _further_metrics(metrics: Metrics) -> str:
    row = metrics.worst_row
    parts = [f"SNR: {metrics.snr_db:.4g} dB"]
    if metrics.greatest_ulp is not None:
        parts.append(f"greatest ULP: {metrics.greatest_ulp:.6g}")
    if row.index:  # else there is one row
        parts.append(f"worst row: {row.index} with relative L2 {row.relative_l2:.6g}")
    return ", ".join(parts)


def _extreme(extreme: Extreme) -> str:
    value = str(extreme.value) if isinstance(extreme.value, int) else f"{extreme.value:.6g}"
    return f"{value} at index {extreme.index}"


def non_finite_lines(counts: NonFiniteCounts, words: tuple[str, str]) -> Iterator[str]:
    """Count NaN and infinity in a line; none where every element is finite."""
    if counts.total == 0:
        return
    meanings = {
        "nan_both": "NaN on both sides",
        "nan_reference_only": f"NaN in {words[0]} only",
        "nan_candidate_only": f"NaN in {words[1]} only",
        "inf_same_sign": "the same infinity on both sides",
        "inf_opposite_sign": "infinities of opposite sign",
        "inf_reference_only": f"infinite in {words[0]} only",
        "inf_candidate_only": f"infinite in {words[1]} only",
    }
    parts = [f"{count} {meanings[name]}" for name, count in counts.counts() if count]
    line = f"NaN and infinity: {', '.join(parts)}"
    if counts.first_difference is not None:
        line += f"; they differ first at index {counts.first_difference}"
    yield line


def mismatched(judged: Judged) -> str:
    """Give failed of total with the percentage, which is never rounded to 0 or 100."""
    share = 100 * judged.failed / judged.total if judged.total else 0.0
    text = f"{share:.1f}%"
    if 0 < judged.failed < judged.total and text in ("0.0%", "100.0%"):
        text = "<0.1%" if share < 50 else ">99.9%"
    return f"{judged.failed} / {judged.total} ({text})"


def _unreadable_lines(comparison: Comparison) -> Iterator[str]:
    if not comparison.unreadable:
        return
    yield ""
    yield f"Unreadable files without counterpart: {len(comparison.unreadable)}"
    for item in comparison.unreadable:
        yield f"  {item.side} {printable(item.entry.name)}: {printable(item.reason)}"


def _note_lines(comparison: Comparison) -> Iterator[str]:
    yield from (f"Note: {printable(note)}" for note in comparison.notes)
    for side, dump in (
        (Side.REFERENCE, comparison.reference),
        (Side.CANDIDATE, comparison.candidate),
    ):
        yield from (f"Note: {side}: {printable(note)}" for note in dump.notes)
        if not dump.complete:
            yield f"Note: {side}: this dump is partial, so the result is cut short"


def summary_lines(comparison: Comparison) -> Iterator[str]:
    """Give the last lines: counts, the verdict, and the first pair that differs."""
    unpaired = _unpaired_counts(comparison)
    yield f"Compared {comparison.compared} of {len(comparison.pairs)} pair(s); {unpaired}"
    differing = list(comparison.differing)
    yield f"Verdict: {_verdict(comparison, len(differing))}"
    if differing:
        first = differing[0]
        names = f"{printable(first.reference.name)} vs {printable(first.candidate.name)}"
        order = "in order of execution" if comparison.order_known else "by name"
        yield f"First {order}: {names} (step {first.reference.step}){_how(first)}"


def _unpaired_counts(comparison: Comparison) -> str:
    def count(side: Side, dump: DumpSummary) -> str:
        left = sum(item.side is side for item in comparison.unpaired)
        left += sum(item.side is side for item in comparison.unreadable)
        return f"{left} of {dump.tensors} in the {side}"

    reference = count(Side.REFERENCE, comparison.reference)
    return f"unpaired: {reference}, {count(Side.CANDIDATE, comparison.candidate)}"


def _verdict(comparison: Comparison, differing: int) -> str:
    tolerance = comparison.tolerance
    limits = "" if tolerance is None else f"rtol={tolerance.rtol:g}, atol={tolerance.atol:g}"
    match comparison.verdict:
        case Verdict.AGREE:
            agree = f"agree, all {comparison.compared} pair(s) are within {limits}"
            return "; ".join((agree, *_reservations(comparison)))
        case Verdict.MEASURED:
            none = "none, since no tolerance was given (--rtol, --atol)"
            return "; ".join((none, *_reservations(comparison)))
        case Verdict.DIFFER:
            kinds = Counter(_kind_of_difference(pair) for pair in comparison.differing)
            parts = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
            within = f" with {limits}" if limits else ""
            return f"differ, {differing} of {comparison.compared} pair(s){within} ({parts})"
        case Verdict.INCONCLUSIVE if comparison.compared == 0:
            return "inconclusive, nothing was compared"
        case Verdict.INCONCLUSIVE if comparison.gaps:
            none = "no difference was found but" if tolerance else "no tolerance was given, and"
            return (
                f"inconclusive, {none} {comparison.gaps} tensor(s) lack the counterpart that they "
                "should have"
            )
        case Verdict.INCONCLUSIVE if tolerance is None:
            return "inconclusive, no tolerance was given, and the result is cut short"
        case Verdict.INCONCLUSIVE if any(
            pair.finding is Finding.UNDECIDED for pair in comparison.pairs
        ):
            return f"inconclusive, sketches cannot tell whether all are within {limits}"
        case Verdict.INCONCLUSIVE:
            return "inconclusive, no difference was found but the result is cut short"
        case _:
            assert_never(comparison.verdict)


def _reservations(comparison: Comparison) -> Iterator[str]:
    """Say on what a verdict without a difference does not rest."""
    if comparison.unpaired:
        yield f"{len(comparison.unpaired)} tensor(s) have no counterpart"
    outcomes = [pair.outcome for pair in comparison.pairs]
    passed = sum(isinstance(o, Compared) and o.non_finite.total > 0 for o in outcomes)
    if passed:
        yield f"{passed} pair(s) hold NaN or infinity, alike on both sides"
    empty = len(comparison.pairs) - comparison.compared
    if empty:
        yield f"{empty} pair(s) have nothing to measure"


def _how(pair: Pair) -> str:
    if isinstance(pair.outcome, Compared) and isinstance(pair.outcome.judgement, Judged):
        return f": {_kind_of_difference(pair)}, {mismatched(pair.outcome.judgement)} elements"
    return f": {_kind_of_difference(pair)}"


def _kind_of_difference(pair: Pair) -> str:
    match pair.outcome:
        case Compared() as compared if compared.non_finite.differing:
            return "in NaN or infinity"
        case Compared(judgement=Judged(failed=failed)) if failed:
            return "beyond tolerance"
        case Estimated():
            return "for certain, by sketches"
        case Compared() | KindDiffers():
            return "in dtype"
        case _:
            return "in shape"
