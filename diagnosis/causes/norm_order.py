"""Norms of another kind than the reference's, or of another tensor."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from comparison.numerics.dtypes import Array
from diagnosis.causes.changes import with_forward
from diagnosis.causes.norm import norms_of
from diagnosis.causes.residual import known_parts, later_parts
from diagnosis.causes.trial import OutputTrial, RunTrial, Trial
from diagnosis.replay.float64_mode import LongestSum, float64_throughout

if TYPE_CHECKING:
    from diagnosis.causes.region import Region


_EXACT = 1e-4  # relative; the candidate's own rounding is below that


def trials(region: Region) -> Iterator[Trial]:
    """Take the mean off, or do not; leave the norm out."""
    for norm in norms_of(region):
        says = (
            "does not take the mean off, as an RMS norm does not"
            if norm.is_centred
            else "takes the mean off, as a layer norm does"
        )
        yield RunTrial(
            cause="norm_order",
            says=says,
            change=partial(
                with_forward, norm.module, replace(norm, is_centred=not norm.is_centred)
            ),
        )
        yield RunTrial(
            cause="norm_order",
            says="leaves the norm out",
            change=partial(with_forward, norm.module, lambda x, *args, **kwargs: x),
        )
    yield from _of_other_sums(region)


def _of_other_sums(region: Region) -> Iterator[Trial]:
    """Apply each norm of a layer to each sum of tensors that the candidate had."""
    norms = [
        (path, child)
        for path, child in region.module.named_children()
        if "norm" in path.lower() or path.startswith("ln_")
    ]
    wanted, size = region.target, float(np.sum(region.target**2))
    if not norms or not np.isfinite(wanted).all() or not size:
        return
    parts = {**known_parts(region), **later_parts(region)}
    names = [names for count in (1, 2, 3) for names in combinations(parts, count)]
    for path, norm in norms:
        for summed in names:
            given = _normed(norm, sum(parts[name] for name in summed))
            if given is None or given.shape != wanted.shape:
                break
            if float(np.sum((given - wanted) ** 2)) < _EXACT**2 * size:
                yield OutputTrial(
                    cause="norm_order",
                    says=f"computes {path} of {' + '.join(summed)}",
                    predict=partial(_constant, given),
                )
                return


def _normed(norm: Any, values: Any) -> Array | None:
    import torch

    try:
        with torch.no_grad(), float64_throughout(LongestSum()):
            given = norm.forward(torch.from_numpy(np.array(values, np.float64))[None])
    except (RuntimeError, TypeError, ValueError, IndexError, AttributeError):
        return None  # no norm of one tensor of that size
    return np.asarray(given[0].detach().cpu().numpy()) if hasattr(given, "detach") else None


def _constant(values: Array, exact: Array) -> Array:
    del exact
    return values
