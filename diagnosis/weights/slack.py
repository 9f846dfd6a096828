"""How far two records of one weight may be apart, where the weight was kept in two dtypes."""

from __future__ import annotations

import numpy as np

from comparison.numerics.dtypes import Array

_ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
_ROUNDINGS = 8.0  # times that; each of very many rows has to stay below


def slack_between(left: str, right: str, size: Array | float) -> Array:
    """Return what rounding explains of values of a size.

    Args:
        left: name of one side's dtype.
        right: name of the other's.
        size: of the values.
    """
    roundoff = max(_ROUNDOFF[left], _ROUNDOFF[right])
    return np.asarray(_ROUNDINGS * roundoff * np.asarray(size))


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
