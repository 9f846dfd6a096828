"""A window of another size, none, or one where there must be none.

A window of w lets a query see w keys, itself included.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from diagnosis.causes.masks import Seen, allowed_keys, distances, keys_there, seeing
from diagnosis.causes.trial import RunTrial, Trial

if TYPE_CHECKING:
    import torch

    from diagnosis.causes.region import Region

_MOST = 16  # sizes that are tried
_BAD = 5.0  # times rounding


def trials(region: Region) -> Iterator[Trial]:
    """Try sizes near the first wrong token, near the right one, and round ones."""
    if not region.has_attention:
        return
    seen = allowed_keys(region)
    if seen is None:
        return
    right = _window_of(seen)
    longest = seen.shape[-1]
    expects = f"the window is {right}" if right is not None else "there is no window"
    if right is not None:
        yield RunTrial(
            cause="sliding_window",
            says=f"looks back over all earlier tokens, without the window of {right}",
            expects=expects,
            change=partial(seeing, region, lambda known, far: far >= 0),
        )
        yield RunTrial(
            cause="sliding_window",
            says="looks back over all tokens of the prompt in the prefill, without the window of "
            f"{right}",
            expects=expects,
            change=partial(
                seeing, region, partial(_only_in_prefill, region, lambda known, far: far >= 0)
            ),
        )
    for size in _sizes(region, right, longest):
        within = partial(_within, size)
        ways = {
            f"looks back over a window of {size} tokens": within,
            f"looks back over a window of {size} tokens in the prefill": partial(
                _only_in_prefill, region, within
            ),
        }
        for says, choose in ways.items():
            yield RunTrial(
                cause="sliding_window",
                says=says,
                expects=expects,
                change=partial(seeing, region, choose),
            )
        for counted in (False, True):
            yield RunTrial(
                cause="mask",
                says=f"looks back within chunks of {size} tokens{', padding counted' * counted}",
                change=partial(seeing, region, partial(_in_chunks, region, size, counted)),
            )

    # Last: where the attention hides later keys by itself, this gives what looking back gives.
    own = () if right is None else (right,)
    for size in (*own, *_sizes(region, right, longest)):
        yield RunTrial(
            cause="sliding_window",
            says=f"looks as far ahead as back, over a window of {size} tokens",
            change=partial(seeing, region, partial(_both_ways, region, size)),
        )


def _window_of(seen: torch.Tensor) -> int | None:
    """Return the size of the window that a mask has, None where it has none."""
    far = distances(seen)
    hidden = far[(far >= 0) & ~seen]
    return int(hidden.min()) if hidden.numel() else None


def _sizes(region: Region, right: int | None, longest: int) -> list[int]:
    near = [first + more for first in first_wrong(region) for more in (0, 1, -1)]
    if right is not None:
        near += [right - 1, right + 1, right // 2, right * 2, right - 2, right + 2]
    near += [2**power for power in range(1, 13)]
    return [size for size in dict.fromkeys(near) if 0 < size < longest and size != right][:_MOST]


def first_wrong(region: Region) -> Iterator[int]:
    """Give the first token of each row that is wrong, and where it stands behind the padding."""
    bad = region.first.excess
    if bad is None:
        return
    for row in np.unique(region.positions[:, 0]):
        wrong = (region.positions[:, 0] == row) & (bad.by_position > _BAD)
        if wrong.any():
            first = int(region.positions[wrong, 1].min())
            yield first
            yield first + region.padding(int(row))


def _only_in_prefill(
    region: Region, choose: Seen, seen: torch.Tensor, far: torch.Tensor
) -> torch.Tensor:
    """Choose other keys in the prefill; the cache may well hold a window's keys only."""
    new = seen.clone()
    prompt = region.spans()[0]
    new[..., prompt, :] = choose(seen, far)[..., prompt, :]
    return new


def _within(size: int, seen: torch.Tensor, far: torch.Tensor) -> torch.Tensor:
    return (far >= 0) & (far < size)


def _both_ways(region: Region, size: int, seen: torch.Tensor, far: torch.Tensor) -> torch.Tensor:
    return (far.abs() < size) & keys_there(region, far)


def _in_chunks(
    region: Region, size: int, counted: bool, seen: torch.Tensor, far: torch.Tensor
) -> torch.Tensor:
    import torch

    padding = region.padding(region.running.row) if counted else 0
    chunk = (torch.arange(far.shape[-1]) + padding) // size
    return seen & (far >= 0) & (chunk[:, None] == chunk[None, :])
