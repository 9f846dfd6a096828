"""A window of another size, none, or one where there must be none.

A window of w lets a query see w keys, itself included.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from diagnosis.causes.masks import Seen, allowed_keys, distances, seeing
from diagnosis.causes.trial import RunTrial, Trial

if TYPE_CHECKING:
    import torch

    from diagnosis.causes.region import Region

_MOST = 16  # sizes that are tried


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
        within, chunks = partial(_within, size), partial(_in_chunks, size)
        ways = {
            f"looks back over a window of {size} tokens": within,
            f"looks back over a window of {size} tokens in the prefill": partial(
                _only_in_prefill, region, within
            ),
            f"looks back within chunks of {size} tokens": chunks,
        }
        for says, choose in ways.items():
            yield RunTrial(
                cause="sliding_window",
                says=says,
                expects=expects,
                change=partial(seeing, region, choose),
            )


def _window_of(seen: torch.Tensor) -> int | None:
    """Return the size of the window that a mask has, None where it has none."""
    far = distances(seen)
    hidden = far[(far >= 0) & ~seen]
    return int(hidden.min()) if hidden.numel() else None


def _sizes(region: Region, right: int | None, longest: int) -> list[int]:
    bad = region.first.excess
    first = 0
    if bad is not None:
        wrong = [
            int(p) for (_, p), e in zip(region.positions, bad.by_position, strict=True) if e > 5
        ]
        first = min(wrong, default=0)
    near = [first, first + 1, first - 1]
    if right is not None:
        near += [right - 1, right + 1, right // 2, right * 2, right - 2, right + 2]
    near += [2**power for power in range(1, 13)]
    return [size for size in dict.fromkeys(near) if 0 < size < longest and size != right][:_MOST]


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


def _in_chunks(size: int, seen: torch.Tensor, far: torch.Tensor) -> torch.Tensor:
    import torch

    chunk = torch.arange(far.shape[-1]) // size
    return (far >= 0) & (chunk[:, None] == chunk[None, :])
