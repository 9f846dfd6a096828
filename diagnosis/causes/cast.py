"""Numbers that are rounded to a narrower dtype on the way.

Legend: n positions, F channels.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from comparison.numerics.dtypes import Array
from diagnosis.causes.attention_sites import AttentionChange, changed_attention
from diagnosis.causes.changes import rounded, rounded_array, with_arguments, with_parameter
from diagnosis.causes.leaf import bias_of, matrix_of
from diagnosis.causes.linear import linear_of
from diagnosis.causes.trial import OutputTrial, RunTrial, Sign, Trial

if TYPE_CHECKING:
    import torch

    from diagnosis.causes.region import Region

_DTYPES = ("bfloat16", "float16", "tf32")
_MOST_OPERATIONS = 48
_IDLE = frozenset(
    {
        "view", "reshape", "transpose", "permute", "expand", "contiguous", "to", "float", "split",
        "chunk", "unsqueeze", "squeeze", "flatten", "__get__", "size", "dim", "__getitem__",
        "type", "detach", "clone", "double", "type_as", "narrow", "movedim", "swapaxes", "T",
    }
)  # fmt: skip


def trials(region: Region) -> Iterator[Trial]:
    """Round weights, inputs, each operation's result and the output."""
    if region.first.dtype in ("bfloat16", "float16"):
        return  # all is rounded there; see the sign
    yield from _of_matrix(region)
    for dtype in _DTYPES:
        yield OutputTrial(
            cause="cast",
            says=f"rounds its result to {dtype}",
            predict=partial(_rounded, dtype),
        )
    if region.linear_inputs is not None:
        for dtype in _DTYPES:
            yield RunTrial(
                cause="cast",
                says=f"rounds its input to {dtype}",
                change=partial(_input_rounded, region.module, dtype),
            )
    yield from _of_operations(region)
    yield from _of_blocks(region)
    if region.has_attention:
        yield from _of_softmax()


def _of_softmax() -> Iterator[Trial]:
    """Compute all steps of attention's softmax in a narrow dtype."""
    for dtype in _DTYPES[:2]:
        for says, softmax in (
            (f"takes the softmax of scores rounded to {dtype}", _softmax_of_rounded),
            (f"takes the softmax in {dtype}", _softmax_in),
            (f"exponentiates in {dtype} and sums otherwise", _softmax_of_exponentials),
        ):
            yield RunTrial(cause="cast", says=says, change=partial(_attending, softmax, dtype))


def _attending(softmax: Any, dtype: str) -> AbstractContextManager[None]:
    return changed_attention(AttentionChange(softmax=partial(softmax, dtype)))


def _softmax_of_rounded(dtype: str, scores: torch.Tensor) -> torch.Tensor:
    return rounded(rounded(scores, dtype).softmax(dim=-1), dtype)


def _softmax_in(dtype: str, scores: torch.Tensor) -> torch.Tensor:
    powers = _powers(dtype, scores)
    return rounded(powers / rounded(powers.sum(dim=-1, keepdim=True), dtype), dtype)


def _softmax_of_exponentials(dtype: str, scores: torch.Tensor) -> torch.Tensor:
    powers = _powers(dtype, scores)
    return powers / powers.sum(dim=-1, keepdim=True)


def _powers(dtype: str, scores: torch.Tensor) -> torch.Tensor:
    lowered = scores - scores.amax(dim=-1, keepdim=True)
    return rounded(rounded(lowered, dtype).exp(), dtype)


def signs(region: Region) -> Iterator[Sign]:
    """Tell a small error throughout in half precision, as another place of a cast gives."""
    excess = region.first.excess
    if region.first.dtype not in ("bfloat16", "float16") or excess is None:
        return
    if excess.whole < 4.0 and bool(np.isfinite(excess.by_position).all()):
        yield Sign(
            cause="cast",
            says=f"is {excess.whole:.2g} times as far off as {region.first.dtype}'s rounding "
            "explains, throughout: as where something is rounded at another place",
            weight=0.7,
        )


def _rounded(dtype: str, values: Array) -> Array:
    return rounded_array(values, dtype)


def _of_matrix(region: Region) -> Iterator[Trial]:
    matrix = matrix_of(region)
    if matrix is None:
        return
    for dtype in _DTYPES:
        values = rounded(matrix.values, dtype)
        weight = partial(with_parameter, matrix.module, matrix.name, matrix.stored(values))
        yield RunTrial(
            cause="cast", says=f"multiplies by the weight rounded to {dtype}", change=weight
        )
        if matrix.is_embedding:
            continue
        both = partial(_both, weight, partial(_input_rounded, region.module, dtype))
        yield RunTrial(
            cause="cast", says=f"multiplies input and weight rounded to {dtype}", change=both
        )
        yield from _products(region, dtype)


def _products(region: Region, dtype: str) -> Iterator[Trial]:
    """Round input, weight and product; the bias is added before or behind that."""
    linear = linear_of(region)
    if linear is None:
        return
    inputs, weight = rounded_array(linear.inputs, dtype), rounded_array(linear.weight, dtype)
    product = linear.factor * (inputs @ weight.T)
    yield OutputTrial(
        cause="cast",
        says=f"multiplies in {dtype}",
        predict=lambda y: rounded_array(product + linear.bias, dtype).reshape(y.shape),
    )
    if linear.bias.any():
        yield OutputTrial(
            cause="cast",
            says=f"multiplies in {dtype} and adds the bias behind that",
            predict=lambda y: (rounded_array(product, dtype) + linear.bias).reshape(y.shape),
        )


@contextmanager
def _both(first: Any, second: Any) -> Iterator[None]:
    with first(), second():
        yield


def _input_rounded(module: Any, dtype: str) -> AbstractContextManager[None]:
    def change(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return (rounded(args[0], dtype), *args[1:]), kwargs

    return with_arguments(module, change)


def _of_operations(region: Region) -> Iterator[Trial]:
    """Round what each operation of the module's own code gives, one at a time."""
    names = _operations(region)
    if len(names) > _MOST_OPERATIONS:
        return
    for number, name in enumerate(names):
        for dtype in _DTYPES:
            yield RunTrial(
                cause="cast",
                says=f"rounds to {dtype} what its operation {number}, {name}, gives",
                change=partial(_operation_rounded, number, dtype),
            )


def _operations(region: Region) -> list[str]:
    names: list[str] = []

    def note(number: int, name: str, result: Any) -> Any:
        del number
        names.append(name)
        return result

    region.values(lambda: _each_operation(note))
    return names[: len(names) // max(len(region.calls), 1)]


def _operation_rounded(number: int, dtype: str) -> AbstractContextManager[None]:
    return _each_operation(
        lambda at, name, result: rounded(result, dtype) if at == number else result
    )


@contextmanager
def _each_operation(change: Any) -> Iterator[None]:
    """Let the result of each operation on floats be another one."""
    import torch
    from torch.overrides import TorchFunctionMode

    class _Operations(TorchFunctionMode):  # a function mode exists only with torch
        def __init__(self) -> None:
            super().__init__()
            self.count = 0

        def __torch_function__(
            self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
        ) -> Any:
            del types
            result = func(*args, **(kwargs or {}))
            name = getattr(func, "__name__", "")
            is_float = isinstance(result, torch.Tensor) and result.is_floating_point()
            if not is_float or name in _IDLE or result.numel() < 2:
                return result
            number, self.count = self.count, self.count + 1
            return change(number, name, result)

    with _Operations():
        yield


def _of_blocks(region: Region) -> Iterator[Trial]:
    """Sum a product in blocks, each partial sum rounded."""
    matrix, inputs = matrix_of(region), region.linear_inputs
    if matrix is None or inputs is None or matrix.is_embedding:
        return
    weight = matrix.values.numpy()
    if inputs.shape[1] != weight.shape[1] or region.exact.shape != (len(inputs), len(weight)):
        return
    bias = bias_of(region)
    for dtype in _DTYPES[:2]:
        for block in (8, 16, 32, 64, 128):
            if block < weight.shape[1]:
                yield OutputTrial(
                    cause="cast",
                    says=f"sums blocks of {block} products in {dtype}",
                    predict=partial(_in_blocks, inputs, weight, bias, block, dtype),
                )


def _in_blocks(
    inputs: Array, weight: Array, bias: Array | None, block: int, dtype: str, exact: Array
) -> Array:
    total = np.zeros((len(inputs), len(weight)))
    for start in range(0, weight.shape[1], block):
        part = slice(start, start + block)
        total = rounded_array(total + inputs[:, part] @ weight[:, part].T, dtype)
    total = total if bias is None else total + bias
    return total.reshape(exact.shape)
