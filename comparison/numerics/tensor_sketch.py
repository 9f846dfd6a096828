"""A few KB that stand for a tensor: statistics, a fingerprint, and projections of its rows.

A row is all that the last axis holds at one place of the others, such as one token's features.
Each is projected on fixed Gaussian directions (Johnson and Lindenstrauss 1984), so that the
projections of a tensor [B, S, F] are a tensor [B, S, k], whose rows are picked and put in order
as those of the tensor itself. Too many rows are added up in a few, each with a fixed random sign
(Alon, Matias and Szegedy 1996; Charikar, Chen and Farach-Colton 2002).

Legend: R rows, F values of a row, k directions, M rows after folding.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod

import numpy as np

from comparison.numerics.directions import directions
from comparison.numerics.dtypes import Array, Kind, dtype_name, kind_of, widen_into
from comparison.numerics.tensor_fingerprint import fingerprint_of
from comparison.schema.outcome import Shape

MOST_ROWS = 256  # M; more are folded
EXACT_WIDTH = 8  # rows of so few values are kept as they are
_NUMBERS = 2048  # of all projections: 8 KiB in float32
_MOST_DIRECTIONS = 64
_WIDE = 1 << 15  # of longer rows, so that the directions do not take more memory than tensors
_MOST_OF_WIDE = 16
_SEED = 20_261_201
_BLOCK_VALUES = 1 << 17  # widened at a time
_ALONE = 1 << 18  # products; of more, OpenBLAS makes work for several threads
_PIECE = 1 << 10  # columns


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorStatistics:
    """What the finite values of a tensor come to; all 0 where there are none.

    Attributes:
        minimum: the least.
        maximum: the greatest.
        mean: of complex values, of their real and imaginary parts together.
        std: with n - 1 in the denominator; 0 of a single value.
        nan: number of NaN, which are not among the values.
        infinite: number of infinities, neither.
    """

    minimum: float = 0.0
    maximum: float = 0.0
    mean: float = 0.0
    std: float = 0.0
    nan: int = 0
    infinite: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSketch:
    """What is known of a tensor.

    Attributes:
        dtype: name of its dtype.
        shape: its dimensions.
        statistics: of its values.
        fingerprint: the same for the same values, bit for bit.
        rows: float32 [..., 1 + k] in place of [..., F], or [M, 1 + k] where rows are folded: the
            norm of each row, and its projections, or its values themselves where they are few;
            all divided by `scale`. None in mode `stats`, and of a tensor without values.
        scale: a power of two.
        folded: whether rows are added up.
        non_finite: fingerprint of where which NaN and infinities are; empty where there are none.
    """

    dtype: str
    shape: Shape
    statistics: TensorStatistics
    fingerprint: str
    rows: Array | None = field(default=None, repr=False)
    scale: float = 1.0
    folded: bool = False
    non_finite: str = ""


def sketch_tensor(values: Array, *, projects: bool = True) -> TensorSketch:
    """Read a tensor once and sketch it.

    NaN and infinities are counted, and take part in the projections as zeros.

    Args:
        values: any shape and strides, any dtype of numbers.
        projects: False for statistics and fingerprint alone.

    Raises:
        UnsupportedFormatError: it holds no numbers.
    """
    values = np.asarray(values)
    matrix = _matrix(values)
    sums = _Sums(matrix.shape, projects=projects)
    for start, wide in _blocks(matrix):
        sums.add(start, wide)
    known = sums.statistics()
    rows, scale = None, 1.0
    if projects and matrix.size > 0:
        scale = _scale(max(abs(known.minimum), abs(known.maximum)))
        with np.errstate(over="ignore"):
            rows = (sums.rows() / scale).astype(np.float32)
        rows = rows if sums.is_folded else rows.reshape(*values.shape[:-1], rows.shape[1])
    return TensorSketch(
        dtype=dtype_name(values.dtype),
        shape=tuple(values.shape),
        statistics=known,
        fingerprint=fingerprint_of(values),
        rows=rows,
        scale=scale,
        folded=sums.is_folded and projects,
        non_finite=non_finite_fingerprint(values) if known.nan + known.infinite else "",
    )


def direction_count(rows: int, width: int) -> int:
    """Return k, which is the less the more rows there are.

    Args:
        rows: R.
        width: F.
    """
    if width <= EXACT_WIDTH:
        return width
    most = _MOST_OF_WIDE if width > _WIDE else _MOST_DIRECTIONS
    return min(most, max(_NUMBERS // max(rows, 1), _NUMBERS // MOST_ROWS))


def rows_shape(shape: Shape, *, is_complex: bool) -> Shape:
    """Return the shape of a sketch's rows.

    Args:
        shape: of the tensor.
        is_complex: whether it holds complex numbers.
    """
    rows = prod(shape[:-1])
    width = (shape[-1] if shape else 1) * (2 if is_complex else 1)
    lead = shape[:-1] if rows <= MOST_ROWS else (MOST_ROWS,)
    return (*lead, 1 + direction_count(rows, width))


def non_finite_fingerprint(values: Array) -> str:
    """Return the fingerprint of the places of NaN and of each infinity.

    Args:
        values: any shape and dtype of numbers.
    """
    is_complex = kind_of(values.dtype) is Kind.COMPLEX
    parts = (values.real, values.imag) if is_complex else (values,)
    classes = [np.isnan(part) + 2 * (part == np.inf) + 4 * (part == -np.inf) for part in parts]
    return fingerprint_of(np.stack(classes, axis=-1).astype(np.uint8))


def _matrix(values: Array) -> Array:
    """View a tensor as [R, F]."""
    if values.ndim == 0:
        return values.reshape(1, 1)
    return values.reshape(prod(values.shape[:-1]), values.shape[-1])


def _blocks(matrix: Array) -> Iterator[tuple[int, Array]]:
    height = max(1, _BLOCK_VALUES // max(matrix.shape[1], 1))
    for start in range(0, len(matrix), height):
        yield start, _widened(matrix[start : start + height])


def _widened(values: Array) -> Array:
    """Return values as float64; a complex one is two, behind one another along the last axis."""
    if kind_of(values.dtype) is Kind.COMPLEX:
        pairs = np.stack([values.real, values.imag], axis=-1).astype(np.float64)
        return pairs.reshape(*values.shape[:-1], -1) if values.ndim else pairs
    wide = np.empty(values.shape)
    widen_into(np.ascontiguousarray(values).reshape(values.shape), wide)
    return wide


class _Sums:
    """What has been seen of a tensor so far."""

    def __init__(self, shape: Shape, *, projects: bool) -> None:
        self._shape, self._projects = shape, projects
        self.is_folded = shape[0] > MOST_ROWS
        self._least, self._greatest = math.inf, -math.inf
        self._nan = self._infinite = self._count = 0
        self._sum = self._squares = 0.0
        self._projected: Array | None = None
        self._norms = np.zeros(min(shape[0], MOST_ROWS))

    def add(self, start: int, wide: Array) -> None:
        """Add rows [n, F] of float64, which are changed."""
        if wide.size == 0:
            return
        least, greatest = float(wide.min()), float(wide.max())
        count = wide.size
        if not (math.isfinite(least) and math.isfinite(greatest)):
            finite = np.isfinite(wide)
            count = int(np.count_nonzero(finite))
            nan = int(np.count_nonzero(np.isnan(wide)))
            self._nan, self._infinite = self._nan + nan, self._infinite + wide.size - count - nan
            wide[~finite] = 0.0
            least = float(wide.min(where=finite, initial=math.inf))
            greatest = float(wide.max(where=finite, initial=-math.inf))
        self._least = min(self._least, least)
        self._greatest = max(self._greatest, greatest)
        self._count += count
        with np.errstate(over="ignore", invalid="ignore"):
            squares = np.einsum("rf,rf->r", wide, wide)
            self._sum += float(wide.sum())
            self._squares += float(squares.sum())
            if self._projects:
                self._project(start, wide, squares)

    def _project(self, start: int, wide: Array, squares: Array) -> None:
        width = wide.shape[1]
        count = direction_count(self._shape[0], width)
        projected = wide if width <= EXACT_WIDTH else _projections(wide, directions(width, count))
        if self._projected is None:
            self._projected = np.zeros((len(self._norms), count))
        stop = start + len(wide)
        if not self.is_folded:
            self._projected[start:stop], self._norms[start:stop] = projected, squares
            return
        places, signs = folding(self._shape[0])
        places, signs = places[start:stop], signs[start:stop]
        np.add.at(self._projected, places, projected * signs[:, None])
        self._norms += np.bincount(places, weights=squares, minlength=MOST_ROWS)

    def rows(self) -> Array:
        """Return norms and projections, float64 [M, 1 + k]."""
        assert self._projected is not None  # there is a value
        return np.concatenate([np.sqrt(self._norms)[:, None], self._projected], axis=1)

    def statistics(self) -> TensorStatistics:
        if self._count == 0:
            return TensorStatistics(nan=self._nan, infinite=self._infinite)
        mean = self._sum / self._count
        spread = self._squares - self._count * mean * mean
        if not math.isfinite(spread):
            spread = math.inf  # squares of float64 may overflow
        return TensorStatistics(
            minimum=self._least,
            maximum=self._greatest,
            mean=mean,
            std=math.sqrt(max(spread, 0.0) / (self._count - 1)) if self._count > 1 else 0.0,
            nan=self._nan,
            infinite=self._infinite,
        )


def _projections(wide: Array, lines: Array) -> Array:
    """Return `wide @ lines.T`, from pieces so small that BLAS starts no threads for them.

    In a process that runs a model, its threads and those of BLAS would wait for one another.

    Args:
        wide: [n, F] float64.
        lines: [k, F] float64.
    """
    found = np.zeros((len(wide), len(lines)))
    height = max(1, _ALONE // (len(lines) * _PIECE))
    for column in range(0, wide.shape[1], _PIECE):
        part = lines[:, column : column + _PIECE].T
        for row in range(0, len(wide), height):
            found[row : row + height] += wide[row : row + height, column : column + _PIECE] @ part
    return found


@lru_cache(maxsize=8)
def folding(rows: int) -> tuple[Array, Array]:
    """Return where each row is added, int64 [R] below M, and its sign, float64 [R]."""
    generator = np.random.default_rng(_SEED + rows)
    places = generator.integers(0, MOST_ROWS, rows)
    return places, generator.choice(np.array([-1.0, 1.0]), rows)


def _scale(peak: float) -> float:
    return math.ldexp(1.0, min(max(math.frexp(peak)[1], -1000), 1000)) if peak > 0 else 1.0
