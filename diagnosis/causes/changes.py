"""Ways to change a module while it runs; each is undone when its block ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from comparison.numerics.dtypes import Array, dtype_of_name

if TYPE_CHECKING:
    import torch

_MISSING = object()


@contextmanager
def with_attributes(module: Any, values: Mapping[str, Any]) -> Iterator[None]:
    """Give a module, or any object, other attributes."""
    old = {name: vars(module).get(name, _MISSING) for name in values}
    for name, value in values.items():
        object.__setattr__(module, name, value)
    try:
        yield
    finally:
        for name, value in old.items():
            if value is _MISSING:
                object.__delattr__(module, name)
            else:
                object.__setattr__(module, name, value)


@contextmanager
def with_parameter(module: Any, name: str, value: torch.Tensor) -> Iterator[None]:
    """Give a module another weight or bias; who shares the old one keeps it."""
    import torch

    old = module._parameters[name]
    module._parameters[name] = torch.nn.Parameter(value, requires_grad=False)
    try:
        yield
    finally:
        module._parameters[name] = old


@contextmanager
def with_buffer(module: Any, name: str, value: torch.Tensor) -> Iterator[None]:
    """Give a module another buffer."""
    old = module._buffers[name]
    module._buffers[name] = value
    try:
        yield
    finally:
        module._buffers[name] = old


@contextmanager
def with_forward(module: Any, forward: Callable[..., Any]) -> Iterator[None]:
    """Let a module compute something else; hooks on it run as before."""
    with with_attributes(module, {"forward": forward}):
        yield


@contextmanager
def with_arguments(
    module: Any,
    change: Callable[[tuple[Any, ...], dict[str, Any]], tuple[tuple[Any, ...], dict[str, Any]]],
) -> Iterator[None]:
    """Call a module with other arguments."""

    def before(_: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return change(args, kwargs)

    handle = module.register_forward_pre_hook(before, with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def with_output(module: Any, change: Callable[[Any], Any]) -> Iterator[None]:
    """Let callers go on with something else than what a module gives."""

    def after(_: Any, args: Any, kwargs: Any, output: Any) -> Any:
        del args, kwargs
        return change(output)

    handle = module.register_forward_hook(after, with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def with_call(
    functions: frozenset[Any], change: Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]
) -> Iterator[None]:
    """Let calls of some of torch's functions give something else.

    Args:
        functions: as modules name them, `torch.tanh` and `torch.Tensor.tanh`.
        change: gets function, arguments and keyword arguments, and gives the result.
    """
    from torch.overrides import TorchFunctionMode

    class _Calls(TorchFunctionMode):  # a function mode exists only with torch
        def __torch_function__(
            self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
        ) -> Any:
            del types
            if func in functions:
                return change(func, args, kwargs or {})
            return func(*args, **(kwargs or {}))

    with _Calls():
        yield


def rounded(x: torch.Tensor, dtype: str) -> torch.Tensor:
    """Round to a narrower dtype and back.

    By numpy, since a block that computes in float64 throughout leaves no cast of torch's alone.

    Args:
        x: of any float dtype.
        dtype: a name of numpy's or ml_dtypes', or `tf32`: 10 bits behind the point.
    """
    import torch

    values = x.detach().cpu().numpy()
    return torch.from_numpy(rounded_array(values, dtype)).to(x.device)


def rounded_array(values: Array, dtype: str) -> Array:
    """Do the same with an array.

    Args:
        values: of any float dtype.
        dtype: as for `rounded`.
    """
    if dtype == "tf32":
        return _tf32(values)
    narrow = dtype_of_name(dtype)
    with np.errstate(over="ignore"):
        single = values.astype(np.float32)
        return np.asarray(single.astype(narrow).astype(values.dtype))


def _tf32(values: Array) -> Array:
    bits = values.astype(np.float32).view(np.uint32)
    kept = ((bits + 0xFFF + ((bits >> 13) & 1)) >> 13) << 13  # to nearest, ties to even
    return np.asarray(kept.astype(np.uint32).view(np.float32).astype(values.dtype))
