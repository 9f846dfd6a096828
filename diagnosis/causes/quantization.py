"""Weights that were rounded to few bits, or brought back with the wrong scales or zero points.

What a layer gives is linear in all that goes wrong behind the codes: y = x Q^T, with a zero point
that is off by z it is x (Q + z S)^T, with scales of other rows each channel has a factor. So each
grid is tried once, and z, one factor for all and one factor a row are sought by least squares.

Legend: Q rounded weight, S steps between neighbours of its grid, z error of zero points.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from comparison.numerics.dtypes import Array
from diagnosis.causes import attention_rounding
from diagnosis.causes.changes import rounded, with_parameter
from diagnosis.causes.grids import GREATEST, Grid, grids, group_sizes
from diagnosis.causes.leaf import Matrix
from diagnosis.causes.linear import Linear, linear_of
from diagnosis.causes.trial import FittedTrial, OutputTrial, Trial

if TYPE_CHECKING:
    from diagnosis.causes.region import Region

_LEAST_TOKENS = 3  # for a factor a row to prove something
_ROUND = 1e-3  # how near to a half, or to a power of two, a number has to be
# Orders in which eight codes are packed into 32 bits, and their inverses.
_PACKINGS = {
    "each two neighbouring inputs exchanged, as nibbles in the wrong order": (1, 0),
    "each eight inputs in the order 0, 2, 4, 6, 1, 3, 5, 7": (0, 2, 4, 6, 1, 3, 5, 7),
    "each eight inputs in the order 0, 4, 1, 5, 2, 6, 3, 7": (0, 4, 1, 5, 2, 6, 3, 7),
    "each eight inputs in reversed order": (7, 6, 5, 4, 3, 2, 1, 0),
}


def trials(region: Region) -> Iterator[Trial]:
    """Round the weight by the schemes in use, then give groups of it other scales."""
    yield from attention_rounding.trials(region)
    linear = linear_of(region)
    if linear is None:
        return
    shape = region.exact.shape
    yield from _packed(linear, shape)
    for grid in grids(linear.weight):
        yield from _of_grid(linear, grid, shape)
    yield from _floats_of_any_scale(linear.matrix)
    if not linear.matrix.is_embedding:
        yield from _scales_of_groups(linear, shape)


def _of_grid(linear: Linear, grid: Grid, shape: tuple[int, ...]) -> Iterator[Trial]:
    """Try a grid as it is, then with other zero points, one other scale, or one a row."""
    rows = linear.rows
    wanted = linear.wanted(rows)
    values, steps = grid.rounded(rows)
    for order in (None, *_orders(linear)):
        at, moved = ("", values) if order is None else (f", {order[0]}", values[:, order[1]])
        given = linear.product(moved, rows)
        if linear.fits(given, wanted):
            yield _trial(linear, grid, shape, order=order, says=at)
            return
    given = linear.product(values, rows)
    shift = _slope(linear.product(steps, rows), wanted - given)
    if linear.fits(given + shift * linear.product(steps, rows), wanted):
        near = round(2.0 * shift) / 2.0
        shift = near if abs(near - shift) < _ROUND else shift
        says = f" and a zero point {shift:.4g} off"
        yield _trial(linear, grid, shape, shift=shift, says=says, is_fitted=shift != near)
    factor = _slope(given, wanted)
    if linear.fits(given * factor, wanted):
        near = 2.0 ** round(np.log2(factor)) if factor > 0 else factor
        factor = near if abs(near / factor - 1.0) < _ROUND else factor
        says = f", and its scale {factor:.4g} times what it should be"
        yield _trial(linear, grid, shape, factor=factor, says=says, is_fitted=factor != near)
    yield from _scales_of_rows(linear, grid, shape)


def _orders(linear: Linear) -> Iterator[tuple[str, Array]]:
    size = linear.weight.shape[1]
    for says, order in _PACKINGS.items():
        if size % len(order) == 0:
            starts = np.arange(0, size, len(order))[:, None]
            yield says, (starts + np.array(order)).ravel()


def _trial(
    linear: Linear,
    grid: Grid,
    shape: tuple[int, ...],
    *,
    says: str,
    order: tuple[str, Array] | None = None,
    shift: float = 0.0,
    factor: float = 1.0,
    is_fitted: bool = False,
) -> Trial:
    def predict(exact: Array) -> Array:
        del exact
        values, steps = grid.rounded(np.arange(len(linear.weight)))
        values = (values + shift * steps) * factor
        return linear.output(values if order is None else values[:, order[1]], shape)

    return OutputTrial(
        cause="quantization",
        says=f"{_verb(linear)} the weight {grid.says}{says}",
        predict=predict,
        numbers=int(is_fitted),
        value=shift or (factor if factor != 1.0 else None),
    )


def _verb(linear: Linear) -> str:
    return "looks up in" if linear.matrix.is_embedding else "multiplies by"


def _packed(linear: Linear, shape: tuple[int, ...]) -> Iterator[Trial]:
    """Take codes that are packed in another order, be these rounded visibly or not."""
    if linear.matrix.is_embedding:
        return
    for says, order in _orders(linear):
        yield OutputTrial(
            cause="quantization",
            says=f"multiplies by the weight with {says}",
            predict=partial(_reordered, linear, order, shape),
        )


def _reordered(linear: Linear, order: Array, shape: tuple[int, ...], exact: Array) -> Array:
    del exact
    return linear.output(linear.weight[:, order], shape)


def _scales_of_rows(linear: Linear, grid: Grid, shape: tuple[int, ...]) -> Iterator[Trial]:
    """Fit a factor for each output channel, and tell whether these are the scales of others."""
    if grid.scales is None or linear.matrix.is_embedding or len(linear.target) < _LEAST_TOKENS:
        return
    rows = linear.rows
    given, wanted = linear.product(grid.rounded(rows)[0], rows), linear.wanted(rows)
    square = np.sum(given * given, axis=0)
    factors = np.sum(given * wanted, axis=0) / np.where(square > 0, square, 1.0)
    if not linear.fits(given * factors, wanted):
        return
    says = f"multiplies by the weight {grid.says}, the scales being those of other rows"
    scales = grid.scales / np.where(grid.scales > 0, grid.scales, 1.0)
    for name, of in _neighbours(len(linear.weight)):
        ratio = grid.scales[of] / np.where(scales > 0, grid.scales, 1.0)
        if np.allclose(ratio[rows], factors, rtol=_ROUND, atol=_ROUND):
            says = f"multiplies by the weight {grid.says}, each row with the scale of {name}"
            yield OutputTrial(
                cause="quantization",
                says=says,
                predict=partial(_with_factors, linear, grid, ratio, shape),
            )
            return
    yield OutputTrial(
        cause="quantization",
        says=says,
        predict=partial(_with_factors, linear, grid, None, shape),
        numbers=len(linear.weight),
    )


def _neighbours(count: int) -> Iterator[tuple[str, Array]]:
    every = np.arange(count)
    yield "the row before", np.roll(every, 1)
    yield "the row behind", np.roll(every, -1)
    yield "the row at the other end", every[::-1]
    yield "the first row", np.zeros(count, dtype=int)


def _with_factors(
    linear: Linear, grid: Grid, factors: Array | None, shape: tuple[int, ...], exact: Array
) -> Array:
    del exact
    values, _ = grid.rounded(np.arange(len(linear.weight)))
    if factors is None:
        given = linear.product(values)
        square = np.sum(given * given, axis=0)
        factors = np.sum(given * linear.target, axis=0) / np.where(square > 0, square, 1.0)
    return linear.output(values * factors[:, None], shape)


def _slope(given: Array, wanted: Array) -> float:
    square = float(np.sum(given * given))
    return float(np.sum(given * wanted)) / square if square else 0.0


def _floats_of_any_scale(matrix: Matrix) -> Iterator[Trial]:
    for dtype in GREATEST:
        yield FittedTrial(
            cause="quantization",
            says=f"multiplies by the weight times {{value}}, rounded to {dtype}",
            change=partial(_scaled, matrix, dtype),
            starts=(1.0, *(10.0**-power for power in (0.5, 1, 1.5, 2, 2.5, 3))),
        )


def _scaled(matrix: Matrix, dtype: str, factor: float) -> AbstractContextManager[None]:
    values = rounded(matrix.values * factor, dtype) / factor
    return with_parameter(matrix.module, matrix.name, matrix.stored(values))


def _scales_of_groups(linear: Linear, shape: tuple[int, ...]) -> Iterator[Trial]:
    """Yield a factor for each output channel and group of inputs, as fitted.

    The output is linear in these: y = sum over groups g of a[o, g] * (x[g] . w[o, g]).
    """
    weight = linear.weight
    for group in group_sizes(weight.shape[1]):
        count = weight.shape[1] // group
        if not 1 < count <= len(linear.inputs) // 3:
            continue
        factors, predicted = _fit(linear.inputs, weight, linear.target, group)
        wrong = np.argwhere(np.abs(factors - 1) > 1e-3)
        if not wrong.size:
            continue
        channel, at = wrong[0]
        yield OutputTrial(
            cause="quantization",
            says=f"has the wrong scales for {len(wrong)} groups of {group} inputs: output channel "
            f"{channel} takes {factors[channel, at]:.4g} times that of group {at}",
            predict=_constant((linear.factor * predicted + linear.bias).reshape(shape)),
            numbers=int(factors.size),
            needs_other_weight=True,
        )


def _constant(values: Array) -> Callable[[Array], Array]:
    return lambda y: values


def _fit(inputs: Array, weight: Array, target: Array, group: int) -> tuple[Array, Array]:
    count = weight.shape[1] // group
    parts = np.stack(
        [
            inputs[:, g * group : (g + 1) * group] @ weight[:, g * group : (g + 1) * group].T
            for g in range(count)
        ],
        axis=-1,
    )  # [n, out, groups]
    factors = np.stack(
        [np.linalg.lstsq(parts[:, o], target[:, o], rcond=None)[0] for o in range(len(weight))]
    )
    return factors, np.einsum("nog,og->no", parts, factors)
