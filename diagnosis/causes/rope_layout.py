"""Which channels are rotated together, in which direction, and of which of q and k.

Legend: R channels of a head that are rotated.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from diagnosis.causes.rotations import Rotate, by_halves, by_pairs, can_rotate, with_rotation
from diagnosis.causes.trial import RunTrial, Trial

if TYPE_CHECKING:
    import torch

    from diagnosis.causes.region import Region


def trials(region: Region) -> Iterator[Trial]:
    """Rotate in other ways."""
    if not can_rotate(region):
        return
    for says, rotate in _ways().items():
        yield RunTrial(
            cause="rope_layout", says=says, change=partial(with_rotation, region, rotate)
        )


def _each(function: Any) -> Rotate:
    return lambda q, k, cos, sin: (function(q, cos, sin), function(k, cos, sin))


def _ways() -> dict[str, Rotate]:
    return {
        "rotates pairs of neighbouring channels (2i, 2i + 1)": _each(by_pairs),
        "rotates channels in halves (i, i + R / 2)": _each(by_halves),
        "takes cos and sin for each other": _each(lambda x, cos, sin: by_halves(x, sin, cos)),
        "rotates in the other direction": _each(lambda x, cos, sin: by_halves(x, cos, -sin)),
        "rotates the queries and not the keys": lambda q, k, cos, sin: (by_halves(q, cos, sin), k),
        "rotates the keys and not the queries": lambda q, k, cos, sin: (q, by_halves(k, cos, sin)),
        "does not rotate": lambda q, k, cos, sin: (q, k),
        "rotates twice": _each(lambda x, cos, sin: by_halves(by_halves(x, cos, sin), cos, sin)),
        "rotates each key as if it stood one place further": lambda q, k, cos, sin: (
            by_halves(q, cos, sin),
            by_halves(k, *_further(cos, sin)),
        ),
        "rotates queries by pairs of channels and keys in halves": lambda q, k, cos, sin: (
            by_pairs(q, cos, sin),
            by_halves(k, cos, sin),
        ),
    }


def _further(cos: torch.Tensor, sin: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Turn tables on by the angle between the first two tokens."""
    if cos.shape[-2] < 2:
        return cos, sin
    step_cos = cos[..., 1:2, :] * cos[..., :1, :] + sin[..., 1:2, :] * sin[..., :1, :]
    step_sin = sin[..., 1:2, :] * cos[..., :1, :] - cos[..., 1:2, :] * sin[..., :1, :]
    return cos * step_cos - sin * step_sin, sin * step_cos + cos * step_sin
