"""Shows the fault of a module without modules inside by a formula of a few lines.

Legend: n tokens that are kept, F features.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from diagnosis.causes.leaf import matrix_of_module
from diagnosis.location import bad_channels
from diagnosis.repro.case import MAX_BYTES, Case, Kept, NoReproError, narrowed

if TYPE_CHECKING:
    import torch

_EPS_NAMES = ("variance_epsilon", "eps", "epsilon")
_KEPT_CHANNELS = 64
_LARGEST = MAX_BYTES // 2 // 4  # values of a weight, in float32
_ROUNDING = 1e-9  # of float64, with room


@dataclass(frozen=True, slots=True, kw_only=True)
class _Leaf:
    """A formula, with what it is computed of.

    Attributes:
        formula: its name and arguments, as the script knows them.
        input: what it is computed of, [n, ...].
        weights: by name, in float64.
        output: what it gives, [n, ...].
        notes: what was cut.
    """

    formula: dict[str, Any]
    input: torch.Tensor
    weights: dict[str, torch.Tensor]
    output: torch.Tensor
    notes: tuple[str, ...] = ()


def case_of_leaf(module: Any, given: torch.Tensor, kept: Kept) -> Case:
    """Find the formula of a module.

    Args:
        module: the guilty module, in float64.
        given: what goes into it in the row that is kept, [1, T, ...] or [T, ...].
        kept: what of its output is kept.

    Raises:
        NoReproError: none of the formulas gives what the module gives.
    """
    import torch

    expected = torch.from_numpy(kept.of(kept.check.exact))
    for x in _at_positions(given, kept):
        for leaf in _leaves(module, x):
            if leaf.output.shape == expected.shape and torch.allclose(
                leaf.output, expected, rtol=_ROUNDING, atol=_ROUNDING, equal_nan=True
            ):
                return _case(*_cut(leaf, kept))
    raise NoReproError(f"{type(module).__name__} is no formula that is known")


def _at_positions(given: torch.Tensor, kept: Kept) -> Iterator[torch.Tensor]:
    """Take the tokens that are kept, whichever axis counts them."""
    for axis in (1, 2, 0):
        if given.ndim <= axis or given.shape[axis] <= max(kept.positions):
            continue
        moved = given.movedim(axis, 0)
        yield (moved.squeeze(1) if axis > 0 else moved)[kept.positions]


def _leaves(module: Any, x: torch.Tensor) -> Iterator[_Leaf]:
    matrix = matrix_of_module(module)
    if matrix is not None and matrix.is_embedding and not x.is_floating_point():
        yield _embedding(matrix.values, x, module)
    if not x.is_floating_point():
        return
    if matrix is not None and not matrix.is_embedding and x.shape[-1] == matrix.values.shape[1]:
        yield _linear(matrix.values, getattr(module, "bias", None), x)
    eps = next((vars(module)[name] for name in _EPS_NAMES if name in vars(module)), None)
    if isinstance(eps, float):
        yield from _norms(module, x, eps)
    if not any(True for _ in module.parameters()):
        yield from _activations(x)


def _embedding(weight: torch.Tensor, ids: torch.Tensor, module: Any) -> _Leaf:
    scale = float(getattr(module, "embed_scale", 1.0))  # Gemma's
    return _Leaf(
        formula={"name": "embedding", "scale": scale},
        input=ids,
        weights={"weight": weight},
        output=weight[ids] * scale,
    )


def _linear(weight: torch.Tensor, bias: torch.Tensor | None, x: torch.Tensor) -> _Leaf:
    output = x @ weight.T if bias is None else x @ weight.T + bias.detach()
    weights = {"weight": weight} if bias is None else {"weight": weight, "bias": bias.detach()}
    return _Leaf(formula={"name": "linear"}, input=x, weights=weights, output=output)


def _norms(module: Any, x: torch.Tensor, eps: float) -> Iterator[_Leaf]:
    found = {name: module._parameters.get(name) for name in ("weight", "bias")}
    weights = {name: value.detach() for name, value in found.items() if value is not None}
    for centred in (False, True):
        for offset in (0.0, 1.0):
            middle = x - x.mean(dim=-1, keepdim=True) if centred else x
            output = middle / (middle.pow(2).mean(dim=-1, keepdim=True) + eps).sqrt()
            if "weight" in weights:
                if weights["weight"].shape[-1] != x.shape[-1]:
                    return
                output = output * (weights["weight"] + offset)
            output = output + weights["bias"] if "bias" in weights else output
            yield _Leaf(
                formula={"name": "norm", "centred": centred, "eps": eps, "offset": offset},
                input=x,
                weights=weights,
                output=output,
            )


def _activations(x: torch.Tensor) -> Iterator[_Leaf]:
    import torch
    import torch.nn.functional as F

    known: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
        "silu": F.silu,
        "gelu": F.gelu,
        "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
        "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x),
        "relu": F.relu,
        "relu2": lambda x: F.relu(x) ** 2,
        "sigmoid": torch.sigmoid,
        "tanh": torch.tanh,
    }
    for name, function in known.items():
        yield _Leaf(formula={"name": name}, input=x, weights={}, output=function(x))


def _cut(leaf: _Leaf, kept: Kept) -> tuple[_Leaf, Kept]:
    """Cut a weight that is too large: to the wrong outputs, or to the tokens that are looked up."""
    weight = leaf.weights.get("weight")
    if weight is None or weight.numel() <= _LARGEST:
        return leaf, kept
    if leaf.formula["name"] == "embedding":
        used, ids = leaf.input.unique(return_inverse=True)
        note = f"of the weight, only the rows of tokens {used.tolist()} are there, renumbered"
        return replace(leaf, input=ids, weights={"weight": weight[used]}, notes=(note,)), kept
    if leaf.formula["name"] != "linear" or kept.check.exact.ndim != 2:
        return leaf, kept
    bad = bad_channels(kept.check)
    order = [*bad.tolist(), *np.setdiff1d(np.arange(len(weight)), bad).tolist()]
    channels = tuple(sorted(order[:_KEPT_CHANNELS]))
    weights = {name: value[list(channels)] for name, value in leaf.weights.items()}
    note = f"of the {len(weight)} outputs, only {len(channels)} are there, the wrong ones first"
    return replace(leaf, weights=weights, notes=(note,)), replace(kept, channels=channels)


def _case(leaf: _Leaf, kept: Kept) -> Case:
    dtype = kept.check.dtype
    tensors = {name: narrowed(value, dtype) for name, value in leaf.weights.items()}
    return Case(
        case={"formula": leaf.formula, **kept.described()},
        tensors={"input": narrowed(leaf.input, dtype), **tensors, **kept.tensors()},
        notes=leaf.notes,
    )
