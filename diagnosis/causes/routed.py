"""Brings the chosen experts of a hypothesis, and their weights, into the order that is judged.

A router's weights are judged by expert: those of the candidate lie where the reference has the same
expert, and where the candidate chose another one the reference's own weight stands. A hypothesis
that chooses other experts is to be shown in the same way before it is held against them.

Legend: n tokens, K experts a token.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from comparison.numerics.dtypes import Array
from diagnosis.expert_choices import by_id, in_order_of

if TYPE_CHECKING:
    from diagnosis.check import Check


def as_judged(
    values: Mapping[str, Array], checks: Sequence[Check], rows: Sequence[int]
) -> dict[str, Array]:
    """Reorder what a hypothesis gives.

    Args:
        values: by the reference's name, [n, ...], of the places of some rows.
        checks: the tensors that are judged.
        rows: which rows ran, in order.
    """
    found = dict(values)
    for choice in checks:
        ids = values.get(choice.name)
        if choice.choice is None or ids is None:
            continue
        places = [i for row in rows for i, place in enumerate(choice.places) if place.row == row]
        right, theirs = choice.exact[places], choice.candidate[places]
        if ids.shape != right.shape:
            continue
        found[choice.name] = in_order_of(ids, theirs)
        for check in _beside(choice, checks):
            weights = values.get(check.name)
            if weights is not None and weights.shape == ids.shape:
                found[check.name] = np.asarray(
                    by_id(weights, ids, like=right, default=check.exact[places])
                )
    return found


def _beside(choice: Check, checks: Sequence[Check]) -> list[Check]:
    """List the weights that go with what was chosen."""
    prefix = choice.name.rpartition("_")[0]
    return [
        check
        for check in checks
        if check.name.rpartition("_")[0] == prefix
        and check.floor is not None
        and check.exact.shape == choice.exact.shape
    ]
