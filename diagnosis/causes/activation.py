"""Another activation function, or the right one at the wrong place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any

from diagnosis.causes.changes import with_forward
from diagnosis.causes.leaf import bears_on
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
        expects = f"the reference does so by {right}" if right else ""
        for says, made, starts in _families(module.forward):
            yield FittedTrial(
                cause="activation",
                says=says,
                expects=expects,
                change=partial(_of_family, module, made),
                starts=starts,
                neutral=0.0,
            )
        usual = module.forward
        yield RunTrial(
            cause="activation",
            says="activates twice",
            expects=expects,
            change=partial(with_forward, module, lambda x, f=usual: f(f(x))),
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
        is_function = is_function and torch.equal(given[:1], alone)
        if is_function and bears_on(region, module):
            yield module, _name_of(given, sample)


def _name_of(given: torch.Tensor, sample: torch.Tensor) -> str | None:
    import torch

    for name, function in _functions().items():
        if torch.allclose(function(sample), given.double(), rtol=1e-9, atol=1e-12):
            return name
    return None


Family = Callable[["torch.Tensor", float], "torch.Tensor"]


def _families(usual: Callable[..., Any]) -> Iterator[tuple[str, Family, tuple[float, ...]]]:
    """List functions with a number in them, and where to begin to seek it."""
    import torch
    from torch.nn import functional

    sigmoid = torch.sigmoid
    yield "activates by x times sigmoid({value} x)", lambda x, a: x * sigmoid(a * x), (1.0, 1.702)
    yield (
        "activates by leaky ReLU with slope {value}",
        lambda x, a: functional.relu(x) - a * functional.relu(-x),
        (0.01, 0.1, 0.25),
    )
    yield (
        "activates by ELU with alpha {value}",
        lambda x, a: torch.where(x > 0, x, a * torch.expm1(torch.clamp(x, max=0))),
        (1.0, 1.67),
    )
    yield "multiplies what it activates by {value} first", lambda x, a: usual(a * x), (2.0, 0.5)


def _of_family(module: Any, made: Family, number: float) -> AbstractContextManager[None]:
    return with_forward(module, lambda x: made(x, number))


def _gated(region: Region) -> Iterator[Trial]:
    """Change what an MLP makes of gate and up, be these modules of their own or one."""
    module = region.module
    act = getattr(module, "act_fn", None) or getattr(module, "activation_fn", None)
    down, split = getattr(module, "down_proj", None), _gate_and_up(module)
    if act is None or down is None or split is None:
        return
    ways: Mapping[str, Callable[[Any, Any], Any]] = {
        "activates the up projection and not the gate": lambda gate, up: gate * act(up),
        "adds gate and up projection and does not multiply them": lambda gate, up: act(gate) + up,
        "activates the product of gate and up projection": lambda gate, up: act(gate * up),
        "activates both gate and up projection": lambda gate, up: act(gate) * act(up),
        "leaves the up projection out": lambda gate, up: act(gate),
        "leaves the gate out": lambda gate, up: act(up),
        "adds one to the up projection": lambda gate, up: act(gate) * (up + 1),
        "adds one to the activated gate": lambda gate, up: (act(gate) + 1) * up,
        "multiplies gate and up projection and activates nothing": lambda gate, up: gate * up,
        "activates the gate twice": lambda gate, up: act(act(gate)) * up,
    }
    for says, way in ways.items():
        yield RunTrial(
            cause="activation",
            says=says,
            change=partial(with_forward, module, partial(_combined, split, way, down)),
        )


def _combined(split: Any, way: Any, down: Any, x: Any) -> Any:
    return down(way(*split(x)))


def _gate_and_up(module: Any) -> Callable[[Any], tuple[Any, Any]] | None:
    """Return what gives both of an input; None where the module has neither."""
    gate, up = getattr(module, "gate_proj", None), getattr(module, "up_proj", None)
    if gate is not None and up is not None:
        return lambda x: (gate(x), up(x))
    both = getattr(module, "gate_up_proj", None)
    return None if both is None else lambda x: both(x).chunk(2, dim=-1)
