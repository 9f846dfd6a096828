"""Queries that see keys that they must not see, or do not see some that they must."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from diagnosis.causes.masks import Seen, seeing
from diagnosis.causes.trial import RunTrial, Trial

if TYPE_CHECKING:
    import torch

    from diagnosis.causes.region import Region


def trials(region: Region) -> Iterator[Trial]:
    """Try other sets of keys."""
    if not region.has_attention:
        return
    ways: dict[str, Seen] = {
        "lets each query see the next key": lambda seen, far: (
            seen | ((far == -1) & _same_step(region, far))
        ),
        "lets queries see later keys, too": lambda seen, far: seen | _same_step(region, far),
        "hides each token from itself": _itself_hidden,
        "hides the first token from the later ones": _first_hidden,
        "hides the first of the keys that a query sees, where it sees several": _first_seen_hidden,
        "lets queries see later keys and not earlier ones": lambda seen, far: far <= 0,
    }
    for says, choose in ways.items():
        yield RunTrial(cause="mask", says=says, change=partial(seeing, region, choose))


def _itself_hidden(seen: torch.Tensor, far: torch.Tensor) -> torch.Tensor:
    several = seen.sum(dim=-1, keepdim=True) > 1
    return seen & ~((far == 0) & several)


def _first_hidden(seen: torch.Tensor, far: torch.Tensor) -> torch.Tensor:
    hidden = (far > 0).clone()
    hidden[:, 1:] = False
    return seen & ~hidden


def _first_seen_hidden(seen: torch.Tensor, far: torch.Tensor) -> torch.Tensor:
    several = seen.sum(dim=-1, keepdim=True) > 1
    first = (seen.cumsum(dim=-1) == 1) & seen
    return seen & ~(first & several)


def _same_step(region: Region, far: torch.Tensor) -> torch.Tensor:
    """Tell which keys are there when a query is computed, later ones included, [S, T]."""
    import torch

    there = torch.zeros_like(far, dtype=torch.bool)
    for span in region.spans():
        there[span, : span.stop] = True
    return there
