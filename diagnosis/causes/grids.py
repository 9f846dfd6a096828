"""The grids that quantised weights lie on: integers and narrow floats, with the scales in use.

Legend: b bits, O rows, G groups of g inputs each, s step between neighbours of a grid.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from comparison.numerics.dtypes import Array
from diagnosis.causes.changes import rounded_array

Rounded = tuple[Array, Array]  # values and steps, both [O, I]
_BITS = (8, 4, 6, 5, 3, 2)
_GROUPS = (16, 32, 64, 128)
_LEAST_GROUP = 8
_BLOCK = 128  # rows and inputs that share a scale, as fp8 checkpoints have it
# Greatest finite values (OCP 8-bit floating point specification; OCP microscaling formats).
GREATEST = {
    "float8_e4m3fn": 448.0,
    "float8_e5m2": 57344.0,
    "float8_e4m3fnuz": 240.0,
    "float4_e2m1fn": 6.0,
}
_NEIGHBOURS = ((1, "of the group before"), (-1, "of the group behind"))
_POWERS = (0, 4, 8, 6, 10, -4)  # of two, which a weight is multiplied by before it is rounded


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """A way to round a weight.

    Attributes:
        says: of what kind it is, a phrase behind `the weight`.
        rounded: of numbers of rows, [O], their values and the steps between neighbours.
        scales: of numbers of rows their scales where there is one a row, [O]; else None.
    """

    says: str
    rounded: Callable[[Array], Rounded]
    scales: Array | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Spans:
    """Which weights share a scale, and between which values they lie, [O or 1, G, 1]."""

    says: str
    size: int
    low: Array
    high: Array
    is_by_row: bool

    def shaped(self, weight: Array) -> Array:
        """Cut rows into groups, [O, G, g]."""
        return weight.reshape(len(weight), -1, self.size)

    def at(self, values: Array, rows: Array) -> Array:
        """Take the values of some rows, [O, G, 1]."""
        return values if len(values) == 1 else values[rows]

    @property
    def peak(self) -> Array:
        """The greatest magnitudes."""
        return np.maximum(np.abs(self.low), np.abs(self.high))


def grids(weight: Array) -> Iterator[Grid]:
    """Yield the grids in use, the likeliest first.

    Args:
        weight: [out, I].
    """
    spans = list(_spans(weight))
    for dtype in GREATEST:
        for power in _POWERS:
            times = "" if not power else f"times {2.0**power:g} "
            yield Grid(
                says=f"{times}rounded to {dtype}",
                rounded=partial(_as_floats, weight, dtype, 2.0**power),
            )
        for span in spans:
            yield Grid(
                says=f"rounded to {dtype} with {span.says}",
                rounded=partial(_with_peak, weight, dtype, span),
                scales=span.peak[:, 0, 0] if span.is_by_row else None,
            )
    for bits in _BITS:
        for span in spans:
            yield from _integers(weight, bits, span)


def _spans(weight: Array) -> Iterator[_Spans]:
    inputs = weight.shape[1]
    kinds = [("a scale a row", inputs, (2,)), ("one scale in all", inputs, (0, 1, 2))]
    kinds.append(("a scale an input channel", 1, (0, 2)))
    kinds += [(f"a scale for each {size} inputs", size, (2,)) for size in group_sizes(inputs)]
    for says, size, axes in kinds:
        groups = weight.reshape(len(weight), -1, size)
        yield _Spans(
            says=says,
            size=size,
            low=groups.min(axis=axes, keepdims=True),
            high=groups.max(axis=axes, keepdims=True),
            is_by_row=size == inputs and axes == (2,),
        )
    if not (inputs % _BLOCK or len(weight) % _BLOCK) and weight.size > _BLOCK**2:
        yield _of_blocks(weight)


def group_sizes(inputs: int) -> list[int]:
    """List how many inputs may share a scale: what is in use, or what divides an odd number.

    Args:
        inputs: number of inputs of a weight.
    """
    usual = [size for size in _GROUPS if inputs % size == 0 and size < inputs]
    return usual or [size for size in range(_LEAST_GROUP, inputs) if inputs % size == 0]


def _of_blocks(weight: Array) -> _Spans:
    blocks = weight.reshape(len(weight) // _BLOCK, _BLOCK, -1, _BLOCK)
    low, high = (
        np.repeat(take(blocks, axis=(1, 3)), _BLOCK, axis=0)[:, :, None]
        for take in (np.min, np.max)
    )
    says = f"a scale for each {_BLOCK} rows of {_BLOCK} inputs"
    return _Spans(says=says, size=_BLOCK, low=low, high=high, is_by_row=False)


def _as_floats(weight: Array, dtype: str, factor: float, rows: Array) -> Rounded:
    values = rounded_array(weight[rows] * factor, dtype) / factor
    return values, np.zeros_like(values)


def _with_peak(weight: Array, dtype: str, span: _Spans, rows: Array) -> Rounded:
    scale = _usable(span.at(span.peak, rows)) / GREATEST[dtype]
    shaped = span.shaped(weight[rows])
    values = (rounded_array(shaped / scale, dtype) * scale).reshape(weight[rows].shape)
    return values, np.zeros_like(values)


def _integers(weight: Array, bits: int, span: _Spans) -> Iterator[Grid]:
    """Integers about zero, then those between the least and the greatest value."""
    top = 2 ** (bits - 1) - 1
    half = 2.0 ** (bits - 1)
    for divisor, bottom, note in (
        (float(top), -top, ""),
        (half, -half, f", the peak being {half:g}"),
        (2.0 * half - 1, -top, ", cut off at half the peak"),
        (2.0 * half - 1, -half, f", cut off at -{half:g} and {top}"),
    ):
        yield Grid(
            says=f"in {bits} bits with {span.says}{note}",
            rounded=partial(_symmetric, weight, span, divisor, (bottom, top)),
            scales=span.peak[:, 0, 0] if span.is_by_row else None,
        )
    steps = 2.0**bits - 1
    for places, note in _NEIGHBOURS if span.low.shape[1] > 1 else ():
        yield Grid(
            says=f"in {bits} bits with {span.says}, each brought back with that {note}",
            rounded=partial(_symmetric, weight, span, float(top), (-top, top), places=places),
        )
        for kind in ("zero", "low"):
            yield Grid(
                says=f"in {bits} bits with {span.says} and a zero point, each brought back with "
                f"the scale {note}",
                rounded=partial(_asymmetric, weight, span, steps, kind, places=places),
            )
    for kind, note in (
        ("low", "from the least value on"),
        ("zero", "a zero point that is rounded"),
        ("without", "the zero point left out"),
        ("added", "the zero point added and not subtracted"),
    ):
        yield Grid(
            says=f"in {bits} bits with {span.says}, {note}",
            rounded=partial(_asymmetric, weight, span, steps, kind),
        )


def _symmetric(
    weight: Array,
    span: _Spans,
    divisor: float,
    ends: tuple[float, float],
    rows: Array,
    *,
    places: int = 0,
) -> Rounded:
    shaped = span.shaped(weight[rows])
    step = _usable(span.at(span.peak, rows)) / divisor
    codes = np.clip(np.round(shaped / step), *ends)
    step = np.roll(step, places, axis=1)
    return _both(codes * step, step, shaped, weight[rows].shape)


def _asymmetric(
    weight: Array, span: _Spans, steps: float, kind: str, rows: Array, *, places: int = 0
) -> Rounded:
    """Codes in [0, 2^b - 1]: (q - z) * s, or q * s + low."""
    shaped = span.shaped(weight[rows])
    low, high = span.at(span.low, rows), span.at(span.high, rows)
    step = _usable(high - low) / steps
    back = np.roll(step, places, axis=1)
    if kind == "low":
        values = np.round((shaped - low) / step) * back + low
        return _both(values, back, shaped, weight[rows].shape)
    zero = np.round(-low / step)
    codes = np.clip(np.round(shaped / step) + zero, 0, steps)
    step = back
    moved = {"zero": codes - zero, "without": codes, "added": codes + zero}[kind]
    return _both(moved * step, step, shaped, weight[rows].shape)


def _both(values: Array, step: Array, shaped: Array, shape: tuple[int, ...]) -> Rounded:
    return values.reshape(shape), np.broadcast_to(step, shaped.shape).reshape(shape)


def _usable(values: Array) -> Array:
    return np.where(values > 0, values, 1.0)
