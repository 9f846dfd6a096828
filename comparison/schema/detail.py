"""One pair of tensors in small: what a page shows of it, whatever its size."""

from dataclasses import dataclass

from comparison.schema.outcome import Scalar, Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatMap:
    """The greatest absolute difference by block, over two axes.

    Attributes:
        rows: what the rows count, such as `token`.
        columns: what the columns count, such as `channel`.
        row_size: length of the axis that the rows cover.
        column_size: length of the axis that the columns cover.
        values: [r][c], r and c at most 64; infinity where a side is not finite and the other is
            something else.
    """

    rows: str
    columns: str
    row_size: int
    column_size: int
    values: tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram:
    """How the absolute differences spread, by quarters of a power of ten.

    Attributes:
        equal: number of elements without a difference.
        exponent: power of ten of the lower edge of the first bin, which holds all below as well.
        counts: one a bin, each a quarter of a power of ten wide.
    """

    equal: int
    exponent: float
    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The elements around one, over the last two axes.

    Attributes:
        row_start: index along the last axis but one of the first row; 0 where there is one axis.
        column_start: index along the last axis of the first column.
        reference: [rows][columns], the reference's elements.
        candidate: as reference.
    """

    row_start: int
    column_start: int
    reference: tuple[tuple[Scalar, ...], ...]
    candidate: tuple[tuple[Scalar, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UlpDistance:
    """Differences in units in the last place of the reference's elements.

    Attributes:
        dtype: whose unit it is: the coarser one of both sides.
        greatest: the greatest distance.
        mean: the mean.
    """

    dtype: str
    greatest: float
    mean: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorDetail:
    """What is shown of one pair beyond its metrics.

    Attributes:
        shape: the shape that was compared.
        axes: what each axis counts.
        center: index of the element that the window is around: that of the greatest difference.
        window: both sides around it.
        maps: heat maps; none for a tensor of fewer than two axes.
        histogram: of the absolute differences, over elements that are finite on both sides.
        scatter: (reference, candidate) of some elements: the ones that differ most, and a sample.
        worst: number of points of `scatter` that are the ones that differ most; they come first.
        ulp: None where the elements are not real floats.
    """

    shape: Shape
    axes: tuple[str, ...]
    center: Shape
    window: Window
    maps: tuple[HeatMap, ...]
    histogram: Histogram
    scatter: tuple[tuple[float, float], ...]
    worst: int
    ulp: UlpDistance | None
