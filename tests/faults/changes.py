"""Small changes of one module, which several plants share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tests.faults.own_attention import replace_forward, wrap_forward

Change = Callable[[Any], object]


def scaled(factor: float) -> Change:
    """Let the module return a multiple."""
    return changed_output(lambda y: y * factor)


def changed_output(change: Callable[[torch.Tensor], torch.Tensor]) -> Change:
    """Let the module return a function of its (first) output."""

    def of(module: Any, output: Any) -> Any:
        if isinstance(output, tuple):
            return (change(output[0]), *output[1:])
        return change(output)

    return lambda module: wrap_forward(module, of)


def changed_input(change: Callable[[torch.Tensor], torch.Tensor]) -> Change:
    """Let the module compute on a function of what it is given."""

    def apply(module: Any) -> None:
        usual = module.forward
        replace_forward(module, lambda self, x, *args, **kw: usual(change(x), *args, **kw))

    return apply


def weight(change: Callable[[torch.Tensor], torch.Tensor], name: str = "weight") -> Change:
    """Replace a weight by a function of it; one that is tied to another is untied."""

    def apply(module: Any) -> None:
        old = getattr(module, name)
        new = change(old.detach().clone()).to(old.dtype).contiguous()
        setattr(module, name, torch.nn.Parameter(new))

    return apply


def bias(change: Callable[[torch.Tensor], torch.Tensor]) -> Change:
    return weight(change, "bias")


def attribute(**values: Any) -> Change:
    """Set attributes of a module."""

    def apply(module: Any) -> None:
        for name, value in values.items():
            if not hasattr(module, name):
                raise AttributeError(f"{type(module).__name__} has no {name}: the fault is void")
            setattr(module, name, value)

    return apply


def swap_modules(first: str, second: str) -> Change:
    """Let two children of the root change places, named by their paths."""

    def apply(root: Any) -> None:
        modules = [root.get_submodule(path) for path in (first, second)]
        for path, module in zip((first, second), reversed(modules), strict=True):
            parent, _, leaf = path.rpartition(".")
            setattr(root.get_submodule(parent), leaf, module)

    return apply


def swap_weights(first: str, second: str) -> Change:
    """Let two parameters of the root change places, named by their paths."""

    def apply(root: Any) -> None:
        one, other = root.get_parameter(first), root.get_parameter(second)
        held = one.detach().clone()
        one.copy_(other)
        other.copy_(held)

    return apply


def noise_like(tensor: torch.Tensor, seed: int = 3) -> torch.Tensor:
    """Draw random numbers of a tensor's shape and dtype."""
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(tensor.shape, generator=generator) * 0.3).to(tensor.dtype)


def before_call(change: Callable[[tuple[Any, ...], dict[str, Any]], Any]) -> Change:
    """Change what a module is given by its caller; the dump shows what it was given."""

    def apply(module: Any) -> None:
        module.register_forward_pre_hook(
            lambda module, args, kwargs: change(args, kwargs), with_kwargs=True
        )

    return apply


def at_rows(tensor: torch.Tensor, start: int, value: float) -> torch.Tensor:
    """Corrupt the tokens of a tensor [B, S, H] from a place on."""
    found = tensor.clone()
    found[:, start:] *= value
    return found
