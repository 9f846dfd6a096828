"""Whether watching a model changes what it computes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

GREATEST = 1e9  # stands for a number that is none on one side only


def observer_effect(watched: Iterable[Array], plain: Iterable[Array]) -> float:
    """Return how far a run with hooks is from one without.

    Args:
        watched: what the model gave while it was captured; arrays of any shape, of one count and
            the same shapes as `plain`.
        plain: what it gives on the same inputs without.

    Returns:
        The greatest absolute difference, in units of the greatest absolute value of `plain`; 0.0
        where all values are equal, and at most `GREATEST`.
    """
    return max(
        (_effect(left, right) for left, right in zip(watched, plain, strict=True)), default=0.0
    )


def measured_effect(watched: Sequence[Array], run: Callable[[], Sequence[Array]]) -> float | None:
    """Run without hooks and tell what these change.

    Args:
        watched: what the model gave while it was captured.
        run: runs it on the same inputs without hooks; a second time where the first one differs.

    Returns:
        As `observer_effect`; None where the model does not repeat itself, so that nothing can be
        told.
    """
    plain = run()
    effect = observer_effect(watched, plain)
    return None if effect and observer_effect(plain, run()) else effect


def _effect(watched: Array, plain: Array) -> float:
    if watched.shape != plain.shape:
        return GREATEST
    if np.array_equal(watched, plain, equal_nan=True):
        return 0.0
    with np.errstate(all="ignore"):
        size = np.max(np.abs(plain[np.isfinite(plain)]), initial=0.0)
        largest = np.max(np.abs(watched.astype(np.float64) - plain))
    return float(min(largest / size, GREATEST)) if np.isfinite(largest) and size else GREATEST
