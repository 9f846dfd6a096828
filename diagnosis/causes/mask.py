"""Queries that see keys that they must not see, or do not see some that they must."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING

from diagnosis.causes.attention_sites import AttentionChange
from diagnosis.causes.mask_read import read_masks
from diagnosis.causes.masks import Seen, distances, keys_there, keys_unhidden, scoring, seeing
from diagnosis.causes.trial import FittedTrial, RunTrial, Trial

if TYPE_CHECKING:
    import torch

    from diagnosis.causes.region import Region


def trials(region: Region) -> Iterator[Trial]:
    """Try other sets of keys, masks that do not hide, and the mask that the values tell."""
    if not region.has_attention:
        return
    for says, choose in _ways(region).items():
        yield RunTrial(cause="mask", says=says, change=partial(seeing, region, choose))
    yield from _not_hiding(region)
    found = read_masks(region)
    if found is not None:
        yield RunTrial(
            cause=found.cause,
            says=found.says,
            change=partial(seeing, region, partial(found.seen, region)),
        )


def _ways(region: Region) -> dict[str, Seen]:
    return {
        "lets each query see the next key": lambda seen, far: (
            seen | ((far == -1) & keys_there(region, far))
        ),
        "lets queries see later keys, too": lambda seen, far: seen | keys_there(region, far),
        "hides later keys from queries": lambda seen, far: seen & (far >= 0),
        "hides each token from itself": _itself_hidden,
        "hides the first token from the later ones": _first_hidden,
        "hides the first of the keys that a query sees, where it sees several": _first_seen_hidden,
        "lets queries see later keys and not earlier ones": lambda seen, far: far <= 0,
    }


def _not_hiding(region: Region) -> Iterator[Trial]:
    """Let hidden keys have some weight, and hide them at another place."""
    yield RunTrial(
        cause="mask",
        says="sets the scores of hidden keys to zero, which does not hide them",
        change=partial(_rescored, region, 0.0, 0.0),
    )
    yield FittedTrial(
        cause="mask",
        says="adds {value} to the scores of hidden keys, which does not hide them",
        change=partial(_rescored, region, 1.0),
        starts=(-1.0, -3.0, -5.0, -10.0, 0.0),
    )
    yield FittedTrial(
        cause="mask",
        says="sets the scores of hidden keys to {value}, which does not hide them",
        change=partial(_rescored, region, 0.0),
        starts=(-1.0, -3.0, -5.0, -10.0, 1.0),
        neutral=0.0,
    )
    yield RunTrial(
        cause="mask",
        says="hides keys behind the softmax, so that the weights sum to less than one",
        change=partial(_behind_softmax, region),
    )


def _rescored(region: Region, factor: float, value: float) -> AbstractContextManager[None]:
    """Multiply the scores of hidden keys, and add something."""
    import torch

    def rescore(scores: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        there = keys_unhidden(region, seen, distances(scores))
        hidden = (scores * factor if factor else torch.zeros_like(scores)) + value
        return torch.where(seen, scores, hidden.masked_fill(~there, -torch.inf))

    return scoring(region, rescore)


def _behind_softmax(region: Region) -> AbstractContextManager[None]:
    import torch

    shown: list[torch.Tensor] = []

    def rescore(scores: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        shown[:] = [seen]
        return scores.masked_fill(~keys_unhidden(region, seen, distances(scores)), -torch.inf)

    def softmax(scores: torch.Tensor) -> torch.Tensor:
        return scores.softmax(dim=-1) * shown[0]

    return scoring(region, rescore, AttentionChange(softmax=softmax))


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
