"""A few numbers that tell whether two tensors hold the same values in the same order.

Each token's values are projected on seeded random directions (Johnson and Lindenstrauss: distances
survive such a projection), so that permuted values are not taken for equal, as sums would.

Legend: n positions, F values of one position.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from comparison.numerics.directions import directions
from comparison.numerics.dtypes import Array

_DIRECTIONS = 16
_MOST_POSITIONS = 64  # of a row; more say no more
_MOST_VALUES = 1 << 18  # of a position: the logits of the largest vocabularies
_TINY = 1e-30
_ROUNDING = 1e-12  # of a projection, relative to the greatest


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """A tensor's projection.

    Attributes:
        positions: token positions, int64 [n].
        values: float64 [n, 16].
    """

    positions: Array
    values: Array

    @property
    def is_constant(self) -> bool:
        """Whether all positions, more than one, hold the same values."""
        # A product of matrices may round one row otherwise than the next.
        with np.errstate(invalid="ignore"):
            rounding = _ROUNDING * np.abs(self.values).max(initial=0.0)
            alike = np.abs(self.values - self.values[:1]) <= rounding
        return len(self.values) > 1 and bool(alike.all())


@dataclass(frozen=True, slots=True, kw_only=True)
class Likeness:
    """How alike two tensors are at the positions that both have.

    Attributes:
        distance: relative L2 distance.
        cosine: of the angle between them.
    """

    distance: float
    cosine: float


def fingerprint(positions: Array, values: Array) -> Fingerprint:
    """Project the values of one row.

    Args:
        positions: token positions, int64 [n].
        values: [n, ...], any dtype; a complex value is two, its real and imaginary part. Of more
            than 2^18 values a position the first ones count.
    """
    kept = slice(0, _MOST_POSITIONS)
    plain = np.asarray(values[kept])
    if plain.ndim > 0 and plain.size > _MOST_VALUES * len(plain):
        plain = plain.reshape(len(plain), -1)[:, :_MOST_VALUES]
    if plain.dtype.kind == "c":
        plain = np.stack([plain.real, plain.imag], axis=-1)
    flat = plain.astype(np.float64).reshape(len(positions[kept]), -1)
    with np.errstate(invalid="ignore", over="ignore"):
        projected = flat @ _directions(flat.shape[1])
    return Fingerprint(positions=np.asarray(positions[kept]), values=projected)


def likeness(left: Fingerprint, right: Fingerprint) -> Likeness | None:
    """Compare two projections; None where they share no position or hold no numbers."""
    shared, mine, theirs = np.intersect1d(left.positions, right.positions, return_indices=True)
    if shared.size == 0:
        return None
    a, b = left.values[mine], right.values[theirs]
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        return None
    norms = float(np.linalg.norm(a)), float(np.linalg.norm(b))
    return Likeness(
        distance=float(np.linalg.norm(a - b)) / max(*norms, _TINY),
        cosine=float(np.sum(a * b)) / max(norms[0] * norms[1], _TINY),
    )


@lru_cache(maxsize=16)
def _directions(size: int) -> Array:
    return np.asarray(directions(size, _DIRECTIONS).T / np.sqrt(_DIRECTIONS))
