"""How far two records of one weight may be apart, where its values were rounded on the way."""

from __future__ import annotations

import numpy as np

from comparison.numerics.dtypes import Array

_ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
# Times that; each of very many rows has to stay below.
_ROUNDINGS = 8.0  # kept in two dtypes, each of which may have been made out of a third one
_ROUNDINGS_OF_ONE = 3.0  # kept in one, and rounded by other code


def slack_between(left: str, right: str, size: Array | float) -> Array:
    """Return what rounding explains of values of a size.

    Args:
        left: name of one side's dtype.
        right: name of the other's.
        size: of the values.
    """
    roundoff = max(_ROUNDOFF[left], _ROUNDOFF[right])
    roundings = _ROUNDINGS_OF_ONE if left == right else _ROUNDINGS
    return np.asarray(roundings * roundoff * np.asarray(size))


def slack_of_each(left: str, right: str, values: Array) -> Array:
    """Return what rounding explains of each value: a row may be far greater than most.

    Args:
        left: name of one side's dtype.
        right: name of the other's.
        values: projections of rows, or the values of a vector, any shape.
    """
    own = np.where(np.isfinite(values), np.abs(values), 0.0)
    return slack_between(left, right, np.maximum(own, root_mean_square(values)))


def root_mean_square(values: Array) -> float:
    """Return the root mean square of the numbers among values, 0 where there are none."""
    finite = values[np.isfinite(values)]
    return float(np.sqrt(np.mean(finite**2))) if finite.size else 0.0
