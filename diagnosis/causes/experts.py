"""What stacks of experts do with the tokens and weights that they get.

Legend: n tokens, E experts, K experts a token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from diagnosis.causes.changes import with_arguments, with_forward
from diagnosis.causes.trial import RunTrial, Trial

if TYPE_CHECKING:
    import torch

    from diagnosis.causes.region import Region

_MOST_EXPERTS = 64
_RANKS = (2, 4, 8)
_MOST_CAPACITIES = 16

Routed = tuple["torch.Tensor", "torch.Tensor"]  # numbers of experts and weights, both [n, K]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """A module that computes all experts.

    Attributes:
        module: the module.
        count: number of experts.
    """

    module: Any
    count: int


def stacks_of(region: Region) -> Iterator[Stack]:
    """Find the modules whose parameters are stacks of matrices, [E, out, in]."""
    for _, module in region.free_modules():
        sizes = {p.shape[0] for p in module.parameters(recurse=False) if p.ndim == 3}
        if len(sizes) == 1:
            yield Stack(module=module, count=sizes.pop())


def trials(region: Region) -> Iterator[Trial]:
    """Take other experts, other weights, or the weights elsewhere; then lose experts."""
    for stack in stacks_of(region):
        for says, change in _ways(stack.count).items():
            yield RunTrial(cause="moe_routing", says=says, change=partial(_routed, stack, change))
        yield RunTrial(
            cause="moe_routing",
            says="multiplies what goes into the experts by their weights, and not what comes out",
            change=partial(_weights_on_input, stack.module),
        )
        yield from _of_lost(stack)


def trials_of_router(region: Region) -> Iterator[Trial]:
    """Let a router's experts take a number of tokens at most."""
    module = region.module
    if getattr(module, "top_k", None) is None or region.first.is_input:
        return
    tokens = max((call.prompt_tokens for call in region.checker.wide_calls), default=0)
    for most in range(1, min(tokens, _MOST_CAPACITIES) + 1):
        yield RunTrial(
            cause="moe_routing",
            says=f"lets each expert have {most} tokens of a call, and drops the others",
            change=partial(with_forward, module, partial(_dropped, region, most, module.forward)),
        )


def _ways(count: int) -> dict[str, Callable[[Routed], Routed]]:
    import torch

    def first_only(routed: Routed) -> Routed:
        ids, weights = routed
        kept = torch.zeros_like(weights)
        kept[:, :1] = weights[:, :1]
        return ids, kept

    def last_lost(routed: Routed) -> Routed:
        ids, weights = routed
        kept = weights.clone()
        kept[:, -1] = 0
        return ids, kept

    return {
        "takes the next expert for each": lambda r: ((r[0] + 1) % count, r[1]),
        "takes the expert before for each": lambda r: ((r[0] - 1) % count, r[1]),
        "counts the experts from the other end": lambda r: (count - 1 - r[0], r[1]),
        "takes the first of the chosen experts only": first_only,
        "leaves the last of the chosen experts out": last_lost,
        "leaves the experts' weights out": lambda r: (r[0], torch.ones_like(r[1])),
        "weighs the chosen experts alike": lambda r: (
            r[0], torch.ones_like(r[1]) * r[1].mean(-1, keepdim=True),
        ),
        "gives the chosen experts each other's weights": lambda r: (r[0], r[1].flip(-1)),
        "multiplies by the experts' weights twice": lambda r: (r[0], r[1] * r[1]),
        "norms the weights of the chosen experts": lambda r: (
            r[0], r[1] / r[1].sum(-1, keepdim=True),
        ),
        "takes a softmax of the weights once more": lambda r: (r[0], r[1].softmax(-1)),
    }  # fmt: skip


def _of_lost(stack: Stack) -> Iterator[Trial]:
    """Leave each expert out by itself, then those of a rank, or of all ranks but one."""
    for expert in range(min(stack.count, _MOST_EXPERTS)):
        says = f"gives nothing for expert {expert}, as where its weights are missing"
        yield _lost(stack, "weights", says, [expert])
    for ranks in _RANKS:
        size = stack.count // ranks
        if stack.count % ranks or size < 2:
            continue
        for rank in range(ranks):
            own = range(rank * size, (rank + 1) * size)
            others = [expert for expert in range(stack.count) if expert not in own]
            yield _lost(stack, "shard", f"leaves the experts of rank {rank} of {ranks} out", own)
            if ranks > 2:
                says = f"has the experts of rank {rank} of {ranks} only"
                yield _lost(stack, "shard", says, others)


def _lost(stack: Stack, cause: str, says: str, experts: Any) -> RunTrial:
    import torch

    def change(routed: Routed) -> Routed:
        ids, weights = routed
        gone = torch.isin(ids, torch.tensor(list(experts)))
        return ids, weights.masked_fill(gone, 0.0)

    return RunTrial(cause=cause, says=says, change=partial(_routed, stack, change))


def _routed(stack: Stack, change: Callable[[Routed], Routed]) -> AbstractContextManager[None]:
    """Call the experts with other numbers and weights."""

    def arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        named: dict[Any, Any] = dict(enumerate(args))
        named.update(kwargs)
        ids, weights = _places(named)
        named[ids], named[weights] = change((named[ids], named[weights]))
        return tuple(named[at] for at in range(len(args))), {key: named[key] for key in kwargs}

    return with_arguments(stack.module, arguments)


def _places(named: dict[Any, Any]) -> tuple[Any, Any]:
    """Find which arguments are numbers of experts and their weights."""
    ids = next(key for key, value in named.items() if _is_int(value))
    shape = named[ids].shape
    weights = next(
        key for key, value in named.items() if key != ids and getattr(value, "shape", 0) == shape
    )
    return ids, weights


def _is_int(value: Any) -> bool:
    return getattr(value, "ndim", 0) == 2 and not value.is_floating_point()


def _weights_on_input(module: Any) -> AbstractContextManager[None]:
    import torch

    usual = module.forward

    def forward(x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        ones = torch.ones_like(weights[:, :1])
        parts = [
            usual(x * weights[:, k, None], ids[:, k : k + 1], ones) for k in range(ids.shape[1])
        ]
        return torch.stack(parts).sum(0)

    return with_forward(module, forward)


def _dropped(region: Region, most: int, usual: Any, *args: Any, **kwargs: Any) -> Any:
    """Take the weights of tokens away that come after an expert is full."""
    from torch.nn import functional

    output = usual(*args, **kwargs)
    if not isinstance(output, tuple):
        return output
    named = dict(enumerate(output))
    ids_at, weights_at = _places(named)
    ids, weights = named[ids_at], named[weights_at].clone()
    for span in region.spans():
        own = ids[span]
        counts = functional.one_hot(own, int(ids.max()) + 1).flatten(0, 1).cumsum(0)
        place = counts.gather(1, own.flatten()[:, None]).view(own.shape)
        weights[span] = weights[span] * (place <= most)
    named[weights_at] = weights
    return tuple(named[at] for at in range(len(output)))
