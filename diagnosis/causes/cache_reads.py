"""What a decode step may read from a cache in place of the keys and values that were computed.

Legend: B rows, N heads, S queries, T keys, D head size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from diagnosis.causes.changes import rounded

if TYPE_CHECKING:
    import torch

    from diagnosis.causes.region import Region

Read = Callable[["torch.Tensor"], "torch.Tensor"]
# A cache is kept in these to save memory, which is a quantization, or by mistake.
_DTYPES = {
    "float8_e4m3fn": "quantization",
    "float8_e5m2": "quantization",
    "bfloat16": "cast",
    "float16": "cast",
}


def reads() -> Iterator[tuple[str, str, Read]]:
    """Name what may be read, with the cause; `{side}` stands for keys, values or both."""
    for dtype, cause in _DTYPES.items():
        for of_all in (False, True):
            which = "" if of_all else "earlier "
            yield (
                f"keeps {which}{{side}} in the cache rounded to {dtype}",
                cause,
                partial(_rounded, dtype, of_all),
            )
    yield (
        "keeps earlier {side} in the cache rounded to 8-bit integers, by token and head",
        "quantization",
        partial(_earlier, _in_integers),
    )
    ways: dict[str, Read] = {
        "has {side} of the newest token in the place of the one before it, too": _newest_twice,
        "has the earlier {side} one token too late, the newest of them twice": partial(
            _earlier, _moved_up
        ),
        "has {side} moved up by one token, the first one last": _turned,
        "has no {side} of the latest token in the cache, but those of the one before it": partial(
            _earlier, _latest_lost
        ),
        "has zeros in the place of the earlier {side}": partial(_earlier, lambda x: x * 0),
    }
    for says, read in ways.items():
        yield says, "decode_cache", read


def reading(
    region: Region, read: Read, keys: bool, left: torch.Tensor, right: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Let decode steps read other keys or values.

    Args:
        region: the guilty attention.
        read: of the keys or values of a step so far, [B, N, T, D], what it reads.
        keys: whether the product is that of the scores.
        left: queries [B, N, S, D], or weights [B, N, S, T].
        right: keys [B, N, D, T], or values [B, N, T, D].

    Returns:
        Two tensors whose product is what it is to be.
    """
    import torch

    product = left @ right
    for span in region.spans()[1:]:
        if keys:
            known = read(right[..., : span.stop].transpose(-2, -1)).transpose(-2, -1)
            product[..., span, : span.stop] = left[..., span, :] @ known
        else:
            known = read(right[..., : span.stop, :])
            product[..., span, :] = left[..., span, : span.stop] @ known
    return product, torch.eye(product.shape[-1], dtype=product.dtype).expand(
        *product.shape[:-2], -1, -1
    )


def _earlier(change: Read, x: torch.Tensor) -> torch.Tensor:
    """Change all but the token that the step brings, [B, N, T, D]."""
    import torch

    return torch.cat([change(x[..., :-1, :]), x[..., -1:, :]], dim=-2)


def _rounded(dtype: str, of_all: bool, x: torch.Tensor) -> torch.Tensor:
    change = partial(rounded, dtype=dtype)
    return change(x) if of_all else _earlier(change, x)


def _in_integers(x: torch.Tensor) -> torch.Tensor:
    step = x.abs().amax(dim=-1, keepdim=True) / 127
    return (x / step).round() * step


def _newest_twice(x: torch.Tensor) -> torch.Tensor:
    import torch

    return torch.cat([x[..., :-2, :], x[..., -1:, :], x[..., -1:, :]], dim=-2)


def _moved_up(x: torch.Tensor) -> torch.Tensor:
    import torch

    return torch.cat([x[..., 1:, :], x[..., -1:, :]], dim=-2)


def _turned(x: torch.Tensor) -> torch.Tensor:
    return x.roll(-1, dims=-2)


def _latest_lost(x: torch.Tensor) -> torch.Tensor:
    import torch

    return torch.cat([x[..., :-1, :], x[..., -2:-1, :]], dim=-2)
