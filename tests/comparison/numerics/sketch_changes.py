"""Tensors of the same values in other places, or nearly so."""

from collections.abc import Callable

import numpy as np

from comparison.numerics.dtypes import Array


def _sign_flips(values: Array) -> Array:
    changed = values.copy()
    changed[..., 1::2] *= -1  # the upper half of every word of 64 bits
    return changed


CHANGES: dict[str, Callable[[Array], Array]] = {
    "two tokens swapped": lambda values: values[:, [1, 0, *range(2, values.shape[1])]],
    "features permuted": lambda values: values[..., np.random.default_rng(1).permutation(30)],
    "rows shifted": lambda values: np.roll(values, 1, axis=1),
    "half of the signs flipped": _sign_flips,
    "one bit": lambda values: np.concatenate(
        [values[:, :-1], np.nextafter(values[:, -1:], np.float32(9))], axis=1
    ),
}
