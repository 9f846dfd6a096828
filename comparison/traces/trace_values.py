"""Compares one value of two traces: all of a tensor where both hold it, else what both tell."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest

from comparison.numerics.dtypes import Array, dtype_name
from comparison.numerics.metrics import measure
from comparison.schema.outcome import Compared, Judged, KindDiffers, Metrics, Shape, ShapeDiffers
from comparison.schema.tolerance import Tolerance
from comparison.traces.shown_numbers import ShownNumber, numbers_in
from comparison.traces.traced_call import TracedTensor, TracedValue
from comparison.traces.whole_tensor import numbers_of, statistics_of


def difference_of(
    reference: TracedValue, candidate: TracedValue, tolerance: Tolerance
) -> str | None:
    """Say how two values differ, None where they do not.

    Args:
        reference: what is taken to be right.
        candidate: what is in question.
        tolerance: what is allowed.

    Raises:
        BadInputError: the file of a tensor cannot be read.
    """
    if isinstance(reference, str) or isinstance(candidate, str):
        if reference == candidate:
            return None
        return f"{_shown(reference)} against {_shown(candidate)}"
    if reference.has_loose_shape or candidate.has_loose_shape:
        reference, candidate = _without_leading_ones(reference), _without_leading_ones(candidate)
    if reference.load is not None and candidate.load is not None:
        return _measured(reference.load(), candidate.load(), tolerance)
    return _compare_told(_Told.of(reference), _Told.of(candidate), tolerance)


def has_other_rows(reference: TracedValue, candidate: TracedValue) -> bool:
    """Tell tensors of two engines that are not of the same tokens, so that they tell nothing.

    Engines put the rows of a batch behind one another, and go on with the last token alone.
    """
    if isinstance(reference, str) or isinstance(candidate, str):
        return False
    if not (reference.has_loose_shape or candidate.has_loose_shape):
        return False
    shapes = [_stripped(_shape_of(tensor)) for tensor in (reference, candidate)]
    return shapes[0] != shapes[1] and _shape_of(reference)[-1:] == _shape_of(candidate)[-1:]


def is_mask_of_one_side(name: str, reference: TracedValue, candidate: TracedValue) -> bool:
    """Tell a mask that one side has and the other leaves to its attention's own code."""
    values = (reference, candidate)
    has_tensor = any(isinstance(value, TracedTensor) for value in values)
    return "mask" in name and has_tensor and "None" in values


def _shape_of(tensor: TracedTensor) -> Shape:
    if tensor.shape is not None:
        return tensor.shape
    assert tensor.load is not None
    return tuple(tensor.load().shape)


def _without_leading_ones(tensor: TracedTensor) -> TracedTensor:
    """Take a tensor as rows: engines make one sequence of a batch of one, or not."""
    load = tensor.load
    return replace(
        tensor,
        shape=None if tensor.shape is None else _stripped(tensor.shape),
        load=None if load is None else partial(_load_stripped, load),
    )


def _load_stripped(load: Callable[[], Array]) -> Array:
    array = load()
    return array.reshape(_stripped(array.shape))


def _stripped(shape: Shape) -> Shape:
    kept = next((place for place, size in enumerate(shape) if size != 1), len(shape))
    return tuple(shape[kept:])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Told:
    """What is known of a tensor.

    Attributes:
        shape: its dimensions.
        dtype: its name.
        text: how it was printed, None where the trace does not say.
        statistics: by name.
        numbers: all of its numbers, or those shown; None where they are not known.
    """

    shape: Shape | None
    dtype: str
    text: str | None
    statistics: Callable[[], Mapping[str, ShownNumber]]
    numbers: Callable[[], Iterator[ShownNumber] | None]

    @classmethod
    def of(cls, tensor: TracedTensor) -> _Told:
        if tensor.load is not None:
            array = tensor.load()
            return cls(
                shape=tuple(array.shape),
                dtype=dtype_name(array.dtype),
                text=None,
                statistics=partial(statistics_of, array),
                numbers=partial(numbers_of, array),
            )
        text = tensor.text
        return cls(
            shape=tensor.shape,
            dtype=tensor.dtype,
            text=text,
            statistics=lambda: tensor.statistics,
            numbers=lambda: None if text is None else numbers_in(text),
        )


def _shown(value: TracedValue) -> str:
    if isinstance(value, str):
        return f"{value:.60}"
    told = _Told.of(value)
    shape = "" if told.shape is None else f" {list(told.shape)}"
    return f"a tensor{shape} of {told.dtype}"


def _measured(reference: Array, candidate: Array, tolerance: Tolerance) -> str | None:
    outcome = measure(reference, candidate, tolerance=tolerance)
    match outcome:
        case ShapeDiffers(reason=reason):
            return f"shape {reason}"
        case KindDiffers():
            return f"dtype {outcome.reference_dtype} against {outcome.candidate_dtype}"
        case Compared(judgement=Judged(failed=failed, total=total)) if failed:
            text = f"{failed} of {total} elements differ"
            if isinstance(outcome.metrics, Metrics):
                text += f", greatest absolute difference {_extreme(outcome.metrics)}"
            return text
    if outcome.dtype_differs:
        return f"dtype {outcome.reference_dtype} against {outcome.candidate_dtype}"
    return None


def _extreme(metrics: Metrics) -> str:
    greatest = metrics.greatest_absolute
    return f"{greatest.value:.6g} at index {greatest.index}"


def _compare_told(reference: _Told, candidate: _Told, tolerance: Tolerance) -> str | None:
    """Compare what both sides tell: shape, dtype, statistics, and numbers."""
    if reference.shape != candidate.shape:
        return f"shape {reference.shape} against {candidate.shape}"
    if reference.dtype != candidate.dtype and not _both_integers(reference.dtype, candidate.dtype):
        return f"dtype {reference.dtype} against {candidate.dtype}"
    by_statistics = _statistics_differ(reference.statistics(), candidate.statistics(), tolerance)
    same_text = reference.text is not None and reference.text == candidate.text
    if by_statistics is not None or same_text:
        return by_statistics
    return _numbers_differ(reference, candidate, tolerance)


def _both_integers(reference: str, candidate: str) -> bool:
    return all(name.startswith(("int", "uint")) for name in (reference, candidate))


def _statistics_differ(
    reference: Mapping[str, ShownNumber],
    candidate: Mapping[str, ShownNumber],
    tolerance: Tolerance,
) -> str | None:
    # Where each element moves by rtol of itself, mean and deviation move by rtol of the greatest.
    ends = [abs(reference[name].value) for name in ("min", "max") if name in reference]
    greatest = max((end for end in ends if math.isfinite(end)), default=0.0)
    found = []
    for name in reference.keys() & candidate.keys():
        left, right = reference[name], candidate[name]
        scale = max(greatest, abs(left.value) if math.isfinite(left.value) else 0.0)
        if not _close(left, right, tolerance.allowed(scale), tolerance):
            found.append(f"{name} {left.value:.6g} against {right.value:.6g}")
    return ", ".join(sorted(found)) or None


def _numbers_differ(reference: _Told, candidate: _Told, tolerance: Tolerance) -> str | None:
    """Compare number by number; a text may show millions of them, so none is kept."""
    exact = not reference.dtype.startswith(("float", "bfloat"))
    allowed: Callable[[float], float] = _nothing if exact else partial(_allowed, tolerance)
    total = failed = 0
    greatest = math.nan
    for a, b in zip_longest(reference.numbers() or (None,), candidate.numbers() or (None,)):
        if a is None or b is None:  # a text that is abbreviated tells nothing of a whole tensor
            texts = reference.text is not None and candidate.text is not None
            return "the texts differ" if texts else None
        total += 1
        if a is not b and not _close(a, b, allowed(a.value), tolerance):
            failed += 1
            apart = abs(b.value - a.value)
            greatest = apart if failed == 1 else max(greatest, apart)
    if not failed:
        return None
    return f"{failed} of {total} numbers shown differ, greatest absolute difference {greatest:.6g}"


def _nothing(_value: float) -> float:
    return 0.0


def _allowed(tolerance: Tolerance, value: float) -> float:
    return tolerance.allowed(value) if math.isfinite(value) else 0.0


def _close(
    reference: ShownNumber, candidate: ShownNumber, allowed: float, tolerance: Tolerance
) -> bool:
    """Compare numbers that were rounded when they were shown.

    Without a tolerance numbers of equal precision must be the same.
    """
    left, right = reference.value, candidate.value
    if not (math.isfinite(left) and math.isfinite(right)):
        return left == right or (math.isnan(left) and math.isnan(right))
    exact = tolerance.rtol == 0 and tolerance.atol == 0
    same_unit = reference.unit == candidate.unit
    unit = 0.0 if exact and same_unit else reference.unit + candidate.unit
    return abs(right - left) <= allowed + unit
