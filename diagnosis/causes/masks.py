"""Which keys each query sees, and how to let it see others.

Legend: B rows, N heads, S queries, T keys; a replay has the whole row, so S = T.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from diagnosis.causes.attention_sites import HIDDEN_BELOW, AttentionChange, changed_attention
from diagnosis.causes.changes import with_arguments

if TYPE_CHECKING:
    import torch

    from diagnosis.causes.region import Region

Seen = Callable[["torch.Tensor", "torch.Tensor"], "torch.Tensor"]


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


@contextmanager
def seeing(region: Region, choose: Seen) -> Iterator[None]:
    """Let queries see other keys.

    Args:
        region: its attention is changed.
        choose: of the keys that are seen, [..., S, T] booleans, and the distances, [S, T], those
            that are to be seen.
    """
    import torch

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
        kept = choose(
            known.broadcast_to(x.shape) if x.ndim == known.ndim else known[0], distances(x)
        )
        return x.masked_fill(~kept, -torch.inf)

    with (
        with_arguments(region.module, bare),
        changed_attention(AttentionChange(scores=scores)),
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
