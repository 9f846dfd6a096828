"""Another activation function, or the right one at the wrong place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any

from diagnosis.causes.changes import with_forward
from diagnosis.causes.trial import FittedTrial, RunTrial, Trial

if TYPE_CHECKING:
    import torch

    from diagnosis.causes.region import Region


def trials(region: Region) -> Iterator[Trial]:
    """Replace each activation, then combine gate and up in other ways."""
    for module, right in _activations(region):
        for name, function in _functions().items():
            if name != right:
                yield RunTrial(
                    cause="activation",
                    says=f"activates by {name}",
                    expects=f"the reference does so by {right}" if right else "",
                    change=partial(with_forward, module, function),
                )
        yield FittedTrial(
            cause="activation",
            says="activates by x times sigmoid({value} x)",
            expects=f"the reference does so by {right}" if right else "",
            change=partial(_sigmoid_times, module),
            starts=(1.0, 1.702),
        )
    yield from _gated(region)


def _functions() -> Mapping[str, Callable[[torch.Tensor], torch.Tensor]]:
    import torch
    from torch.nn import functional

    return {
        "GELU (erf)": functional.gelu,
        "GELU (tanh)": partial(functional.gelu, approximate="tanh"),
        "quick GELU": lambda x: x * torch.sigmoid(1.702 * x),
        "SiLU": functional.silu,
        "ReLU": functional.relu,
        "squared ReLU": lambda x: functional.relu(x).square(),
        "ReLU6": functional.relu6,
        "leaky ReLU": functional.leaky_relu,
        "ELU": functional.elu,
        "sigmoid": torch.sigmoid,
        "tanh": torch.tanh,
        "mish": functional.mish,
        "softplus": functional.softplus,
        "hard swish": functional.hardswish,
        "nothing": lambda x: x,
    }


def _activations(region: Region) -> Iterator[tuple[Any, str | None]]:
    """Find modules without weights that change each number by itself, and say which they are."""
    import torch

    sample = torch.linspace(-4.0, 4.0, 101, dtype=torch.float64)
    for _, module in region.free_modules():
        if any(True for _ in module.parameters()) or any(True for _ in module.children()):
            continue
        try:
            with torch.no_grad():
                given, alone = module.forward(sample), module.forward(sample[:1])
        except (TypeError, ValueError, RuntimeError, IndexError, AttributeError):
            continue  # no function of one tensor
        is_function = isinstance(given, torch.Tensor) and given.shape == sample.shape
        if is_function and torch.equal(given[:1], alone):
            yield module, _name_of(given, sample)


def _name_of(given: torch.Tensor, sample: torch.Tensor) -> str | None:
    import torch

    for name, function in _functions().items():
        if torch.allclose(function(sample), given.double(), rtol=1e-9, atol=1e-12):
            return name
    return None


def _sigmoid_times(module: Any, factor: float) -> AbstractContextManager[None]:
    import torch

    return with_forward(module, lambda x: x * torch.sigmoid(factor * x))


def _gated(region: Region) -> Iterator[Trial]:
    """Change what an MLP makes of gate and up, where these are modules of its own."""
    module = region.module
    names = ("gate_proj", "up_proj", "down_proj", "act_fn")
    if not all(hasattr(module, name) for name in names):
        return
    gate, up, down, act = (getattr(module, name) for name in names)
    ways: Mapping[str, Callable[[Any], Any]] = {
        "activates the up projection and not the gate": lambda x: down(gate(x) * act(up(x))),
        "adds gate and up projection and does not multiply them": (
            lambda x: down(act(gate(x)) + up(x))
        ),
        "activates the product of gate and up projection": lambda x: down(act(gate(x) * up(x))),
        "activates both gate and up projection": lambda x: down(act(gate(x)) * act(up(x))),
        "leaves the up projection out": lambda x: _used(down(act(gate(x))), up(x)),
        "leaves the gate out": lambda x: _used(down(act(up(x))), gate(x)),
    }
    for says, forward in ways.items():
        yield RunTrial(cause="activation", says=says, change=partial(with_forward, module, forward))


def _used(value: Any, other: Any) -> Any:
    """Give a value; the other one is computed so that its module is called, too."""
    del other
    return value
