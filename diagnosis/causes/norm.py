"""What a norm is made of, so that each part can be changed.

A norm computes y = (x - m) / sqrt(v + eps) * (w + o) + b, where m is the mean or 0, v the mean of
(x - m)^2, and o is 1 where the weight is kept as its difference from one.

Legend: B rows, S sequence, H features.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any

from diagnosis.causes.leaf import bears_on
from diagnosis.replay.float64_mode import LongestSum, float64_throughout

if TYPE_CHECKING:
    import torch

    from diagnosis.causes.region import Region

_EPS_NAMES = ("variance_epsilon", "eps", "epsilon")
_USUAL_EPS = (1e-5, 1e-6, 1e-8, 1e-12)


@dataclass(frozen=True, slots=True, kw_only=True)
class Norm:
    """A norm, and how it computes.

    Attributes:
        module: the norm.
        eps_name: the attribute that holds its epsilon; empty where its code does.
        eps: what is added under the root.
        is_centred: whether the mean is taken off, as a LayerNorm does.
        offset: added to the weight.
        weight: [H], or None.
        bias: [H], or None.
        unbiased: whether the variance is divided by H - 1.
        spans: gives positions of which one mean of squares is taken; None for each by itself.
        eps_outside: whether eps is added to the root.
        summed: whether squares are summed and not averaged.
    """

    module: Any
    eps_name: str
    eps: float
    is_centred: bool
    offset: float
    weight: torch.Tensor | None
    bias: torch.Tensor | None
    unbiased: bool = False
    spans: Callable[[], list[slice]] | None = None
    eps_outside: bool = False
    summed: bool = False

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Compute the norm of x, [..., H]."""
        centred = x - x.mean(dim=-1, keepdim=True) if self.is_centred else x
        square = centred.pow(2).mean(dim=-1, keepdim=True)
        if self.spans is not None and x.ndim > 2:
            square = square.clone()
            for span in self.spans():
                square[:, span] = square[:, span].mean(dim=1, keepdim=True)
        size = x.shape[-1]
        if self.unbiased:
            square = square * size / (size - 1)
        if self.summed:
            square = square * size
        root = square.sqrt() + self.eps if self.eps_outside else (square + self.eps).sqrt()
        y = centred / root
        y = y if self.weight is None else y * (self.weight + self.offset)
        return y if self.bias is None else y + self.bias


def norms_of(region: Region) -> Iterator[Norm]:
    """Find the norms of the guilty computation, itself included, whose formula this is."""
    for _, part in region.free_modules():
        if any(True for _ in part.children()):
            continue
        name = next((name for name in _EPS_NAMES if isinstance(vars(part).get(name), float)), "")
        if name or "norm" in type(part).__name__.lower():
            found = _formula_of(part, name)
            if found is not None and bears_on(region, part):
                yield found


def _formula_of(module: Any, eps_name: str) -> Norm | None:
    """Try which of the formulas gives what the module gives."""
    import torch

    weight, bias = (module._parameters.get(name) for name in ("weight", "bias"))
    shape = tuple(getattr(module, "normalized_shape", ()) if weight is None else weight.shape)
    if len(shape) != 1:
        return None
    sample = torch.linspace(-1.5, 2.0, 3 * shape[-1], dtype=torch.float64)
    sample = (sample.sin() + 0.3 * sample).view(1, 3, -1)
    base = Norm(
        module=module,
        eps_name=eps_name,
        eps=0.0,
        is_centred=False,
        offset=0.0,
        weight=None if weight is None else weight.detach().double(),
        bias=None if bias is None else bias.detach().double(),
    )
    epsilons = (vars(module)[eps_name],) if eps_name else _USUAL_EPS
    offsets = (0.0,) if weight is None else (0.0, 1.0)
    with torch.no_grad(), float64_throughout(LongestSum()):
        right = module.forward(sample).double()
        for eps, centred, offset in product(epsilons, (False, True), offsets):
            norm = replace(base, eps=eps, is_centred=centred, offset=offset)
            if torch.allclose(norm(sample), right, rtol=1e-6, atol=1e-6):
                return norm
    return None
