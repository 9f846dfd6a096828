"""Counting NaN and infinities by where they are."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from comparison.numerics.blocks import index_at
from comparison.numerics.dtypes import Array
from comparison.schema.outcome import NonFiniteCounts, Shape

_NONE, _NAN, _INF = 0, 1, 2


@dataclass(slots=True, kw_only=True)
class NonFiniteTally:
    """Counts that grow by chunk.

    Attributes:
        shape: the compared shape, for the index of the first difference.
    """

    shape: Shape
    _counts: dict[str, int] = field(default_factory=dict)
    _first_difference: Shape | None = None

    def add(self, *, reference: Array, candidate: Array, positions: Array) -> None:
        """Count elements of which at least one side is not finite.

        Args:
            reference: [n] float64 or complex128.
            candidate: as reference.
            positions: [n] row-major positions in the compared tensor, ascending.
        """
        reference_class, candidate_class = _classify(reference), _classify(candidate)
        with np.errstate(invalid="ignore"):  # numpy warns of complex NaN
            same_value = reference == candidate  # False for NaN, by definition
        nan_both = (reference_class == _NAN) & (candidate_class == _NAN)
        both_inf = (reference_class == _INF) & (candidate_class == _INF)
        classes = {
            "nan_both": nan_both,
            "nan_reference_only": (reference_class == _NAN) & ~nan_both,
            "nan_candidate_only": (candidate_class == _NAN) & ~nan_both,
            "inf_same_sign": both_inf & same_value,
            "inf_opposite_sign": both_inf & ~same_value,
            "inf_reference_only": (reference_class == _INF) & (candidate_class == _NONE),
            "inf_candidate_only": (candidate_class == _INF) & (reference_class == _NONE),
        }
        for name, mask in classes.items():
            self._counts[name] = self._counts.get(name, 0) + int(np.count_nonzero(mask))
        differing = ~(nan_both | classes["inf_same_sign"])
        if self._first_difference is None and differing.any():
            first = int(positions[int(np.argmax(differing))])
            self._first_difference = index_at(first, self.shape)

    def add_counts(self, counts: Sequence[int], first_difference: int | None) -> None:
        """Add what was counted elsewhere.

        Args:
            counts: of each class, in the order of `NonFiniteCounts.counts`.
            first_difference: row-major position of the first unlike element; None for none.
        """
        if not any(counts):
            return
        for (name, _), count in zip(NonFiniteCounts().counts(), counts, strict=True):
            self._counts[name] = self._counts.get(name, 0) + count
        if self._first_difference is None and first_difference is not None:
            self._first_difference = index_at(first_difference, self.shape)

    def counts(self) -> NonFiniteCounts:
        """Give the counts so far."""
        return NonFiniteCounts(**self._counts, first_difference=self._first_difference)


def _classify(values: Array) -> Array:
    """Tell finite, NaN and infinite elements apart; a complex with a NaN part is NaN."""
    classes = np.zeros(values.shape, np.uint8)
    classes[np.isinf(values)] = _INF
    classes[np.isnan(values)] = _NAN
    return classes
