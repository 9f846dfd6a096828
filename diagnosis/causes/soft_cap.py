"""Soft capping, y = c * tanh(x / c): left out, too much, or with another cap.

The cap of the reference is found where its code calls tanh.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from diagnosis.causes.attention_sites import HIDDEN_BELOW, AttentionChange, changed_attention
from diagnosis.causes.changes import with_call, with_forward
from diagnosis.causes.masks import distances, keys_unhidden, scoring
from diagnosis.causes.trial import FittedTrial, RunTrial, Trial

if TYPE_CHECKING:
    import torch

    from diagnosis.causes.region import Region


_CAPS = (2.0, 1.0, 5.0, 20.0, 50.0)


def trials(region: Region) -> Iterator[Trial]:
    """Change each tanh that the module's own code calls, then cap scores and output."""
    yield from _of_tanh(region)
    if region.has_attention:
        yield FittedTrial(
            cause="soft_cap",
            says="caps the attention scores softly at {value}",
            change=_scores_capped,
            starts=_CAPS,
        )
        yield FittedTrial(
            cause="soft_cap",
            says="caps the scores softly at {value} behind the mask, which hides nothing then",
            change=partial(_masked_capped, region),
            starts=_CAPS,
        )
    if region.module is region.model or "head" in region.name:
        yield FittedTrial(
            cause="soft_cap",
            says="caps the logits softly at {value}",
            change=partial(_logits_capped, region),
            starts=(5.0, 2.0, 15.0, 30.0),
        )


def _of_tanh(region: Region) -> Iterator[Trial]:
    functions = _tanhs()
    seen: list[object] = []

    def look(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        seen.append(func)
        return func(*args, **kwargs)

    before = region.plain
    region.values(lambda: with_call(functions, look))
    if not seen:
        return
    changed = region.values(lambda: with_call(functions, lambda f, args, kw: args[0]))
    name = region.first.name
    if np.array_equal(before[name], changed[name], equal_nan=True):
        return
    yield RunTrial(
        cause="soft_cap",
        says="leaves the soft cap out",
        change=lambda: with_call(functions, lambda f, args, kw: args[0]),
    )
    yield RunTrial(
        cause="soft_cap",
        says="cuts off at the cap, and does not bend towards it",
        change=lambda: with_call(functions, lambda f, args, kw: args[0].clamp(-1.0, 1.0)),
    )
    yield FittedTrial(
        cause="soft_cap",
        says="caps softly at {value} times the right cap",
        change=lambda ratio: with_call(functions, partial(_with_ratio, ratio)),
        starts=(0.5, 2.0, 0.8, 1.25, 0.1, 10.0),
        neutral=1.0,
    )


def _tanhs() -> frozenset[Any]:
    import torch

    return frozenset({torch.tanh, torch.Tensor.tanh, torch.nn.functional.tanh})


def _with_ratio(ratio: float, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return func(args[0] / ratio, **kwargs) * ratio


def _capped(x: torch.Tensor, limit: float) -> torch.Tensor:
    return (x / limit).tanh() * limit


def _scores_capped(limit: float) -> AbstractContextManager[None]:
    def scores(x: torch.Tensor) -> torch.Tensor:
        return _capped(x, limit).where(x > HIDDEN_BELOW, x)

    return changed_attention(AttentionChange(scores=scores))


@contextmanager
def _masked_capped(region: Region, limit: float) -> Iterator[None]:
    """Take the reference's own cap away, and cap what the softmax gets."""
    import torch

    def rescore(scores: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        there = keys_unhidden(region, seen, distances(scores))
        capped = torch.where(seen, _capped(scores, limit), -limit)
        return capped.masked_fill(~there, -torch.inf)

    # The innermost comes first, so that the tanh above is none of those that are taken away.
    with scoring(region, rescore), with_call(_tanhs(), lambda f, args, kw: args[0]):
        yield


def _logits_capped(region: Region, limit: float) -> AbstractContextManager[None]:
    usual = region.module.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        output = usual(*args, **kwargs)
        if hasattr(output, "logits"):
            output.logits = _capped(output.logits, limit)
            return output
        return _capped(output, limit)

    return with_forward(region.module, forward)
