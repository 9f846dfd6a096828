"""How faults get into a module: by functions that it calls, its cache, its mask, its positions.

Legend: B rows, N heads, K heads of keys, S sequence, T tokens so far, D head size, H hidden.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch

from tests.faults.changes import Change
from tests.faults.own_attention import replace_forward

Tensor = torch.Tensor
Step = Callable[..., Any]
LEAST = torch.finfo(torch.float32).min


def within(**functions: Callable[[Step], Step]) -> Change:
    """While a module runs, let its source file hold other functions: `name=make(usual)`."""

    def apply(module: Any) -> None:
        usual, names = module.forward, vars(sys.modules[type(module).__module__])
        missing = set(functions) - set(names)
        if missing:
            raise AttributeError(f"{type(module).__name__} calls no {missing}: the fault is void")

        def forward(_: Any, *args: Any, **kwargs: Any) -> Any:
            held = {name: names[name] for name in functions}
            names.update({name: make(held[name]) for name, make in functions.items()})
            try:
                return usual(*args, **kwargs)
            finally:
                names.update(held)

        # Who asks what a model takes, asks what its own forward does.
        forward.__wrapped__ = getattr(usual, "__func__", usual)  # type: ignore[attr-defined]
        replace_forward(module, forward)

    return apply


def attending(change: Step) -> Change:
    """Let attention compute on other things: `change(module, q, k, v, mask)` gives four of them."""

    def make(usual: Step) -> Step:
        def attend(
            module: Any, q: Any, k: Any, v: Any, mask: Any, *args: Any, **kwargs: Any
        ) -> Any:
            return usual(module, *change(module, q, k, v, mask), *args, **kwargs)

        return attend

    return within(eager_attention_forward=make)


def masking(change: Callable[[Tensor], Tensor | None]) -> Change:
    """Let attention use another mask [B, 1, S, T] than it is given."""
    return attending(lambda module, q, k, v, mask: (q, k, v, change(mask)))


def attended(change: Callable[[Tensor], Tensor]) -> Change:
    """Let what attention has mixed, [B, S, N, D], be changed before the output projection."""

    def make(usual: Step) -> Step:
        def attend(*args: Any, **kwargs: Any) -> Any:
            mixed, weights = usual(*args, **kwargs)
            return change(mixed), weights

        return attend

    return within(eager_attention_forward=make)


def rotating(change: Step) -> Change:
    """Replace the rotation: `change(usual, q, k, cos, sin)` gives q and k [B, N, S, D]."""
    return within(
        apply_rotary_pos_emb=lambda usual: (
            lambda q, k, cos, sin, *_, **__: change(usual, q, k, cos, sin)
        )
    )


class _Cache:
    """A cache that is updated another way, and is the usual one in all else."""

    def __init__(self, cache: Any, update: Step) -> None:
        self._cache, self._update = cache, update

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cache, name)

    def update(self, k: Tensor, v: Tensor, layer: int, *_: Any) -> Any:
        return self._update(self._cache, k, v, layer)


def remembering(update: Step) -> Change:
    """Update the cache so: `update(cache, k, v, layer)` gives keys and values of all tokens."""

    def apply(module: Any) -> None:
        usual = module.forward

        def forward(_: Any, *args: Any, **kwargs: Any) -> Any:
            for name in ("past_key_values", "layer_past"):
                if kwargs.get(name) is not None:
                    kwargs[name] = _Cache(kwargs[name], update)
            return usual(*args, **kwargs)

        replace_forward(module, forward)

    return apply


def counting(change: Callable[[Tensor], Tensor]) -> Change:
    """Let the body of a model count positions [B, S] otherwise than it is told."""

    def apply(module: Any) -> None:
        usual = module.forward

        def forward(_: Any, *args: Any, **kwargs: Any) -> Any:
            kwargs["position_ids"] = change(kwargs["position_ids"])
            return usual(*args, **kwargs)

        replace_forward(module, forward)

    return apply


def configured(**values: Any) -> Change:
    """Let the code read other settings than the configuration that the dump shows has."""

    def apply(root: Any) -> None:
        for name, value in values.items():
            if not hasattr(root.config, name):
                raise AttributeError(f"{type(root).__name__} has no {name}: the fault is void")
            setattr(root.config, name, value)

    return apply


def places(mask: Tensor) -> tuple[Tensor, Tensor]:
    """Return the places of queries [S, 1] and of keys [1, T] of a mask [B, 1, S, T]."""
    length, total = mask.shape[-2:]
    return torch.arange(total - length, total)[:, None], torch.arange(total)[None]


def hiding(rule: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Hide keys where `rule(query, key)` is true."""
    return lambda mask: mask.masked_fill(rule(*places(mask)), LEAST)


def showing(rule: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Show keys where `rule(query, key)` is true, but padding; a single query's mask stays."""

    def change(mask: Tensor) -> Tensor:
        if mask.shape[-2] == 1:
            return mask
        real = mask.diagonal(dim1=-2, dim2=-1)[:, :, None, :] == 0  # [B, 1, 1, T]
        return mask.masked_fill(rule(*places(mask)) & real, 0.0)

    return change


def by_decoding(change: Callable[[Tensor], Tensor], *, usual: Any = lambda x: x) -> Any:
    """Change only what has one token a row: [B, 1, H]."""
    return lambda x: change(x) if x.shape[1] == 1 else usual(x)


def rounded(dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
    """Round to another dtype and back."""
    return lambda x: x.to(dtype).to(x.dtype)
