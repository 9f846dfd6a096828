"""How many channels of a head are rotated, and which.

Legend: D head size, R channels that are rotated.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from diagnosis.causes.rotations import by_halves, can_rotate, with_rotation
from diagnosis.causes.trial import RunTrial, Trial

if TYPE_CHECKING:
    import torch

    from diagnosis.causes.region import Region

_SHARES = (2, 4)


def trials(region: Region) -> Iterator[Trial]:
    """Rotate fewer, more, or the last channels."""
    if not can_rotate(region):
        return
    ways = {
        "rotates the last channels of each head and not the first": _last,
        "rotates all channels of each head, the tables used over again": _whole,
    }
    for share in _SHARES:
        ways[f"rotates only the first 1/{share} of the channels that belong rotated"] = partial(
            _first, share, False
        )
        ways[
            f"rotates only the first 1/{share} of the channels, with every {share}th frequency"
        ] = partial(_first, share, True)
    for says, way in ways.items():
        yield RunTrial(
            cause="rope_partial",
            says=says,
            change=partial(
                with_rotation,
                region,
                lambda q, k, cos, sin, way=way: (way(q, cos, sin), way(k, cos, sin)),
            ),
        )


def _last(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    import torch

    size = x.shape[-1] - cos.shape[-1]
    return torch.cat([x[..., :size], by_halves(x[..., size:], cos, sin)], dim=-1)


def _whole(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    import torch

    times = x.shape[-1] // cos.shape[-1]
    return by_halves(x, torch.cat([cos] * times, dim=-1), torch.cat([sin] * times, dim=-1))


def _first(
    share: int, spread: bool, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> torch.Tensor:
    """Rotate D / share channels, by the first frequencies or by ones spread over all."""
    import torch

    half = cos.shape[-1] // 2
    kept = slice(None, None, share) if spread else slice(half // share)
    cos, sin = (torch.cat([table[..., :half][..., kept]] * 2, dim=-1) for table in (cos, sin))
    return by_halves(x, cos, sin)
