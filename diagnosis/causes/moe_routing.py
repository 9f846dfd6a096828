"""Which experts get a token, and with which weights.

Legend: n tokens, E experts, K experts a token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any

from diagnosis.causes import experts
from diagnosis.causes.changes import with_attributes, with_buffer, with_call, with_output
from diagnosis.causes.trial import RunTrial, Sign, Trial

if TYPE_CHECKING:
    import torch

    from diagnosis.causes.region import Region


def trials(region: Region) -> Iterator[Trial]:
    """Change scores, choice, weights, and what is added to the experts' outputs."""
    holders = list(_routers(region))
    if not holders:
        return
    yield from _of_attributes(holders)
    yield from _of_bias(region)
    for says, change in _of_calls(region).items():
        yield RunTrial(cause="moe_routing", says=says, change=change)
    yield from experts.trials_of_router(region)
    yield from experts.trials(region)
    yield from _of_shared(region)


def signs(region: Region) -> Iterator[Sign]:
    """Tell a router's output that is wrong."""
    name = region.first.name
    is_router = any(word in name for word in ("router", ".gate-", "top_k", "experts-input"))
    if is_router and list(_routers(region)):
        yield Sign(cause="moe_routing", says="routes tokens otherwise", weight=0.75)


def _routers(region: Region) -> Iterator[Any]:
    for _, module in region.free_modules():
        if any(hasattr(module, name) for name in ("top_k", "num_experts", "n_routed_experts")):
            yield module


def _of_attributes(holders: list[Any]) -> Iterator[Trial]:
    for module in holders:
        for name, value in list(vars(module).items()):
            for says, other in _others(name, value):
                yield RunTrial(
                    cause="moe_routing",
                    says=says,
                    change=partial(with_attributes, module, {name: other}),
                )


def _others(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, bool) and "norm" in name:
        yield (
            (
                "does not norm the weights of the chosen experts"
                if value
                else "norms the weights of the chosen experts"
            ),
            not value,
        )
    elif name in ("top_k", "num_experts_per_tok") and isinstance(value, int):
        for other in (value - 1, value + 1, 1):
            if 0 < other != value:
                yield f"gives each token {other} experts where it gets {value}", other
    elif "scaling_factor" in name and isinstance(value, float):
        yield f"leaves the routed scaling factor of {value:g} out", 1.0


def _of_bias(region: Region) -> Iterator[Trial]:
    """Leave the bias that helps to choose experts out, or keep it in their weights."""
    import torch

    for _, module in region.module.named_modules():
        for name, buffer in list(module.named_buffers(recurse=False)):
            if "bias" not in name:
                continue
            yield RunTrial(
                cause="moe_routing",
                says="chooses experts without the correction bias",
                change=partial(with_buffer, module, name, torch.zeros_like(buffer)),
            )
            kept = partial(_bias_kept, buffer)
            yield RunTrial(
                cause="moe_routing", says="keeps the correction bias in the weights", change=kept
            )
            yield RunTrial(
                cause="moe_routing",
                says="scores experts by softmax and keeps the correction bias in the weights",
                change=partial(_together, kept, _softmax_for_sigmoid),
            )


def _together(first: Any, second: Any) -> AbstractContextManager[None]:
    from contextlib import ExitStack

    stack = ExitStack()
    stack.enter_context(first())
    stack.enter_context(second())
    return stack  # type: ignore[return-value]  # what it gives is not used


def _bias_kept(bias: torch.Tensor) -> AbstractContextManager[None]:
    import torch

    def gather(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        scores = args[0]
        if scores.shape[-1] == bias.numel():
            scores = scores + bias
        return func(scores, *args[1:], **kwargs)

    return with_call(frozenset({torch.gather, torch.Tensor.gather}), gather)


def _softmax_for_sigmoid() -> AbstractContextManager[None]:
    import torch

    functions = frozenset({torch.sigmoid, torch.Tensor.sigmoid})
    return with_call(functions, lambda func, args, kwargs: args[0].softmax(dim=-1))


def _of_calls(region: Region) -> dict[str, Callable[[], AbstractContextManager[None]]]:
    import torch
    from torch.nn import functional

    softmax = frozenset({torch.softmax, torch.Tensor.softmax, functional.softmax})
    topk = frozenset({torch.topk, torch.Tensor.topk})
    return {
        "scores experts by softmax and not by sigmoid": _softmax_for_sigmoid,
        "scores experts by sigmoid and not by softmax": lambda: with_call(
            softmax, lambda func, args, kwargs: args[0].sigmoid()
        ),
        "takes the experts with the lowest scores": lambda: with_call(
            topk, lambda func, args, kwargs: func(-args[0], *args[1:], **kwargs)
        ),
        "gives the chosen experts each other's weights": lambda: with_call(topk, _turned_around),
        "gives all weight to the first of the chosen experts": lambda: with_call(topk, _first_only),
        "weighs the chosen experts alike": lambda: with_call(topk, _alike),
        "passes the best expert over": lambda: with_call(topk, _best_passed_over),
        "never chooses the last expert": lambda: with_call(topk, partial(_without, -1)),
        "never chooses the first expert": lambda: with_call(topk, partial(_without, 0)),
    }


def _turned_around(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    found = func(*args, **kwargs)
    return found[0].flip(-1), found[1]


def _first_only(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    values, ids = func(*args, **kwargs)
    values = values.clone()
    values[..., 1:] = 0
    return values, ids


def _alike(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    import torch

    values, ids = func(*args, **kwargs)
    return torch.ones_like(values), ids


def _best_passed_over(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Take the experts behind the best one."""
    scores, count, rest = _scores_and_count(args, kwargs)
    values, ids = func(scores, count + 1, **rest)
    return values[..., 1:], ids[..., 1:]


def _without(expert: int, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    scores, count, rest = _scores_and_count(args, kwargs)
    scores = scores.clone()
    scores[..., expert] = scores.min() - 1.0
    return func(scores, count, **rest)


def _scores_and_count(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, int, Any]:
    rest = {key: value for key, value in kwargs.items() if key not in ("k", "sorted")}
    return args[0], args[1] if len(args) > 1 else kwargs["k"], rest


def _of_shared(region: Region) -> Iterator[Trial]:
    """Leave experts out that see all tokens, or add them twice."""
    for path, module in region.module.named_children():
        if "shared" in path:
            for says, factor in (
                (f"leaves {path} out", 0.0),
                (f"adds {path} twice", 2.0),
                (f"takes {path} off", -1.0),
            ):
                yield RunTrial(
                    cause="moe_routing",
                    says=says,
                    change=partial(with_output, module, partial(_times, factor)),
                )


def _times(factor: float, output: Any) -> Any:
    return output * factor
