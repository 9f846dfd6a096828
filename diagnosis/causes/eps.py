"""Another epsilon in a norm, or one that is added elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from diagnosis.causes.changes import with_attributes, with_forward
from diagnosis.causes.norm import Norm, norms_of
from diagnosis.causes.trial import FittedTrial, RunTrial, Trial

if TYPE_CHECKING:
    from diagnosis.causes.region import Region

_USUAL = (1e-5, 1e-6, 1e-12, 1e-8, 1e-3, 1e-2, 1e-4, 0.0)


def trials(region: Region) -> Iterator[Trial]:
    """Take the usual numbers, then seek one."""
    for norm in norms_of(region):
        for eps in _USUAL:
            if eps != norm.eps:
                yield RunTrial(
                    cause="eps",
                    says=f"takes {eps:g} for the norm's epsilon",
                    expects=f"it is {norm.eps:g}",
                    change=partial(_with_eps, norm, eps),
                )
        yield FittedTrial(
            cause="eps",
            says="takes {value} for the norm's epsilon",
            expects=f"it is {norm.eps:g}",
            change=partial(_with_eps, norm),
            starts=(norm.eps * 10, norm.eps / 10, *_USUAL),
            neutral=norm.eps,
        )
        for eps in (norm.eps, *_USUAL):
            outside = replace(norm, eps=eps, eps_outside=True)
            yield RunTrial(
                cause="eps",
                says=f"adds an epsilon of {eps:g} to the root and not under it",
                change=partial(with_forward, norm.module, outside),
            )
        yield FittedTrial(
            cause="eps",
            says="adds an epsilon of {value} to the root and not under it",
            expects=f"it is {norm.eps:g}",
            change=partial(_outside, norm),
            starts=(norm.eps, norm.eps * 10, norm.eps * 100, *_USUAL[:-1]),
        )


def _outside(norm: Norm, eps: float) -> AbstractContextManager[None]:
    return with_forward(norm.module, replace(norm, eps=eps, eps_outside=True))


def _with_eps(norm: Norm, eps: float) -> AbstractContextManager[None]:
    if not norm.eps_name:
        return with_forward(norm.module, replace(norm, eps=eps))
    return with_attributes(norm.module, {norm.eps_name: eps})
