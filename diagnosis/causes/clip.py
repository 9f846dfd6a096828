"""Values that are cut off."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from diagnosis.causes.changes import with_arguments
from diagnosis.causes.trial import FittedTrial, OutputTrial, Trial

if TYPE_CHECKING:
    from diagnosis.causes.region import Region


def trials(region: Region) -> Iterator[Trial]:
    """Cut the output off where the candidate's greatest values are, then the input."""
    exact, target = region.exact, region.target
    if not np.isfinite(target).all() or region.first.excess is None:
        return
    high, low = float(target.max()), float(target.min())
    if low < high and (high < exact.max() or low > exact.min()):
        top = high if high < exact.max() else np.inf
        bottom = low if low > exact.min() else -np.inf
        yield OutputTrial(
            cause="clip",
            says=f"cuts the values off at {bottom:.6g} and {top:.6g}",
            expects=f"they reach from {exact.min():.4g} to {exact.max():.4g}",
            predict=lambda y: np.clip(y, bottom, top),
            numbers=1,
            value=top if np.isfinite(top) else bottom,
        )
    inputs = region.linear_inputs
    if inputs is not None:
        peak = float(np.abs(inputs).max())
        yield FittedTrial(
            cause="clip",
            says="cuts its input off at {value} on both sides",
            expects=f"it reaches {peak:.4g}",
            change=partial(_cut_input, region.module),
            neutral=0.0,
            starts=tuple(peak * share for share in (0.9, 0.75, 0.5, 0.35, 0.25, 0.1, 0.05)),
        )


def _cut_input(module: Any, limit: float) -> AbstractContextManager[None]:
    def cut(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return (args[0].clamp(-limit, limit), *args[1:]), kwargs

    return with_arguments(module, cut)
