"""How much is rotated: which channels of a head, and whether queries and keys both are.

Legend: D head size, R channels that are rotated.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from diagnosis.causes.rotations import Rotate, Turn, Way, can_rotate, sided, with_rotation
from diagnosis.causes.trial import RunTrial, Trial

if TYPE_CHECKING:
    import torch

    from diagnosis.causes.region import Region

_SHARES = (2, 4)


def trials(region: Region) -> Iterator[Trial]:
    """Rotate queries or keys alone, and fewer, more, or the last channels."""
    if not can_rotate(region):
        return
    alone: dict[str, Rotate] = {
        "rotates the queries and not the keys": lambda q, k, turn: (turn.right(q), k),
        "rotates the keys and not the queries": lambda q, k, turn: (q, turn.right(k)),
    }
    for says, rotate in (*alone.items(), *sided(_ways())):
        yield RunTrial(
            cause="rope_partial", says=says, change=partial(with_rotation, region, rotate)
        )


def _ways() -> dict[str, Way]:
    ways: dict[str, Way] = {
        "rotates the last channels of each head and not the first": _last,
        "rotates the last channels of each head, counted from the end, and not the first": _flipped,
        "rotates all channels of each head, the tables used over again": _whole,
        "rotates only the first half of each head, paired with the other half": partial(
            _half, False
        ),
        "rotates only the second half of each head, paired with the other half": partial(
            _half, True
        ),
    }
    for share in _SHARES:
        ways[f"rotates only the first 1/{share} of the channels that belong rotated"] = partial(
            _first, share, False
        )
        ways[
            f"rotates only the first 1/{share} of the channels, with every {share}th frequency"
        ] = partial(_first, share, True)
    return ways


def _last(x: torch.Tensor, turn: Turn) -> torch.Tensor:
    import torch

    size = x.shape[-1] - turn.cos.shape[-1]
    return torch.cat([x[..., :size], turn.right(x[..., size:])], dim=-1)


def _flipped(x: torch.Tensor, turn: Turn) -> torch.Tensor:
    return turn.right(x.flip(-1)).flip(-1)


def _whole(x: torch.Tensor, turn: Turn) -> torch.Tensor:
    import torch

    times = x.shape[-1] // turn.cos.shape[-1]
    cos, sin = (torch.cat([table] * times, dim=-1) for table in (turn.cos, turn.sin))
    return turn.by(cos, sin).right(x)


def _half(second: bool, x: torch.Tensor, turn: Turn) -> torch.Tensor:
    """Rotate all channels, and keep one half of what comes out."""
    import torch

    half, new = x.shape[-1] // 2, turn.right(x)
    first, last = (x, new) if second else (new, x)
    return torch.cat([first[..., :half], last[..., half:]], dim=-1)


def _first(share: int, spread: bool, x: torch.Tensor, turn: Turn) -> torch.Tensor:
    """Rotate R / share channels, by the first frequencies or by ones spread over all."""
    import torch

    half = turn.cos.shape[-1] // 2
    kept = slice(None, None, share) if spread else slice(half // share)
    cos, sin = (
        torch.cat([table[..., :half][..., kept]] * 2, dim=-1) for table in (turn.cos, turn.sin)
    )
    return turn.by(cos, sin).right(x)
