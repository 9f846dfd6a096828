"""Seeks the number with which a hypothesis gives the candidate's values.

Gauss and Newton's method for one number: the residual r(v) is linearised, and v moves by
-<r, J> / <J, J>, with J from a finite difference. From a start near enough a hypothesis that is
right converges in a few steps, since nothing but rounding is left over then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from comparison.numerics.dtypes import Array

_STEP = 1e-6  # relative, of the finite difference; everything is computed in float64
_ROUNDS = 12
_WARM = 3  # rounds, after which one that is right converges fast
_SLOW = 0.5
_DONE = 1e-12  # relative change


def fitted(
    predict: Callable[[float], Array | None], target: Array, starts: Sequence[float]
) -> float | None:
    """Return the number that brings a prediction nearest to a target.

    Args:
        predict: of a number the values, shaped as the target; None where it gives none.
        target: the candidate's values.
        starts: where to begin; the best of them is refined.

    Returns:
        None where no start gives values.
    """
    scale = _square(target) or 1.0
    found = [(_distance(predict(start), target) / scale, start) for start in starts]
    best, value = min(found, default=(float("inf"), 0.0))
    if not np.isfinite(best):
        return None
    for number in range(_ROUNDS):
        moved = _moved(predict, target, value)
        if moved is None:
            break
        distance = _distance(predict(moved), target) / scale
        if not distance < best:
            break
        slow = number >= _WARM and distance > _SLOW * best
        change, value, best = abs(moved - value), moved, distance
        if slow or change <= _DONE * abs(value):
            break
    return value


def _moved(predict: Callable[[float], Array | None], target: Array, value: float) -> float | None:
    step = _STEP * (abs(value) or 1.0)
    here, there = predict(value), predict(value + step)
    if here is None or there is None:
        return None
    slope = ((there - here) / step).ravel()
    usable = np.isfinite(slope) & np.isfinite((target - here).ravel())
    square = float(slope[usable] @ slope[usable])
    if square == 0.0:
        return None
    return value + float((target - here).ravel()[usable] @ slope[usable]) / square


def _distance(values: Array | None, target: Array) -> float:
    if values is None or values.shape != target.shape:
        return float("inf")
    return _square(values - target)


def _square(values: Array) -> float:
    finite = values[np.isfinite(values)]
    return float(np.sum(finite * finite)) if finite.size else float("inf")
