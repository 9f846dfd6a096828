"""A square matrix that was not transposed when it was loaded, or once too often."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from diagnosis.causes.changes import with_parameter
from diagnosis.causes.leaf import matrix_of
from diagnosis.causes.trial import RunTrial, Trial

if TYPE_CHECKING:
    from diagnosis.causes.region import Region


def trials(region: Region) -> Iterator[Trial]:
    """Transpose the whole matrix; where it stacks square ones, each of these."""
    import torch

    matrix = matrix_of(region)
    if matrix is None or matrix.is_embedding:
        return
    rows, columns = matrix.values.shape
    if rows == columns:
        yield RunTrial(
            cause="transpose",
            says="multiplies by the transposed weight",
            change=partial(
                with_parameter, matrix.module, matrix.name, matrix.stored(matrix.values.T)
            ),
        )
    elif rows % columns == 0:
        each = torch.cat([part.T for part in matrix.values.split(columns)])
        yield RunTrial(
            cause="transpose",
            says=f"multiplies by the weight with each of its {rows // columns} squares transposed",
            change=partial(with_parameter, matrix.module, matrix.name, matrix.stored(each)),
        )
