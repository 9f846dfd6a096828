"""Norms of another kind than the reference's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from diagnosis.causes.changes import with_forward
from diagnosis.causes.norm import norms_of
from diagnosis.causes.trial import RunTrial, Trial

if TYPE_CHECKING:
    from diagnosis.causes.region import Region


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
