"""Which key and value head each query head gets, read off what the heads gave.

A head's output depends on one key head and one value head only, so that each is tried for all query
heads at once, and each query head keeps the one that gives the candidate's values.

Legend: N heads, K heads of keys and values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from comparison.numerics.dtypes import Array
from diagnosis.causes.attention_sites import AttentionChange, changed_attention
from diagnosis.causes.scopes import Scopes, head_sizes
from diagnosis.causes.trial import RunTrial, Trial

if TYPE_CHECKING:
    import torch

    from diagnosis.causes.region import Region

_MOST_HEADS = 32  # of keys; each is run with
_WHAT = {
    "key and value heads": (True, True),
    "key heads": (True, False),
    "value heads": (False, True),
}


def head_maps(region: Region) -> Iterator[Trial]:
    """Give each query head the key head, value head or both that explain its output."""
    sizes = head_sizes(region)
    if sizes is None or region.first.floor is None or region.target.shape != region.exact.shape:
        return
    heads, groups = sizes[0], getattr(region.module, "num_key_value_groups", 1)
    if not isinstance(groups, int) or heads % groups or not 1 < heads // groups <= _MOST_HEADS:
        return
    for what, (keys, values) in _WHAT.items():
        found = _found(region, heads, groups, keys=keys, values=values)
        if found is None:
            continue
        yield RunTrial(
            cause="gqa_order",
            says=f"takes {what} {', '.join(map(str, found))} for the query heads in order",
            expects=f"it takes {', '.join(str(head // groups) for head in range(heads))}",
            change=partial(changed_attention, _change(found * groups, keys=keys, values=values)),
        )


def _found(region: Region, heads: int, groups: int, *, keys: bool, values: bool) -> Array | None:
    """Return the head for each query head, [N]; None where some have none, or all the right one."""
    scopes = Scopes(region, heads)
    own = np.arange(heads) // groups
    _, places = region.worst_call
    right = ~scopes.wrong[places].any(axis=0)
    found = np.where(right, own, -1)
    for shift in range(1, heads // groups):
        tried = (own + shift) % (heads // groups)
        explained = _explained(region, scopes, tried * groups, keys=keys, values=values)
        found = np.where((found < 0) & explained, tried, found)
        if (found >= 0).all():
            break
    return None if (found < 0).any() or np.array_equal(found, own) else found


def _explained(region: Region, scopes: Scopes, order: Array, *, keys: bool, values: bool) -> Array:
    call, places = region.worst_call
    change = _change(order, keys=keys, values=values)
    given: Mapping[str, Array] = region.values(partial(changed_attention, change), calls=[call])
    new = given.get(region.first.name)
    if new is None or new.shape != region.target[places].shape:
        return np.zeros(len(order), dtype=bool)
    return scopes.right_heads(new, places)


def _change(order: Array, *, keys: bool, values: bool) -> AttentionChange:
    def taken(x: torch.Tensor) -> torch.Tensor:
        import torch

        return x.index_select(-3, torch.as_tensor(order, device=x.device))

    return AttentionChange(
        operands=lambda q, k: (q, taken(k) if keys else k),
        values=lambda w, v: (w, taken(v) if values else v),
    )
