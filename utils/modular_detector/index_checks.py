"""Whether the parts of an index fit each other, so that no damage shows up as wrong scores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from utils.modular_detector.index import Index


def check_index(index: Index) -> None:
    """Check the arrays and texts of an index that was read.

    Raises:
        ValueError: something does not fit; the message says what.
    """
    for what, is_sound in _findings(index):
        if not is_sound:
            raise ValueError(f"its {what} do not fit")


def _findings(index: Index) -> Iterator[tuple[str, bool]]:
    """Give each part's name and whether it is sound; a later one may rest on an earlier one."""
    size = len(index)
    tokens, offsets = index.tokens, index.offsets
    yield "tokens", _is_integers(tokens, (len(tokens),))
    yield "offsets", _is_integers(offsets, (size + 1,))
    yield "offsets", offsets[0] == 0 and offsets[-1] == len(tokens)
    yield "offsets", bool((np.diff(offsets) >= 0).all())
    yield "tokens", _lies_within(tokens, 0, len(index.vocabulary) - 1)
    yield "prints", index.prints is None or _is_integers(index.prints, (size, 4))
    yield "lines", index.lines is None or _is_integers(index.lines, (size, 2))
    yield "lines", index.lines is None or _lies_within(index.lines, 1, 2**31)
    yield "embeddings", index.embeddings is None or _is_matrix(index.embeddings, size)
    yield "files", all(isinstance(t, str) for file in index.files.values() for t in file)


def _is_integers(array: npt.NDArray[Any], shape: tuple[int, ...]) -> bool:
    return array.dtype == np.int64 and array.shape == shape


def _is_matrix(array: npt.NDArray[Any], rows: int) -> bool:
    return array.dtype == np.float32 and array.ndim == 2 and len(array) == rows


def _lies_within(array: npt.NDArray[Any], least: int, greatest: int) -> bool:
    return array.size == 0 or bool(array.min() >= least and array.max() <= greatest)
