"""What a mask shows and hides that another does not, in words.

Legend: S queries, T keys.
"""

from __future__ import annotations

import numpy as np

from comparison.numerics.dtypes import Array

_MOST_NAMED = 4


def told(mask: Array, right: Array, there: Array) -> str:
    """Say how a mask differs from the right one.

    Args:
        mask: [S, T] booleans.
        right: the same.
        there: which keys are there when a query is computed, the same.
    """
    far = np.arange(mask.shape[0])[:, None] - np.arange(mask.shape[1])
    shown, hidden = mask & ~right, right & ~mask
    parts = [
        text
        for text in (
            _prefix(shown, right, there) or _named(shown, far, "lets queries see"),
            _named(hidden, far, "hides from queries"),
        )
        if text
    ]
    return _chunks(mask, right) or ", and ".join(parts)


def _prefix(shown: Array, right: Array, there: Array) -> str:
    """Tell a number of first tokens that all queries see."""
    keys = np.flatnonzero(shown.any(axis=0))
    if not keys.size:
        return ""
    size = int(keys.max()) + 1
    first = np.arange(shown.shape[1]) < size
    same = np.array_equal(shown, there & ~right & first)
    return f"lets all queries see the first {size} tokens" if same and size > 1 else ""


def _chunks(mask: Array, right: Array) -> str:
    queries, keys = np.arange(mask.shape[0])[:, None], np.arange(mask.shape[1])
    for size in range(2, mask.shape[1]):
        within = queries // size == keys // size
        if np.array_equal(mask, right & within) and not np.array_equal(mask, right):
            return f"lets queries see keys of their own {size} tokens only, in chunks"
        if np.array_equal(mask, right | within) and not np.array_equal(mask, right):
            return f"lets queries see all keys of their own chunk of {size} tokens"
    return ""


def _named(changed: Array, far: Array, does: str) -> str:
    if not changed.any():
        return ""
    distances = np.unique(far[changed])
    queries, keys = (np.unique(found) for found in np.nonzero(changed))
    whose = "" if len(queries) > _MOST_NAMED else f" {', '.join(map(str, queries))}"
    if len(distances) <= _MOST_NAMED and len(distances) < len(keys):
        which = ", ".join(_distance(int(distance)) for distance in distances)
        since = f", from token {queries[0]} on" if len(queries) > _MOST_NAMED else ""
        return f"{does}{whose} the key {which}{since}"
    if len(keys) <= _MOST_NAMED:
        return f"{does}{whose} the keys of tokens {', '.join(map(str, keys))}"
    return f"{does}{whose} {int(changed.sum())} keys, {_distance(int(distances[0]))} to " + (
        _distance(int(distances[-1]))
    )


def _distance(far: int) -> str:
    if far == 0:
        return "of their own token"
    return f"{abs(far)} tokens {'before' if far > 0 else 'behind'} them"
