"""Weights that were rounded to few bits, or scaled back with the wrong scales.

Legend: b bits, s scale, q integer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from comparison.numerics.dtypes import Array
from diagnosis.causes.changes import rounded, with_parameter
from diagnosis.causes.leaf import Matrix, bias_of, matrix_of
from diagnosis.causes.trial import Change, FittedTrial, OutputTrial, RunTrial, Trial

if TYPE_CHECKING:
    import torch

    from diagnosis.causes.region import Region

_BITS = (8, 4, 6, 5, 3, 2)
_GROUPS = (16, 32, 64, 128)
# Greatest finite values (OCP 8-bit floating point specification; OCP microscaling formats).
_GREATEST = {
    "float8_e4m3fn": 448.0,
    "float8_e5m2": 57344.0,
    "float8_e4m3fnuz": 240.0,
    "float4_e2m1fn": 6.0,
}
_FLOATS = tuple(_GREATEST)


def trials(region: Region) -> Iterator[Trial]:
    """Round the weight by the schemes in use, then give groups of it other scales."""
    matrix = matrix_of(region)
    if matrix is None:
        return
    for says, values in _rounded(matrix.values):
        yield RunTrial(
            cause="quantization",
            says=f"multiplies by the weight {says}",
            change=_with(matrix, values),
        )
    for bits in _BITS:
        turned = _integers(matrix.values.T, bits, matrix.values.shape[0]).T
        yield RunTrial(
            cause="quantization",
            says=f"multiplies by the weight in {bits} bits with a scale an input channel",
            change=_with(matrix, turned),
        )
    for dtype in _FLOATS:
        yield FittedTrial(
            cause="quantization",
            says=f"multiplies by the weight times {{value}}, rounded to {dtype}",
            change=partial(_scaled, matrix, dtype),
            starts=(1.0, *(10.0**-power for power in (0.5, 1, 1.5, 2, 2.5, 3))),
        )
    if not matrix.is_embedding:
        yield from _scales_of_groups(region, matrix)


def _with(matrix: Matrix, values: torch.Tensor) -> Change:
    return partial(with_parameter, matrix.module, matrix.name, matrix.stored(values))


def _scaled(matrix: Matrix, dtype: str, factor: float) -> AbstractContextManager[None]:
    values = rounded(matrix.values * factor, dtype) / factor
    return with_parameter(matrix.module, matrix.name, matrix.stored(values))


def _rounded(weight: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    for dtype in _FLOATS:
        yield f"rounded to {dtype}", rounded(weight, dtype)
        yield f"rounded to {dtype} with a scale a row", _by_peak(weight, dtype, rows=True)
        yield f"rounded to {dtype} with one scale in all", _by_peak(weight, dtype, rows=False)
    for bits in _BITS:
        yield f"in {bits} bits with a scale a row", _integers(weight, bits, weight.shape[1])
        yield f"in {bits} bits with one scale in all", _integers(weight, bits, None)
        yield f"in {bits} bits with scale and zero point a row", _with_zero(weight, bits)
        for group in _GROUPS:
            if weight.shape[1] % group == 0 and group < weight.shape[1]:
                says = f"in {bits} bits with a scale for each {group} inputs"
                yield says, _integers(weight, bits, group)
                moved = _integers(weight, bits, group, zero=1.0)
                yield f"{says} and a zero point one off", moved


def _by_peak(weight: torch.Tensor, dtype: str, *, rows: bool) -> torch.Tensor:
    top = _GREATEST[dtype]
    peak = weight.abs().amax(dim=1, keepdim=True) if rows else weight.abs().max()
    return rounded(weight * (top / peak), dtype) * peak / top


def _integers(
    weight: torch.Tensor, bits: int, group: int | None, *, zero: float = 0.0
) -> torch.Tensor:
    """Round to q * s with q in [-2^(b-1) + 1, 2^(b-1) - 1]."""
    top = 2 ** (bits - 1) - 1
    shaped = weight if group is None else weight.reshape(weight.shape[0], -1, group)
    peak = weight.abs().max() if group is None else shaped.abs().amax(dim=-1, keepdim=True)
    scale = peak / top
    return (((shaped / scale).round() + zero) * scale).reshape(weight.shape)


def _with_zero(weight: torch.Tensor, bits: int) -> torch.Tensor:
    """Round to (q - z) * s with q in [0, 2^b - 1], by row."""
    low, high = weight.amin(dim=1, keepdim=True), weight.amax(dim=1, keepdim=True)
    scale = (high - low) / (2**bits - 1)
    zero = (-low / scale).round()
    return ((weight / scale).round() - (-zero) - zero) * scale


def _scales_of_groups(region: Region, matrix: Matrix) -> Iterator[Trial]:
    """Fit a factor for each output channel and group of inputs.

    The output is linear in these: y = sum over groups g of a[o, g] * (x[g] . w[o, g]).
    """
    inputs = region.linear_inputs
    if inputs is None or inputs.shape[1] != matrix.values.shape[1]:
        return
    bias = bias_of(region)
    weight = matrix.values.numpy()
    if region.target.shape != (len(inputs), len(weight)):
        return
    target = region.target - (0 if bias is None else bias)
    for group in _GROUPS:
        count = weight.shape[1] // group
        if weight.shape[1] % group or not 1 < count <= len(inputs) // 3:
            continue
        factors, predicted = _fit(inputs, weight, target, group)
        wrong = np.argwhere(np.abs(factors - 1) > 1e-3)
        if not wrong.size:
            continue
        channel, at = wrong[0]
        shift = np.zeros(()) if bias is None else bias
        yield OutputTrial(
            cause="quantization",
            says=f"has the wrong scales for {len(wrong)} groups of {group} inputs: output channel "
            f"{channel} takes {factors[channel, at]:.4g} times that of group {at}",
            predict=_constant((predicted + shift).reshape(region.target.shape)),
            numbers=int(factors.size),
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
