"""Partial sums of ranks that were never added up."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from diagnosis.causes.changes import with_parameter
from diagnosis.causes.leaf import matrix_of
from diagnosis.causes.trial import RunTrial, Trial

if TYPE_CHECKING:
    from diagnosis.causes.region import Region

_RANKS = (2, 4, 8)


def trials(region: Region) -> Iterator[Trial]:
    """Sum over one rank's input channels only."""
    import torch

    matrix = matrix_of(region)
    if matrix is None or matrix.is_embedding:
        return
    columns = matrix.values.shape[1]
    for ranks in _RANKS:
        if columns % ranks:
            continue
        size = columns // ranks
        for rank in range(ranks):
            kept = torch.zeros_like(matrix.values)
            own = slice(rank * size, (rank + 1) * size)
            kept[:, own] = matrix.values[:, own]
            yield RunTrial(
                cause="shard",
                says=f"gives the part of rank {rank} of {ranks} and not the sum over the ranks",
                change=partial(with_parameter, matrix.module, matrix.name, matrix.stored(kept)),
            )
