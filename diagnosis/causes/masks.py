"""Which keys each query sees, and how to let it see others.

Legend: B rows, N heads, S queries, T keys; a replay has the whole row, so S = T.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from diagnosis.causes.attention_sites import HIDDEN_BELOW, AttentionChange, changed_attention
from diagnosis.causes.changes import with_arguments

if TYPE_CHECKING:
    import torch

    from diagnosis.causes.region import Region

Seen = Callable[["torch.Tensor", "torch.Tensor"], "torch.Tensor"]
Rescore = Callable[["torch.Tensor", "torch.Tensor"], "torch.Tensor"]


def distances(scores: torch.Tensor) -> torch.Tensor:
    """Return how far each key lies before its query, [S, T]."""
    import torch

    queries, keys = scores.shape[-2:]
    return torch.arange(queries)[:, None] + (keys - queries) - torch.arange(keys)


def allowed_keys(region: Region) -> torch.Tensor | None:
    """Return the keys that each query of the last row sees, [S, T]; None without scores."""
    seen: list[torch.Tensor] = []

    def scores(x: torch.Tensor) -> torch.Tensor:
        seen.append((x > HIDDEN_BELOW).reshape(-1, *x.shape[-2:]).any(dim=0))
        return x

    region.values(lambda: changed_attention(AttentionChange(scores=scores)))
    return max(seen, key=lambda mask: mask.numel(), default=None)


def keys_there(region: Region, far: torch.Tensor) -> torch.Tensor:
    """Tell which keys are there when a query is computed, later ones included, [S, T]."""
    import torch

    there = torch.zeros_like(far, dtype=torch.bool)
    for span in region.spans():
        there[span, : span.stop] = True
    return there


def keys_unhidden(region: Region, seen: torch.Tensor, far: torch.Tensor) -> torch.Tensor:
    """Tell which keys are there if nothing hides them, booleans of the shape of `seen`.

    In decode steps those that a window hides may well have left the cache.
    """
    prompt = region.spans()[0]
    there = keys_there(region, far).expand_as(seen).clone()
    there[..., prompt.stop :, :] &= seen[..., prompt.stop :, :]
    return there


def seeing(region: Region, choose: Seen) -> AbstractContextManager[None]:
    """Let queries see other keys.

    Args:
        region: its attention is changed.
        choose: of the keys that are seen, [..., S, T] booleans, and the distances, [S, T], those
            that are to be seen.
    """
    import torch

    def rescore(scores: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        return scores.masked_fill(~choose(seen, distances(scores)), -torch.inf)

    return scoring(region, rescore)


@contextmanager
def scoring(
    region: Region, rescore: Rescore, change: AttentionChange | None = None
) -> Iterator[None]:
    """Let a mask do something else to the scores.

    Args:
        region: its attention is changed.
        rescore: of the scores without a mask, [B, N, S, T], and the keys that the reference's mask
            lets be seen, booleans of the same shape, what the softmax gets.
        change: what else is changed; its scores are not.
    """
    masks: list[torch.Tensor] = []

    def bare(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Take the mask away, since what it hides is lost in the scores."""
        masks.clear()
        return tuple(_taken(arg, masks) for arg in args), {
            name: _taken(value, masks) for name, value in kwargs.items()
        }

    def scores(x: torch.Tensor) -> torch.Tensor:
        known = masks[0] > HIDDEN_BELOW if masks else x > HIDDEN_BELOW
        if known.shape[-2:] != x.shape[-2:]:
            known = x > HIDDEN_BELOW
        return rescore(x, known.broadcast_to(x.shape) if x.ndim == known.ndim else known[0])

    with (
        with_arguments(region.module, bare),
        changed_attention(replace(change or AttentionChange(), scores=scores)),
    ):
        yield


def _taken(value: Any, masks: list[torch.Tensor]) -> Any:
    """Replace an additive or boolean mask by one that hides nothing."""
    import torch

    if not isinstance(value, torch.Tensor) or value.ndim != 4 or value.shape[1] != 1:
        return value
    if value.shape[-2] != value.shape[-1]:
        return value
    if value.dtype == torch.bool:
        masks.append(torch.where(value, 0.0, -torch.inf).double())
        return torch.ones_like(value)
    masks.append(value)
    return torch.zeros_like(value)
