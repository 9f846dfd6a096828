"""What turns one side's pictures into the other's: an order of channels, a scale, a flip."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from comparison.numerics.dtypes import Array

_CHANNELS = (1, 3, 4)
_LEFT_OVER = 1e-5  # of the difference that was there, squared
_NEUTRAL = 1e-6


def picture_change(reference: Array, candidate: Array) -> str:
    """Say what was done to pictures that differ.

    Args:
        reference: pixel values [..., C, H, W], of floats.
        candidate: the same shape, and not equal.

    Returns:
        The change in words, empty where none of those tried gives the candidate's values.
    """
    if reference.ndim < 3 or reference.shape[-3] not in _CHANNELS:
        return ""
    before = np.sum((candidate - reference) ** 2)
    for says, changed in _changes(reference, candidate):
        if changed.shape != candidate.shape:
            continue
        left = np.sum((candidate - changed) ** 2)
        if np.isfinite(left) and left <= _LEFT_OVER * before:
            return says
    return ""


def _changes(reference: Array, candidate: Array) -> Iterator[tuple[str, Array]]:
    yield "the channels in reverse order, as BGR for RGB", np.flip(reference, -3)
    yield "mirrored from left to right", np.flip(reference, -1)
    yield "upside down", np.flip(reference, -2)
    yield "rows and columns exchanged", np.swapaxes(reference, -1, -2)
    yield _affine(reference, candidate)
    reverse = np.flip(reference, -3)
    says, changed = _affine(reverse, candidate)
    yield f"the channels in reverse order, and {says}", changed


def _affine(reference: Array, candidate: Array) -> tuple[str, Array]:
    """Fit a factor and a shift a channel: another mean, standard deviation or range."""
    channels = range(reference.shape[-3])
    x = [reference[..., channel, :, :].ravel() for channel in channels]
    y = [candidate[..., channel, :, :].ravel() for channel in channels]
    lines = [
        np.polyfit(a, b, 1) if np.ptp(a) > _NEUTRAL else np.array([1.0, np.mean(b - a)])
        for a, b in zip(x, y, strict=True)
    ]
    slopes, shifts = np.array(lines).T  # [C] each
    changed = reference * slopes[:, None, None] + shifts[:, None, None]
    factor = "" if np.allclose(slopes, 1.0, atol=_NEUTRAL) else f"times {_shown(slopes)}"
    shift = "" if np.allclose(shifts, 0.0, atol=_NEUTRAL) else f"plus {_shown(shifts)}"
    what = " ".join(text for text in (factor, shift) if text)
    return f"{what} (another mean, standard deviation or range)", changed


def _shown(values: Array) -> str:
    if np.allclose(values, values[0], rtol=1e-4, atol=_NEUTRAL):
        return f"{values[0]:.4g}"
    return f"{', '.join(f'{value:.4g}' for value in values)} by channel"
