"""A number of 64 bits by which equal tensors are known, and unequal ones told apart.

The bytes are taken as words of 64 bits, and the sum of their products with fixed random words is
kept. Such a sum is universal in its upper half for words of 32 bits (Dietzfelbinger 1996; Lemire
and Kaser 2014), but a difference of upper bits alone, such as that of signs, would move its
upper bits alone: so each word's upper half is laid over its lower one before. Two tensors that
were not made to deceive it have the same number once in more than 2^31 pairs, in whatever order
their values are. One product a word is about as fast as memory, as long as the fixed words do not
come from there as well: those of a block are those of the first one times a power.
"""

from collections.abc import Iterable, Iterator
from functools import lru_cache

import numpy as np

from comparison.numerics.dtypes import Array, Kind, dtype_name, kind_of
from comparison.numerics.statistics_layout import BLOCK, CHUNK, STEP

_SEED = 20_261_130
_MASK = (1 << 64) - 1
_HALF = np.uint64(32)


def fingerprint_of(values: Array) -> str:
    """Return the fingerprint of a tensor's values in row-major order.

    Args:
        values: any shape, strides and dtype of numbers. Integers of all widths that hold the same
            numbers have the same fingerprint, up to 2^63; of all other numbers the bytes count, so
            that the two zeros differ.

    Returns:
        16 hexadecimal digits.
    """
    words, size_bytes = _words(_canonical(values))
    return joined_fingerprint(size_bytes, _chunks(words))


def joined_fingerprint(size_bytes: int, chunks: Iterable[int]) -> str:
    """Join the sums of all chunks.

    Args:
        size_bytes: of all values.
        chunks: the sum of products of each chunk, in order, modulo 2^64.

    Returns:
        16 hexadecimal digits.
    """
    found = size_bytes
    for chunk in chunks:
        found = (found * STEP + chunk) & _MASK
    return f"{found:016x}"


def _chunks(words: Array) -> Iterator[int]:
    weights, mixed = chunk_weights(), np.empty(min(len(words), CHUNK), np.uint64)
    for start in range(0, len(words), CHUNK):
        chunk = words[start : start + CHUNK]
        part = mixed[: len(chunk)]
        np.right_shift(chunk, _HALF, out=part)
        np.bitwise_xor(part, chunk, out=part)
        yield int(np.dot(part, weights[: len(chunk)]))


def _canonical(values: Array) -> Array:
    """Return the values in row-major order, of one width and byte order."""
    if kind_of(values.dtype) is Kind.INTEGER:
        values = values.astype(np.int64)
    elif values.dtype.byteorder == ">":
        values = values.astype(values.dtype.newbyteorder("="))
    elif dtype_name(values.dtype) == "bool":
        values = values.astype(np.bool_)
    return np.ascontiguousarray(values).reshape(-1)


def _words(flat: Array) -> tuple[Array, int]:
    """View bytes as words of 64 bits, and count them; a part of a word is filled up by zeros."""
    octets = flat.view(np.uint8)
    rest = -len(octets) % 8
    if rest or octets.ctypes.data % 8:
        octets = np.concatenate([octets, np.zeros(rest, np.uint8)])
    return octets.view(np.uint64), flat.nbytes


@lru_cache(maxsize=1)
def chunk_weights() -> Array:
    """Return the fixed words that each chunk is multiplied by, odd uint64 [CHUNK].

    Those of block b are the first ones times STEP to the power of b, modulo 2^64.
    """
    first = np.random.default_rng(_SEED).integers(0, 1 << 64, BLOCK, dtype=np.uint64)
    powers = np.array([pow(STEP, block, 1 << 64) for block in range(CHUNK // BLOCK)], np.uint64)
    weights: Array = np.outer(powers, first | np.uint64(1)).reshape(-1)
    return weights
