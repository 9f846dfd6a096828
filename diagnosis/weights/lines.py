"""How a weight differs from the one that it should be."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from comparison.numerics.dtypes import Array
from comparison.numerics.weight_sketch import direction
from diagnosis.weights.finding import WeightKind
from diagnosis.weights.slack import root_mean_square, slack_between, slack_of_each
from diagnosis.weights.strips import same_values

_NARROW = ("float16", "bfloat16")
_PARTS = (2, 4, 8)
_ENOUGH = 32  # values, for a correlation that says something
_UNRELATED = 5.0  # standard deviations of the correlation of unrelated values
_TINY = 1e-300


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """What is known of a weight, or of a part of a fused one.

    Attributes:
        rows: projections of its rows, or the values of a vector, float64 [E, O].
        columns: of its columns, float64 [E, I]; None where they are not known.
        dtype: name of its dtype.
        width: I.
        is_vector: whether it has one dimension.
    """

    rows: Array = field(repr=False)
    columns: Array | None = field(repr=False)
    dtype: str
    width: int
    is_vector: bool

    @property
    def shape(self) -> tuple[int, ...]:
        """E, O and I."""
        return (*self.rows.shape, self.width)


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """How one weight differs from another.

    Attributes:
        kind: the kind; None where rounding explains it.
        evidence: what shows it, in words.
        offset: the number that is added to all values, where it is that.
    """

    kind: WeightKind | None
    evidence: str = ""
    offset: float | None = None


def difference(left: Lines, right: Lines) -> Difference:
    """Say how a candidate's weight differs from the reference's of one shape.

    Args:
        left: the reference's.
        right: the candidate's; its values are not the same.
    """
    tests: tuple[Callable[[Lines, Lines], Difference | None], ...] = (
        _zero, _no_numbers, _rounded, _shard, _few_rows, _permuted, _offset, _scaled, _untouched,
    )  # fmt: skip
    for test in tests:
        found = test(left, right)
        if found is not None:
            return found
    return Difference(kind=WeightKind.DIFFERENT, evidence=f"{_distance(left, right):.2g} of it")


def same_lines(left: Lines, right: Lines) -> bool:
    """Tell whether two weights of one shape have the same values."""
    return left.shape == right.shape and all(
        bool(np.all(same_values(a, b)))
        for ours, theirs in _telling(left, right)
        for a, b in zip(ours, theirs, strict=True)
    )


def _telling(left: Lines, right: Lines) -> Iterator[tuple[Array, Array]]:
    """Give the rows; and the columns, where a row is NaN whatever else it holds."""
    yield left.rows, right.rows
    hidden = not np.isfinite(left.rows).all()
    if hidden and left.columns is not None and right.columns is not None:
        yield left.columns, right.columns


def _zero(left: Lines, right: Lines) -> Difference | None:
    columns = right.columns is None or not right.columns.any()
    if right.rows.any() or not columns or not left.rows.any():
        return None
    return Difference(kind=WeightKind.MISSING, evidence="all of its values are 0")


def _no_numbers(left: Lines, right: Lines) -> Difference | None:
    """Count the rows that hold NaN or infinity on one side only."""
    odd = np.argwhere(np.isfinite(left.rows) != np.isfinite(right.rows))
    if not len(odd):
        return None
    what = "values are" if left.is_vector else "rows hold what is"
    evidence = (
        f"{len(odd)} of {left.rows.size} {what} no number, or infinite, on one side only, the "
        f"first is {int(odd[0][1])}"
    )
    return Difference(kind=WeightKind.DIFFERENT, evidence=evidence)


def _rounded(left: Lines, right: Lines) -> Difference | None:
    """Pass what another dtype, or another order of arithmetic, makes of the same values."""
    if any(_apart(*pair, left, right).any() for pair in _telling(left, right)):
        return None
    # What the dtype of both would hold, and was changed in a few rows only, was changed.
    few = np.mean(_changed(left, right)) <= 0.5 and _is_narrow(left, right)
    return None if few else Difference(kind=None)


def _shard(left: Lines, right: Lines) -> Difference | None:
    pairs = [("rows", left.rows, right.rows)]
    if left.columns is not None and right.columns is not None:
        pairs.append(("columns", left.columns, right.columns))
    for what, ours, theirs in pairs:
        for parts in _PARTS:
            if _repeats(ours, theirs, parts):
                evidence = f"its {what} are one of {parts} parts of the reference's, {parts} times"
                return Difference(kind=WeightKind.DUPLICATED_SHARD, evidence=evidence)
    return None


def _repeats(ours: Array, theirs: Array, parts: int) -> bool:
    size = theirs.shape[1] // parts
    if size < 2 or theirs.shape[1] % parts or ours.shape != theirs.shape:
        return False
    pieces = theirs.reshape(len(theirs), parts, size)
    own = ours.reshape(len(ours), parts, size)
    if not np.all(same_values(pieces, pieces[:, :1])) or np.all(same_values(own, own[:, :1])):
        return False
    held = [bool(np.all(same_values(own[:, part], pieces[:, 0]))) for part in range(parts)]
    return any(held) and bool(np.ptp(pieces[:, 0]) > 0)


def _permuted(left: Lines, right: Lines) -> Difference | None:
    """Tell the values of a vector in another order; rows of a matrix are found one by one."""
    if not left.is_vector or not np.ptp(left.rows):
        return None
    if not np.all(same_values(np.sort(left.rows[0]), np.sort(right.rows[0]))):
        return None
    moved = int(np.count_nonzero(~same_values(left.rows[0], right.rows[0])))
    evidence = f"{moved} of {left.rows.size} values are elsewhere"
    return Difference(kind=WeightKind.PERMUTED_ROWS, evidence=evidence)


def _offset(left: Lines, right: Lines) -> Difference | None:
    """Find one number that is added to all values."""
    total = 1.0 if left.is_vector else float(direction(left.width).sum())
    if np.ptp(left.rows) == 0:  # then any constant would do
        return None
    change = (right.rows - left.rows) / total
    added = float(np.mean(change))
    slack = (_slacks(left, right) + _slack(left, right, added * total)) / abs(total)
    if not np.all(np.abs(change - added) <= slack) or abs(added) <= slack.min():
        return None
    return Difference(
        kind=WeightKind.OFFSET, evidence=f"{added:.6g} is added to all values", offset=added
    )


def _scaled(left: Lines, right: Lines) -> Difference | None:
    factor = float(np.sum(left.rows * right.rows)) / max(float(np.sum(left.rows**2)), _TINY)
    rest = right.rows - factor * left.rows
    if not np.all(np.abs(rest) <= _slacks(left, right) * max(abs(factor), 1.0)):
        return None
    if abs(factor) * root_mean_square(left.rows) <= 1e-3 * root_mean_square(right.rows):
        return None
    return Difference(
        kind=WeightKind.SCALED, evidence=f"all values are {factor:.6g} times as great"
    )


def _few_rows(left: Lines, right: Lines) -> Difference | None:
    """Count the rows that differ, where most do not."""
    changed = np.argwhere(_changed(left, right))
    if not len(changed) or 2 * len(changed) > left.rows.size:
        return None
    what = "values" if left.is_vector else "rows"
    matrix, row = changed[0]
    of = f" of matrix {int(matrix)}" if len(left.rows) > 1 else ""
    evidence = f"{len(changed)} of {left.rows.size} {what} differ, the first is {int(row)}{of}"
    return Difference(kind=WeightKind.DIFFERENT, evidence=evidence)


def _untouched(left: Lines, right: Lines) -> Difference | None:
    """Tell values that have nothing to do with the reference's."""
    if right.is_vector and np.ptp(right.rows) == 0 and np.ptp(left.rows) > 0:
        value = float(right.rows.flat[0])
        evidence = f"all of its values are {value:.6g}, as a model is made"
        return Difference(kind=WeightKind.UNTOUCHED, evidence=evidence)
    if left.rows.size < _ENOUGH or not np.isfinite(right.rows).all():
        return None
    likeness = _correlation(left.rows, right.rows, centred=left.is_vector)
    if abs(likeness) * np.sqrt(left.rows.size) > _UNRELATED:
        return None
    evidence = (
        f"its values have nothing to do with the reference's: a correlation of {likeness:.2g} over "
        f"{left.rows.size} rows"
    )
    return Difference(kind=WeightKind.UNTOUCHED, evidence=evidence)


def _changed(left: Lines, right: Lines) -> Array:
    """Tell the rows that differ, by more than rounding where the dtypes do; bool [E, O]."""
    if _is_narrow(left, right):
        pairs = zip(left.rows, right.rows, strict=True)
        return np.array([~same_values(a, b) for a, b in pairs])
    return _apart(left.rows, right.rows, left, right)


def _is_narrow(left: Lines, right: Lines) -> bool:
    return left.dtype == right.dtype and left.dtype in _NARROW


def _apart(ours: Array, theirs: Array, left: Lines, right: Lines) -> Array:
    """Tell what is apart by more than rounding; the same NaN is not."""
    slack = slack_of_each(left.dtype, right.dtype, ours)
    return ~np.isclose(ours, theirs, rtol=0, atol=slack, equal_nan=True)


def _slacks(left: Lines, right: Lines) -> Array:
    return slack_of_each(left.dtype, right.dtype, left.rows)


def _slack(left: Lines, right: Lines, size: float) -> float:
    return float(slack_between(left.dtype, right.dtype, abs(size)))


def _correlation(left: Array, right: Array, *, centred: bool) -> float:
    a, b = (values - values.mean() if centred else values for values in (left, right))
    return float(np.sum(a * b)) / max(float(np.linalg.norm(a) * np.linalg.norm(b)), _TINY)


def _distance(left: Lines, right: Lines) -> float:
    return float(np.linalg.norm(left.rows - right.rows)) / max(
        float(np.linalg.norm(left.rows)), _TINY
    )
