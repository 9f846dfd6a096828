"""Which channel of the reference each channel of the candidate is equal to.

Legend: n positions, F channels.
"""

from __future__ import annotations

import numpy as np

from comparison.numerics.dtypes import Array

_LEAST_POSITIONS = 3  # two unlike channels may agree at fewer
_EQUAL = 1e-4  # relative to a channel's root mean square


def channel_map(candidate: Array, reference: Array) -> Array | None:
    """Find for each channel of the candidate an equal one of the reference.

    Args:
        candidate: [n, F].
        reference: [n, G].

    Returns:
        [F] channels of the reference, -1 where there is none; None where there are too few
        positions to tell.
    """
    if len(candidate) < _LEAST_POSITIONS or not (
        np.isfinite(candidate).all() and np.isfinite(reference).all()
    ):
        return None
    sizes = np.sqrt(np.mean(reference**2, axis=0)) + 1e-300
    found = np.full(candidate.shape[1], -1)
    seeds = np.random.default_rng(0).standard_normal(len(candidate))
    keys = seeds @ reference  # [G]
    order = np.argsort(keys)
    for channel, key in enumerate(seeds @ candidate):
        found[channel] = _nearest(candidate[:, channel], key, reference, keys, order, sizes)
    return found


def _nearest(
    values: Array, key: float, reference: Array, keys: Array, order: Array, sizes: Array
) -> int:
    """Look among the channels whose projection is nearest."""
    place = int(np.searchsorted(keys[order], key))
    near = order[max(place - 3, 0) : place + 3]
    errors = np.sqrt(np.mean((reference[:, near] - values[:, None]) ** 2, axis=0)) / sizes[near]
    best = int(np.argmin(errors))
    return int(near[best]) if errors[best] < _EQUAL else -1
