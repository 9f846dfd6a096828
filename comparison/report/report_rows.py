"""The rows of a report: what is said of each pair, and of each tensor without counterpart."""

import math
from collections.abc import Collection, Iterator, Mapping
from typing import assert_never

from comparison.numerics.severity import severity_of
from comparison.report.report_model import ReportRow, RowError, RowKind, RowMetrics
from comparison.report.report_places import ModulePaths, RowIds, place_of
from comparison.report.text import estimate_lines, mismatched, non_finite_lines
from comparison.schema.comparison import Comparison, Pair, Unpaired, Unreadable
from comparison.schema.detail import TensorDetail
from comparison.schema.diagnosis import Diagnosis, Growth, Guilty
from comparison.schema.estimate import Estimated
from comparison.schema.outcome import (
    Compared,
    Judged,
    KindDiffers,
    Metrics,
    NotComparable,
    NothingFinite,
    ShapeDiffers,
    Side,
)
from comparison.schema.tensor_entry import TensorEntry
from comparison.schema.tolerance import Tolerance

Details = Mapping[tuple[TensorEntry, TensorEntry], TensorDetail]
_SMALLEST_DENOMINATOR = 1e-10  # as in the definition of the relative difference


def rows_of(
    comparison: Comparison, diagnosis: Diagnosis | None, details: Details
) -> Iterator[ReportRow]:
    """Yield a row for each pair and for each tensor that is left over.

    Args:
        comparison: of both dumps.
        diagnosis: of the candidate; None for none.
        details: of some of the pairs.
    """
    ids, paths = RowIds(), ModulePaths(comparison.pairs)
    found = _Found(diagnosis, {pair.reference.name for pair in comparison.pairs})
    for pair in comparison.pairs:
        place = place_of(pair.reference.name)
        yield ReportRow(
            id=ids.take(pair.reference, Side.REFERENCE),
            kind=RowKind.PAIR,
            reference=pair.reference.name,
            candidate=pair.candidate.name,
            module=place.module,
            leaf=place.leaf,
            step=pair.reference.step,
            rank=pair.reference.rank,
            finding=str(pair.finding),
            reason=pair.reason,
            outcome=(*pair.adjustments, *_outcome(pair)),
            shapes=(pair.reference_shape, pair.candidate_shape),
            dtypes=_dtypes(pair),
            metrics=_metrics(pair, comparison.tolerance),
            severity=severity_of(pair.outcome, comparison.tolerance),
            error=found.errors.get(pair.reference.name),
            guilty=found.guilty_phrases(pair),
            harmless=found.harmless.get(pair.reference.name, ""),
            detail=details.get((pair.reference, pair.candidate)),
        )
    left_over: list[Unpaired | Unreadable] = [*comparison.unpaired, *comparison.unreadable]
    for item in left_over:
        yield _left_over(item, ids, paths)


def replayed(diagnosis: Diagnosis | None) -> tuple[Growth, ...]:
    """Give the errors that a replay told, one a name over all steps; none without a replay."""
    growth = () if diagnosis is None else diagnosis.growth
    return growth if any(not math.isnan(item.local) for item in growth) else ()


class _Found:
    """What a diagnosis says of single tensors."""

    def __init__(self, diagnosis: Diagnosis | None, names: Collection[str]) -> None:
        self._names = names
        self._guilty = () if diagnosis is None else diagnosis.guilty
        harmless = () if diagnosis is None else diagnosis.harmless
        self.harmless = {item.tensor: item.reason for item in harmless}
        self.errors = {
            item.tensor: RowError(inherited=item.inherited, local=item.local, excess=item.excess)
            for item in replayed(diagnosis)
        }

    def guilty_phrases(self, pair: Pair) -> tuple[str, ...]:
        """Say what is wrong with a pair by itself, in the step where it first is."""
        for item in self._guilty:
            # A fused tensor of the candidate has several counterparts, not all of them guilty.
            is_known = item.tensor in self._names
            same = (
                item.tensor == pair.reference.name
                if is_known
                else item.candidate_tensor == pair.candidate.name
            )
            if same and item.spot.step == pair.reference.step:
                return tuple(_phrases(item))
        return ()


def _phrases(item: Guilty) -> Iterator[str]:
    yield f"{item.module} is wrong by itself"
    if item.between is not None:
        yield f"in its own computation, between {item.between[0]} and {item.between[1]}"
    if item.bound > 0:
        yield (
            f"local error {item.local_error:.3g}, rounding explains {item.bound:.3g}; "
            f"at the worst place {item.excess:.3g} times that"
        )
    yield from item.where
    if item.cause is not None and item.cause.id != "unknown":
        yield f"cause {item.cause.id}: {item.cause.evidence}"


def _left_over(item: Unpaired | Unreadable, ids: RowIds, paths: ModulePaths) -> ReportRow:
    is_reference = item.side is Side.REFERENCE
    name = item.entry.name
    place = place_of(name) if is_reference else paths.place(name)
    alone = RowKind.REFERENCE_ONLY if is_reference else RowKind.CANDIDATE_ONLY
    return ReportRow(
        id=ids.take(item.entry, item.side),
        kind=RowKind.UNREADABLE if isinstance(item, Unreadable) else alone,
        reference=name if is_reference else None,
        candidate=None if is_reference else name,
        module=place.module,
        leaf=place.leaf,
        step=item.entry.step,
        rank=item.entry.rank,
        finding="unpaired",
        reason=item.reason,
    )


def _outcome(pair: Pair) -> Iterator[str]:
    match pair.outcome:
        case Compared() as compared:
            if compared.dtype_differs:
                yield f"dtypes differ: {compared.reference_dtype}, {compared.candidate_dtype}"
            if isinstance(compared.metrics, NothingFinite):
                yield f"nothing to measure: {compared.metrics.reason}"
            words = (Side.REFERENCE, Side.CANDIDATE)
            yield from non_finite_lines(compared.non_finite, words)
        case Estimated() as estimated:
            yield from estimate_lines(estimated, (Side.REFERENCE, Side.CANDIDATE))
        case ShapeDiffers(reason=reason):
            yield f"shapes differ: {reason}"
        case KindDiffers() as kinds:
            yield f"dtypes differ in kind: {kinds.reference_dtype}, {kinds.candidate_dtype}"
        case NotComparable(reason=reason):
            yield f"not comparable: {reason}"
        case _:
            assert_never(pair.outcome)


def _dtypes(pair: Pair) -> tuple[str, str] | None:
    if isinstance(pair.outcome, Compared | Estimated | KindDiffers):
        return pair.outcome.reference_dtype, pair.outcome.candidate_dtype
    return None


def _metrics(pair: Pair, tolerance: Tolerance | None) -> RowMetrics | None:
    outcome = pair.outcome
    if not isinstance(outcome, Compared) or not isinstance(outcome.metrics, Metrics):
        return None
    metrics = outcome.metrics
    absolute, relative = metrics.greatest_absolute, metrics.greatest_relative
    size = max(abs(relative.reference), _SMALLEST_DENOMINATOR)
    return RowMetrics(
        elements=metrics.elements,
        absolute=absolute,
        absolute_allowed=None if tolerance is None else tolerance.allowed(absolute.reference),
        relative=relative,
        relative_allowed=None
        if tolerance is None
        else tolerance.allowed(relative.reference) / size,
        mean_absolute=metrics.mean_absolute,
        relative_l2=metrics.relative_l2,
        cosine=metrics.cosine,
        snr_db=metrics.snr_db,
        mismatched=mismatched(outcome.judgement) if isinstance(outcome.judgement, Judged) else "",
    )
