"""Runs a Torch model in float64 throughout, casts inside its code included.

`model.double()` alone is not enough: norms, softmax and rope of most models cast to float32 by
hand. Here every operation that asks for a smaller float gets float64 instead.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

# The operand whose last dimension is summed over.
_LEFT_OPERAND = {"mm": 0, "bmm": 0, "dot": 0, "mv": 0, "addmm": 1, "baddbmm": 1}
_NOTED = frozenset({"convolution", *_LEFT_OPERAND})
_ROPE_DRIFT = 1e-5  # relative; float32 rounding of a power is far below


class LongestSum:
    """Counts how many terms the longest sum of products had since it was last taken."""

    def __init__(self) -> None:
        self._terms = 0

    def note(self, operation: str, args: tuple[Any, ...]) -> None:
        """Look at one operation."""
        if operation == "convolution":
            weight = args[1]
            self._terms = max(self._terms, weight[0].numel())
        elif operation in _LEFT_OPERAND:
            self._terms = max(self._terms, args[_LEFT_OPERAND[operation]].shape[-1])

    def take(self) -> int:
        """Return the count, 0 where there was no such sum, and begin anew."""
        terms, self._terms = self._terms, 0
        return terms


@contextmanager
def float64_throughout(longest_sum: LongestSum) -> Iterator[None]:
    """Let every operation of the block compute in float64.

    Args:
        longest_sum: is told of each sum of products.
    """
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    wide = {
        torch.float32: torch.float64,
        torch.float16: torch.float64,
        torch.bfloat16: torch.float64,
        torch.complex64: torch.complex128,
    }

    sums: dict[Any, bool] = {}  # a replay runs some hundred thousand operations

    def widened(value: Any) -> Any:
        return wide.get(value, value) if isinstance(value, torch.dtype) else value

    class _Widening(TorchDispatchMode):  # a dispatch mode exists only with torch
        def __torch_dispatch__(
            self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
        ) -> Any:
            del types
            if func not in sums:
                sums[func] = func.overloadpacket.__name__ in _NOTED
            if sums[func]:
                longest_sum.note(func.overloadpacket.__name__, args)
            for value in args:
                if type(value) is torch.dtype:
                    args = tuple(map(widened, args))
                    break
            if not kwargs:
                return func(*args)
            return func(*args, **{key: widened(value) for key, value in kwargs.items()})

    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with _Widening():
            yield
    finally:
        torch.set_default_dtype(default)


def float64_copy(model: torch.nn.Module) -> torch.nn.Module:
    """Copy a model in float64; rope frequencies are computed anew, not widened.

    Args:
        model: any module; it stays as it is.

    Returns:
        The copy, in evaluation mode, without hooks of the original's.
    """
    import torch

    with torch.no_grad():
        wide = copy.deepcopy(model).double().eval()
        with float64_throughout(LongestSum()):
            for module in wide.modules():
                _exact_frequencies(module)
                _plain_experts(module)
    return wide


def _plain_experts(module: Any) -> None:
    """Let experts multiply one after the other: torch groups no products of float64."""
    config: Any = getattr(module, "config", None)
    if getattr(config, "_experts_implementation", None) is not None:
        config._experts_implementation = "eager"


def _exact_frequencies(module: Any) -> None:
    """Replace a rope's frequencies by what its own formula gives in float64."""
    import torch

    names = [name for name, _ in module.named_buffers(recurse=False) if name.endswith("inv_freq")]
    config = getattr(module, "config", None)
    if not names or config is None:
        return
    try:
        exact = type(module)(config)
    except (TypeError, ValueError, KeyError, AttributeError):  # made in another way
        return
    for name in names:
        own, other = getattr(module, name), getattr(exact, name, None)
        if not isinstance(other, torch.Tensor) or other.shape != own.shape:
            continue
        # What differs by more than rounding was changed on purpose, and stays.
        if torch.allclose(other.double(), own, rtol=_ROPE_DRIFT, atol=0):
            own.copy_(other)
