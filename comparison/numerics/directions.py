"""Fixed random directions, the same in every run and on every engine.

Gaussian vectors keep distances (Johnson and Lindenstrauss 1984), and no arrangement of values but
the very same has the same products with them.
"""

from functools import lru_cache

import numpy as np

from comparison.numerics.dtypes import Array

_SEED = 20_250_611


@lru_cache(maxsize=32)
def directions(length: int, count: int) -> Array:
    """Return fixed vectors, which depend on nothing but their length.

    The first of them do not depend on how many there are.

    Args:
        length: of each vector.
        count: how many.

    Returns:
        Standard normal values, float64 [count, length].
    """
    return np.asarray(np.random.default_rng(_SEED + length).standard_normal((count, length)))
