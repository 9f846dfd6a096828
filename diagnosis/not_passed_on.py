"""Values of a dump that nothing which comes later rests on: the dump is wrong there, not the run.

What the reference computes from the candidate's values disagrees with what the candidate has next,
and what it computes from its own values agrees. Where the difference is one of all tokens, another
weight may make up for it, as that of a norm that is folded into the next projection. Where it is
one of a few, no weight can: the values were changed after they were used, or written wrongly.
"""

from __future__ import annotations

import numpy as np

from comparison.numerics.dtypes import Array
from diagnosis.check import Check
from diagnosis.guilt import limits_of
from diagnosis.rounding import widened

NOT_PASSED_ON = "not passed on"


def damage_of(check: Check) -> str | None:
    """Say which values of a tensor differ, None where they differ in most of the positions.

    Args:
        check: a tensor that is wrong by itself, while what is computed from it is right only for
            the reference's values.
    """
    if check.floor is None or len(check.places) < 2:
        return None
    odd = _odd(check)  # [n, F]
    rows = np.flatnonzero(odd.any(axis=1))
    if not rows.size or 2 * rows.size > len(check.places):
        return None
    place = check.places[int(rows[0])]
    channel = int(np.flatnonzero(odd[rows[0]])[0])
    mine, theirs = (
        values.reshape(odd.shape)[rows[0], channel]
        for values in (widened(check.candidate), check.exact)
    )
    count = int(odd.sum())
    many = "differs," if count == 1 else "differ, the first"
    return (
        f"{count} of {odd.size} values {many} at row {place.row}, token {place.position}, channel "
        f"{channel} ({mine:.6g}, the reference has {theirs:.6g}), and "
        f"{'was' if count == 1 else 'were'} {NOT_PASSED_ON}"
    )


def _odd(check: Check) -> Array:
    """Tell the values that are off by more than rounding, bool [n, F]."""
    assert check.floor is not None  # asked for before
    error = np.abs(widened(check.candidate) - check.exact)
    beyond = error > limits_of(check).position * check.floor.whole
    return np.asarray(beyond.reshape(len(check.places), -1))
