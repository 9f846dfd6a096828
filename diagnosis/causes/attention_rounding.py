"""Keys, values and weights of attention that are rounded to few bits, in all steps.

Legend: B rows, N heads, T keys, D head size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING

from diagnosis.causes.attention_sites import AttentionChange, changed_attention
from diagnosis.causes.changes import rounded
from diagnosis.causes.grids import GREATEST
from diagnosis.causes.trial import RunTrial, Trial

if TYPE_CHECKING:
    import torch

    from diagnosis.causes.region import Region

Rounding = Callable[["torch.Tensor"], "torch.Tensor"]
_LEVELS = (255, 127, 256, 128, 15, 31, 7)


def trials(region: Region) -> Iterator[Trial]:
    """Round keys and values, then attention's weights to a number of levels."""
    if not region.has_attention:
        return
    for says, rounding in _roundings():
        yield RunTrial(
            cause="quantization",
            says=f"rounds keys and values to {says}",
            change=partial(_everywhere, rounding),
        )
    for levels in _LEVELS:
        yield RunTrial(
            cause="quantization",
            says=f"rounds attention's weights to multiples of 1/{levels}",
            change=partial(_weights_in_levels, levels),
        )


def _roundings() -> Iterator[tuple[str, Rounding]]:
    for dtype in list(GREATEST)[:2]:
        yield dtype, partial(rounded, dtype=dtype)
        yield f"{dtype} with a scale for each head", partial(_by_peak, dtype)
    for bits in (8, 4):
        yield f"{bits} bits with a scale for each token and head", partial(_integers, bits)


def _by_peak(dtype: str, x: torch.Tensor) -> torch.Tensor:
    scale = x.abs().amax(dim=(-2, -1), keepdim=True).clamp(min=1e-30) / GREATEST[dtype]
    return rounded(x / scale, dtype) * scale


def _integers(bits: int, x: torch.Tensor) -> torch.Tensor:
    scale = x.abs().amax(dim=-1, keepdim=True).clamp(min=1e-30) / (2 ** (bits - 1) - 1)
    return (x / scale).round() * scale


def _keys(rounding: Rounding, k: torch.Tensor) -> torch.Tensor:
    """Round keys that come transposed, [B, N, D, T]."""
    return rounding(k.transpose(-2, -1)).transpose(-2, -1)


def _everywhere(rounding: Rounding) -> AbstractContextManager[None]:
    return changed_attention(
        AttentionChange(
            operands=lambda q, k: (q, _keys(rounding, k)),
            values=lambda weights, v: (weights, rounding(v)),
        )
    )


def _weights_in_levels(levels: int) -> AbstractContextManager[None]:
    def softmax(scores: torch.Tensor) -> torch.Tensor:
        return (scores.softmax(dim=-1) * levels).round() / levels

    return changed_attention(AttentionChange(softmax=softmax))
