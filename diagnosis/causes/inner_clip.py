"""Values that are cut off inside of a module: at another limit, not at all, or only there."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from diagnosis.causes.changes import with_call, with_output
from diagnosis.causes.trial import FittedTrial, RunTrial, Trial

if TYPE_CHECKING:
    import torch

    from diagnosis.causes.region import Region

_USUAL = (1.0, 7.0, 10.0, 30.0, 0.3, 3.0, 100.0)
_QUERIES = re.compile(r"(^|_)(q|query)(_|$)|^wq$")
_KEYS = re.compile(r"(^|_)(k|key)(_|$)|^wk$")
_VALUES = re.compile(r"(^|_)(v|value)(_|$)|^wv$")
_FUSED = re.compile(r"qkv|query_key_value|c_attn", re.IGNORECASE)


def trials(region: Region) -> Iterator[Trial]:
    """Leave out what the module's own code cuts off, cut it off elsewhere, then its projections."""
    clamps = _clamps()
    yield RunTrial(
        cause="clip",
        says="cuts nothing off where the reference does",
        change=partial(with_call, clamps, lambda function, args, kwargs: args[0]),
    )
    for number, what in enumerate(("first", "second", "third")):
        yield RunTrial(
            cause="clip",
            says=f"does not cut off the {what} of the values that the reference does",
            change=partial(_without, clamps, number),
        )
    yield FittedTrial(
        cause="clip",
        says="cuts values off at {value} where the reference does elsewhere",
        change=lambda limit: with_call(clamps, partial(_cut_at, limit)),
        starts=_USUAL,
    )
    if not region.has_attention:
        return
    for what, parts in _projections(region.module):
        yield FittedTrial(
            cause="clip",
            says=f"cuts {what} off at {{value}} on both sides",
            change=partial(_cut_outputs, parts),
            starts=_USUAL,
        )


def _clamps() -> frozenset[Any]:
    import torch

    return frozenset({
        torch.clamp, torch.clip, torch.clamp_, torch.Tensor.clamp, torch.Tensor.clip,
        torch.Tensor.clamp_, torch.Tensor.clip_,
    })  # fmt: skip


def _without(clamps: frozenset[Any], number: int) -> AbstractContextManager[None]:
    """Leave one of the calls out, counted from 0."""
    seen: list[None] = []

    def cut(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        seen.append(None)
        return args[0] if len(seen) == number + 1 else function(*args, **kwargs)

    return with_call(clamps, cut)


def _cut_at(
    limit: float, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> torch.Tensor:
    """Cut at another limit, on the sides that the call cuts at."""
    low = kwargs.get("min", args[1] if len(args) > 1 else None)
    high = kwargs.get("max", args[2] if len(args) > 2 else None)
    limit = max(limit, 0.0)
    found: torch.Tensor = function(
        args[0], None if low is None else -limit, None if high is None else limit
    )
    return found


def _projections(module: Any) -> Iterator[tuple[str, Sequence[Any]]]:
    """Name what is cut off in the ways that ports do: projections, or the norms behind them."""
    children = dict(module.named_children())

    def last(pattern: re.Pattern[str]) -> list[Any]:
        return [part for name, part in children.items() if pattern.search(name)][-1:]

    fused = last(_FUSED)
    if fused:
        yield "queries, keys and values", fused
        return
    queries, keys, values = map(last, (_QUERIES, _KEYS, _VALUES))
    yield "queries, keys and values", [*queries, *keys, *values]
    yield "queries and keys", [*queries, *keys]
    yield "values", values


@contextmanager
def _cut_outputs(parts: Sequence[Any], limit: float) -> Iterator[None]:
    with ExitStack() as stack:
        for part in parts:
            stack.enter_context(with_output(part, _cut(limit)))
        yield


def _cut(limit: float) -> Callable[[torch.Tensor], torch.Tensor]:
    size = max(limit, 0.0)
    return lambda output: output.clamp(-size, size)
