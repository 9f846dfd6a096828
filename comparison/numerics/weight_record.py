"""What a dump tells of the weights that a model really ran with."""

from dataclasses import dataclass, field
from math import prod

from comparison.numerics.dtypes import Array


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightSketch:
    """One weight, told by projections of its rows and columns.

    A weight is taken as a stack of matrices: a matrix is a stack of one, experts are a stack of
    many, and more than three dimensions are flattened into the columns.

    Legend: E matrices of the stack, O rows and I columns of each.

    Attributes:
        name: as its engine names it, such as `model.layers.0.mlp.up_proj.weight`.
        dtype: name of the dtype.
        shape: dimensions.
        rows: float64 [E, O], each row's product with a fixed vector of length I; the values
            themselves of a weight of one dimension, [1, O]. None where it has no sketch.
        columns: float64 [E, I], each column's product with the fixed vector of length O. None for
            a weight of one dimension, or without a sketch.
        rms: root mean square of all values; 0 without a sketch.
        storage: number that weights which are one and the same memory have in common.
        supplied: whether the checkpoint gave the values; False where they are what the model was
            made with, None where the engine does not tell.
        unreadable: why there is no sketch; empty where there is one.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    rows: Array | None = field(default=None, repr=False)
    columns: Array | None = field(default=None, repr=False)
    rms: float = 0.0
    storage: int | None = None
    supplied: bool | None = None
    unreadable: str = ""

    @property
    def is_vector(self) -> bool:
        """Whether it has one dimension or none, so that its rows are its values."""
        return len(self.shape) < 2

    @property
    def matrix(self) -> tuple[int, int, int]:
        """E, O and I."""
        return matrix_shape(self.shape)


def matrix_shape(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Take a shape as a stack of matrices.

    Args:
        shape: any dimensions.

    Returns:
        E, O and I; I is 1 for a shape of one dimension or none.
    """
    if len(shape) < 2:
        return (1, shape[0] if shape else 1, 1)
    if len(shape) == 3:
        return (shape[0], shape[1], shape[2])
    return (1, shape[0], prod(shape[1:]))


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightRecord:
    """The weights of one run.

    Attributes:
        weights: in the engine's order, each name once.
        unread: weights that the engine was given and the model it built does not read.
    """

    weights: tuple[WeightSketch, ...]
    unread: tuple[str, ...] = ()

    def named(self) -> dict[str, WeightSketch]:
        """Return the weights by name."""
        return {weight.name: weight for weight in self.weights}
