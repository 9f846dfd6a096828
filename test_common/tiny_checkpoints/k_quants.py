"""Quantises to GGUF's K blocks, which the package `gguf` reads and does not write.

A block holds 256 weights of one row. Layouts: `block_q4_K` and `block_q6_K` in ggml's
`ggml-quants`, as the package's own `gguf.quants` dequantises them. The scales are the plain ones,
from each part's range; ggml's own search for better ones makes no other layout.
"""

from collections.abc import Callable, Mapping

import numpy as np

BLOCK_WEIGHTS = 256
_Q4_PARTS = 8  # of 32 weights
_Q6_PARTS = 16  # of 16 weights
_SCALE_LEVELS = 63  # 6 bits, of q4_k's scales and minima
_Q6_ZERO = 32


def quantise_q4_k(weights: np.ndarray) -> np.ndarray:
    """Quantise to 4 bits a weight: `d * scale * q - dmin * minimum`.

    Args:
        weights: float32 [..., I] with I a multiple of 256.

    Returns:
        uint8 [..., I / 256 * 144].
    """
    parts = _parts(weights, _Q4_PARTS)  # [n, 8, 32]
    low = np.minimum(parts.min(axis=2), 0)
    spread = (parts.max(axis=2) - low) / 15
    d, scales = _levels(spread)
    dmin, minima = _levels(-low)
    step = d.astype(np.float32) * scales
    offset = dmin.astype(np.float32) * minima
    q = _rounded(parts + offset[:, :, None], step[:, :, None], low=0, high=15)
    pairs = q.reshape(-1, _Q4_PARTS // 2, 2, 32)  # two parts share the bytes
    packed = (pairs[:, :, 0] | pairs[:, :, 1] << 4).reshape(-1, 128)
    fields = (_bytes(d), _bytes(dmin), _six_bit_pairs(scales, minima), packed)
    return _joined(fields, weights.shape)


def quantise_q6_k(weights: np.ndarray) -> np.ndarray:
    """Quantise to 6 bits a weight: `d * scale * (q - 32)`.

    Args:
        weights: float32 [..., I] with I a multiple of 256.

    Returns:
        uint8 [..., I / 256 * 210].
    """
    parts = _parts(weights, _Q6_PARTS)  # [n, 16, 16]
    widest = np.abs(parts).max(axis=2) / (_Q6_ZERO - 1)
    d = (widest.max(axis=1, keepdims=True) / 127).astype(np.float16)
    scales = _rounded(widest, d.astype(np.float32), low=0, high=127)
    step = d.astype(np.float32) * scales
    q = _rounded(parts, step[:, :, None], low=-_Q6_ZERO, high=_Q6_ZERO - 1, zero=_Q6_ZERO)
    quarters = q.reshape(-1, 2, 4, 32)  # [n, half, quarter of it, weight]
    low = (quarters & 15)[:, :, :2] | (quarters & 15)[:, :, 2:] << 4
    shifts = np.array([0, 2, 4, 6], dtype=np.uint8)[:, None]
    high = np.bitwise_or.reduce((quarters >> 4) << shifts, axis=2)
    fields = (low.reshape(-1, 128), high.reshape(-1, 64), scales, _bytes(d))
    return _joined(fields, weights.shape)


def _parts(weights: np.ndarray, count: int) -> np.ndarray:
    """Cut float32 [..., I] into [blocks, count, 256 / count]."""
    if weights.shape[-1] % BLOCK_WEIGHTS:
        raise ValueError(f"rows of {weights.shape[-1]} weights do not fill blocks of 256")
    return weights.astype(np.float32).reshape(-1, count, BLOCK_WEIGHTS // count)


def _levels(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return float16 [n, 1] and uint8 [n, 8] whose product is near `values`, [n, 8]."""
    unit = (values.max(axis=1, keepdims=True) / _SCALE_LEVELS).astype(np.float16)
    return unit, _rounded(values, unit.astype(np.float32), low=0, high=_SCALE_LEVELS)


def _rounded(
    values: np.ndarray, step: np.ndarray, *, low: int, high: int, zero: int = 0
) -> np.ndarray:
    """Return uint8 `values / step` within bounds, plus `zero`; 0 steps give `zero`."""
    ratio = np.divide(values, step, out=np.zeros_like(values), where=step != 0)
    return (np.clip(np.rint(ratio), low, high) + zero).astype(np.uint8)


def _six_bit_pairs(scales: np.ndarray, minima: np.ndarray) -> np.ndarray:
    """Pack eight scales and eight minima of 6 bits each into 12 bytes, uint8 [n, 12]."""
    first = scales[:, :4] | (scales[:, 4:] >> 4) << 6
    second = minima[:, :4] | (minima[:, 4:] >> 4) << 6
    third = (scales[:, 4:] & 15) | (minima[:, 4:] & 15) << 4
    return np.concatenate([first, second, third], axis=1)


def _bytes(values: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(values).view(np.uint8)


def _joined(fields: tuple[np.ndarray, ...], shape: tuple[int, ...]) -> np.ndarray:
    return np.concatenate(fields, axis=1).reshape(*shape[:-1], -1)


K_QUANTISERS: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    "q4_k": quantise_q4_k,
    "q6_k": quantise_q6_k,
}
