"""Whether watching a model changes what it computes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What a run without hooks told of one with hooks.

    Attributes:
        effect: as `observer_effect`, of the run with hooks against one without.
        noise: the same of two runs without; 0.0 where the effect is, since one run is enough then.
        same_bits: whether the signs of zeros and the kinds of NaN are equal too.
    """

    effect: float
    noise: float
    same_bits: bool

    @property
    def told(self) -> float | None:
        """The effect, None where the model does not repeat itself, so that nothing can be told."""
        return None if self.noise else self.effect


def observed(watched: Sequence[Array], run: Callable[[], Sequence[Array]]) -> Observation:
    """Run without hooks and tell what these change.

    Args:
        watched: what the model gave while it was captured.
        run: runs it on the same inputs without hooks; a second time where the first one differs.
    """
    plain = run()
    effect = observer_effect(watched, plain)
    return Observation(
        effect=effect,
        noise=observer_effect(plain, run()) if effect else 0.0,
        same_bits=all(_same_bits(left, right) for left, right in zip(watched, plain, strict=True)),
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
    return observed(watched, run).told


def _same_bits(left: Array, right: Array) -> bool:
    return left.dtype == right.dtype and left.tobytes() == right.tobytes()


def _effect(watched: Array, plain: Array) -> float:
    if watched.shape != plain.shape:
        return GREATEST
    if np.array_equal(watched, plain, equal_nan=True):
        return 0.0
    with np.errstate(all="ignore"):
        size = np.max(np.abs(plain[np.isfinite(plain)]), initial=0.0)
        largest = np.max(np.abs(watched.astype(np.float64) - plain))
    return float(min(largest / size, GREATEST)) if np.isfinite(largest) and size else GREATEST
