"""A guilty linear layer or embedding as one product, so that another weight is tried quickly.

Legend: n positions, O rows of the weight that are looked at, I channels of the input.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from comparison.numerics.dtypes import Array
from diagnosis.causes.leaf import Matrix, bias_of, matrix_of

if TYPE_CHECKING:
    from diagnosis.causes.region import Region

_MOST_ROWS = 64  # of a weight, to see whether a hypothesis is worth a whole run
_LEAST_ERROR = 1e-4  # relative
_OF_BOUND = 20.0  # times what rounding explains


@dataclass(frozen=True, slots=True, kw_only=True)
class Linear:
    """What a linear layer multiplies, y = factor * x W^T + bias, or looks up.

    Attributes:
        matrix: the weight and whose it is.
        weight: the same as an array, [out, I].
        inputs: [n, I]; of an embedding the rows that are looked up, [n].
        bias: [out], or 0.
        factor: what the module multiplies by; 1 but for embeddings.
        target: the candidate's values less the bias, over the factor, [n, out].
        tolerance: greatest relative error of a hypothesis that is worth a run.
    """

    matrix: Matrix
    weight: Array
    inputs: Array
    bias: Array
    factor: float
    target: Array
    tolerance: float

    @property
    def rows(self) -> Array:
        """Rows of the weight to look at first, [O]."""
        if self.matrix.is_embedding:
            return np.unique(self.inputs)
        count = len(self.weight)
        if count <= _MOST_ROWS:
            return np.arange(count)
        return np.unique(np.linspace(0, count - 1, _MOST_ROWS).astype(int))

    def product(self, values: Array, rows: Array | None = None) -> Array:
        """Multiply the inputs by some rows of a weight, [O, I], or look them up among these."""
        if not self.matrix.is_embedding:
            return self.inputs @ values.T
        return values[self.inputs if rows is None else np.searchsorted(rows, self.inputs)]

    def wanted(self, rows: Array) -> Array:
        """Return what the product with these rows is to be."""
        return self.target if self.matrix.is_embedding else self.target[:, rows]

    def output(self, values: Array, shape: tuple[int, ...]) -> Array:
        """Return what the module gives with a whole other weight, [out, I]."""
        return (self.factor * self.product(values) + self.bias).reshape(shape)

    def fits(self, predicted: Array, wanted: Array) -> bool:
        """Tell whether a prediction is near enough to be worth a run."""
        return error_of(predicted, wanted) < self.tolerance


def linear_of(region: Region) -> Linear | None:
    """Return the guilty module's product, None where it is no product."""
    matrix, excess = matrix_of(region), region.first.excess
    if matrix is None or excess is None or not np.isfinite(region.target).all():
        return None
    inputs = region.token_ids if matrix.is_embedding else region.linear_inputs
    weight = np.asarray(matrix.values.cpu().numpy(), dtype=np.float64)
    if inputs is None or not len(inputs):
        return None
    outputs = weight.shape[1] if matrix.is_embedding else len(weight)
    if region.exact.size != len(inputs) * outputs:
        return None
    if not matrix.is_embedding and inputs.shape[1] != weight.shape[1]:
        return None
    bias = bias_of(region)
    shift = np.zeros(()) if bias is None or matrix.is_embedding else np.asarray(bias, np.float64)
    plain = weight[inputs] if matrix.is_embedding else inputs @ weight.T
    exact = region.exact.reshape(plain.shape) - shift
    square = float(np.sum(plain * plain))
    factor = float(np.sum(plain * exact)) / square if square else 0.0
    if not factor or error_of(plain * factor, exact) > _LEAST_ERROR:
        return None
    return Linear(
        matrix=matrix,
        weight=weight,
        inputs=inputs,
        bias=shift,
        factor=factor,
        target=(region.target.reshape(plain.shape) - shift) / factor,
        tolerance=max(_LEAST_ERROR, _OF_BOUND * excess.bound),
    )


def error_of(predicted: Array, wanted: Array) -> float:
    """Return the root mean square of the error, relative to what is wanted."""
    size = float(np.sum(wanted * wanted))
    return float(np.sqrt(np.sum((predicted - wanted) ** 2) / size)) if size else float("inf")
