"""The abbreviated form of tensors on the console, made to be read side by side."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, TextIO

from test_common.print_style import PrintStyle

if TYPE_CHECKING:
    import torch

_EDGE_ITEMS = 3  # shown at each end of a dimension
_SHORT_PREFIXES = {"float": "f", "uint": "u", "int": "i", "complex": "c"}


class ConsoleSink:
    """Prints `name = tensor([[...]], dtype=f32, shape=[2, 3])`, the corners of the tensor only.

    In style `full` it prints `name = tensor<2x3xf32> [...]` with every element, as MAX does.
    """

    def __init__(
        self,
        file: TextIO | None = None,
        *,
        style: PrintStyle = PrintStyle.COMPACT,
        precision: int = 6,
        prefix: str = "",
    ) -> None:
        """Make a sink.

        Args:
            file: where to print; standard output, as it is at the time of printing, by default.
            style: `FULL` for every element, else the corners.
            precision: digits behind the point in style `full`.
            prefix: what each line begins with, such as `rank0/`.
        """
        self._file = file
        self._prefix = prefix
        self._full = style is PrintStyle.FULL
        self._precision = precision
        self._step = 0
        self._headed = False

    def save(self, name: str, tensor: torch.Tensor) -> None:
        """Print one tensor, under a heading if it is the first of its step."""
        file = self._file or sys.stdout
        if not self._headed:
            print(f"{self._prefix}step {self._step}", file=file)
            self._headed = True
        shown = every_element(tensor, self._precision) if self._full else abbreviate(tensor)
        print(f"{self._prefix}{name} = {shown}", file=file, flush=True)

    def step(self) -> None:
        """End a step."""
        self._step += 1
        self._headed = False


def abbreviate(tensor: torch.Tensor) -> str:
    """Show the corners of a tensor.

    Args:
        tensor: any dtype, device and shape.

    Returns:
        `tensor([[-2.0156, 3.100e-02, ...]], dtype=bf16, shape=[1, 48])`, a line for each row.
    """
    # One transfer is faster than one for each number.
    values = _nested(tensor.detach().to("cpu"), depth=len("tensor("))
    return f"tensor({values}, dtype={short_dtype(tensor.dtype)}, shape={list(tensor.shape)})"


def every_element(tensor: torch.Tensor, precision: int) -> str:
    """Show all of a tensor, in row-major order.

    Args:
        tensor: any dtype, device and shape.
        precision: digits behind the point.

    Returns:
        `tensor<2x3xf32> [1.000e+00, ...]`.
    """
    plain = tensor.detach().to("cpu")
    kind = "x".join([*(str(size) for size in plain.shape), short_dtype(plain.dtype)])
    if plain.dtype.is_floating_point:
        values = [f"{value:.{precision}e}" for value in plain.double().flatten().tolist()]
    else:
        values = [str(value) for value in plain.flatten().tolist()]
    return f"tensor<{kind}> [{', '.join(values)}]"


def short_dtype(dtype: torch.dtype) -> str:
    """Spell a dtype as MAX does: f32, bf16, i64, f8e4m3fn, bool."""
    name = str(dtype).removeprefix("torch.")
    if name == "bfloat16":
        return "bf16"
    for prefix, short in _SHORT_PREFIXES.items():
        if name.startswith(prefix):
            return short + name.removeprefix(prefix).replace("_", "")
    return name


def _nested(tensor: torch.Tensor, depth: int) -> str:
    """Show a tensor in brackets, or as one number if it has no dimension."""
    if tensor.dim() == 0:
        return _number(tensor)
    items = [
        "..." if index is None else _nested(tensor[index], depth + 1)
        for index in _corners(tensor.shape[0])
    ]
    if tensor.dim() == 1:
        return f"[{', '.join(items)}]"
    separator = ",\n" + " " * (depth + 1)
    return f"[{separator.join(items)}]"


def _corners(size: int) -> list[int | None]:
    """List the indices to show, with None for what is left out."""
    if size <= 2 * _EDGE_ITEMS:
        return list(range(size))
    return [*range(_EDGE_ITEMS), None, *range(size - _EDGE_ITEMS, size)]


def _number(element: torch.Tensor) -> str:
    """Show one element."""
    import torch

    if element.dtype.is_complex:
        value = complex(element.to(torch.complex128).item())
        return f"{_real(value.real)}{'' if value.imag < 0 else '+'}{_real(value.imag)}j"
    if element.dtype.is_floating_point:
        return _real(element.to(torch.float64).item())
    return str(element.item())


def _real(value: float) -> str:
    """Show a number by its own size alone, so that close tensors give the same text.

    At least three digits of every number count, however small it is beside its neighbours.
    """
    if value == 0 or not math.isfinite(value) or 0.1 <= abs(value) < 1e5:
        return f"{value:.4f}"
    return f"{value:.3e}"
