"""One operation's values by row and token, whatever the order of the axes."""

from __future__ import annotations

import numpy as np
import pytest

from comparison.align.rows import Layout
from comparison.numerics.dtypes import Array
from comparison.schema.manifest import Padding
from diagnosis.drill.readings import (
    BY_KEY,
    BY_TOKEN,
    Reading,
    candidate_readings,
    reference_reading,
)

_LENGTHS = (5, 3)
_STEPS = 2  # tokens fed in decode steps
_TOKENS = tuple(length + _STEPS for length in _LENGTHS)
_HEADS, _SIZE = 4, 6


def _values(seed: int = 0) -> list[Array]:
    """Make [1, N, T, D] for each row."""
    generator = np.random.default_rng(seed)
    return [generator.standard_normal((1, _HEADS, count, _SIZE)) for count in _TOKENS]


def _layout(padding: Padding, step: int = 0) -> Layout:
    return Layout(padding=padding, lengths=_LENGTHS, step=step)


def _padded(rows: list[Array], side: str) -> Array:
    """Stack the prompts [N, n, D] to [B, N, S, D]."""
    longest = max(_LENGTHS)
    out = np.full((len(rows), _HEADS, longest, _SIZE), 99.0)
    for row, (values, length) in enumerate(zip(rows, _LENGTHS, strict=True)):
        place = slice(longest - length, longest) if side == "left" else slice(0, length)
        out[row, :, place] = values[0][:, :length]
    return out


def _same(candidate: Reading, reference: Reading) -> bool:
    if (candidate.kind, candidate.size) != (reference.kind, reference.size):
        return False
    return all(
        np.array_equal(mine.values, theirs.values[mine.positions])
        for mine, theirs in zip(candidate.parts, reference.parts, strict=True)
    )


def _agrees(array: Array, layout: Layout, rows: list[Array]) -> bool:
    expected = reference_reading(rows, _TOKENS)
    assert expected is not None
    return any(_same(reading, expected) for reading in candidate_readings(array, layout))


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize(
    "order", [(0, 1, 2, 3), (0, 2, 1, 3), (2, 0, 1, 3)], ids=["BNSD", "BSND", "SBND"]
)
def test_axes_of_a_padded_batch_may_be_in_any_order(side: str, order: tuple[int, ...]) -> None:
    rows = _values()
    array = _padded(rows, side).transpose(order)
    assert _agrees(array, _layout(Padding(side)), rows)


@pytest.mark.parametrize("side", ["left", "right"])
def test_rows_may_share_an_axis_with_heads_or_with_tokens(side: str) -> None:
    rows, layout = _values(), _layout(Padding(side))
    array = _padded(rows, side)
    assert _agrees(array.reshape(2 * _HEADS, -1, _SIZE), layout, rows)
    by_token = array.transpose(0, 2, 1, 3).reshape(2 * max(_LENGTHS), -1)
    assert _agrees(by_token, layout, rows)


def test_keys_that_are_transposed_are_read_in_the_order_of_the_reference() -> None:
    rows = _values()
    array = _padded(rows, "left").swapaxes(2, 3)  # [B, N, D, S]
    assert _agrees(array, _layout(Padding.LEFT), rows)


def test_rows_one_after_the_other() -> None:
    rows = _values()
    flat = np.concatenate([row[0][:, :n] for row, n in zip(rows, _LENGTHS, strict=True)], axis=1)
    layout = _layout(Padding.RAGGED)
    assert _agrees(flat.swapaxes(0, 1), layout, rows)  # [tokens, N, D]
    assert _agrees(flat.swapaxes(0, 1).reshape(8, -1), layout, rows)


@pytest.mark.parametrize("padding", [Padding.LEFT, Padding.RAGGED])
def test_a_decode_step_holds_the_newest_token(padding: Padding) -> None:
    rows = _values()
    new = np.stack([row[0][:, length + 1] for row, length in zip(rows, _LENGTHS, strict=True)])
    layout = _layout(padding, step=2)
    assert _agrees(new if padding is Padding.RAGGED else new[:, :, None], layout, rows)
    assert not _agrees(new[::-1].copy(), layout, rows)


def test_what_a_cache_holds_in_a_decode_step() -> None:
    rows = _values()
    longest = max(_LENGTHS) + 1
    cache = np.zeros((2, _HEADS, longest, _SIZE))
    for row, length in enumerate(_LENGTHS):
        cache[row, :, longest - length - 1 :] = rows[row][0][:, : length + 1]
    assert _agrees(cache, _layout(Padding.LEFT, step=1), rows)


def test_scores_have_queries_and_keys() -> None:
    generator = np.random.default_rng(1)
    rows = [generator.standard_normal((1, _HEADS, n, n)) for n in _TOKENS]
    longest = max(_LENGTHS)
    scores = np.zeros((2, _HEADS, longest, longest))
    for row, length in enumerate(_LENGTHS):
        scores[row, :, longest - length :, longest - length :] = rows[row][0][:, :length, :length]
    expected = reference_reading(rows, _TOKENS)
    assert expected is not None
    assert expected.kind == BY_KEY
    for array in (scores, scores.reshape(2 * _HEADS, longest, longest)):
        found = [
            reading
            for reading in candidate_readings(array, _layout(Padding.LEFT))
            if reading.kind == BY_KEY
        ]
        assert any(
            all(
                np.array_equal(mine.values, theirs.values[mine.positions][..., : len(mine.values)])
                for mine, theirs in zip(reading.parts, expected.parts, strict=True)
            )
            for reading in found
        )


def test_other_values_are_not_the_same() -> None:
    rows, others = _values(), _values(seed=1)
    assert not _agrees(_padded(others, "left"), _layout(Padding.LEFT), rows)
    permuted = _padded(rows, "left")[:, ::-1].copy()
    assert not _agrees(permuted, _layout(Padding.LEFT), rows)


def test_without_token_ids_a_tensor_is_read_as_a_whole() -> None:
    values = np.arange(6.0).reshape(2, 3)
    expected = reference_reading([values], [None])
    assert expected is not None
    none = Layout(padding=Padding.NONE, lengths=(), step=0)
    (reading,) = candidate_readings(values, none)
    assert _same(reading, expected)


def test_rows_of_unlike_ranks_cannot_be_read() -> None:
    assert reference_reading([np.zeros((1, 7)), np.zeros(5)], _TOKENS) is None


def test_a_tensor_by_token_is_told_from_one_without() -> None:
    assert reference_reading(_values(), _TOKENS).kind == BY_TOKEN  # type: ignore[union-attr]  # there is one
    fixed = reference_reading([np.ones(3), np.ones(3)], _TOKENS)
    assert fixed is not None
    assert fixed.kind not in (BY_TOKEN, BY_KEY)
