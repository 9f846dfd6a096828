"""Padded batches against ragged rows, always with two lengths."""

import time

import numpy as np
import pytest

from comparison.align.rows import Aligned, Layout, align_arrays
from comparison.numerics.dtypes import Array
from comparison.schema.manifest import Padding
from comparison.schema.outcome import NotComparable, ShapeDiffers
from tests.comparison.dumps import numbers

LENGTHS = (12, 9)
UNKNOWN = Layout(padding=None, lengths=(), step=0)


def layout(padding: Padding | None, step: int = 0, lengths: tuple[int, ...] = LENGTHS) -> Layout:
    return Layout(padding=padding, lengths=lengths, step=step)


def align(
    reference: Array,
    candidate: Array,
    left: Layout = UNKNOWN,
    right: Layout = UNKNOWN,
    *,
    allow_reshape: bool = False,
) -> Aligned | ShapeDiffers | NotComparable:
    return align_arrays(
        reference,
        candidate,
        reference_layout=left,
        candidate_layout=right,
        allow_reshape=allow_reshape,
    )


def assert_equal_sides(aligned: Aligned | ShapeDiffers | NotComparable) -> Aligned:
    assert isinstance(aligned, Aligned)
    rows = 0
    for block in aligned.blocks:
        assert block.origin == rows
        np.testing.assert_array_equal(block.reference, block.candidate)
        rows += block.reference.shape[0] if block.reference.ndim else 0
    if aligned.shape:
        assert rows == aligned.shape[0]
    return aligned


def pad(
    ragged: Array, padding: Padding, lengths: tuple[int, ...] = LENGTHS, value: float = 99
) -> Array:
    width = max(lengths)
    padded = np.full((len(lengths), width, *ragged.shape[1:]), value, ragged.dtype)
    start = 0
    for row, n in enumerate(lengths):
        where = slice(width - n, width) if padding is Padding.LEFT else slice(0, n)
        padded[row, where] = ragged[start : start + n]
        start += n
    return padded


@pytest.mark.parametrize("padding", [Padding.LEFT, Padding.RIGHT])
@pytest.mark.parametrize("trailing", [(), (16,), (4, 8)])
def test_padded_against_ragged(padding: Padding, trailing: tuple[int, ...]) -> None:
    ragged = numbers(21, *trailing)
    padded = pad(ragged, padding)
    there = align(padded, ragged, layout(padding), layout(Padding.RAGGED))
    assert assert_equal_sides(there).shape == (21, *trailing)
    back = align(ragged, padded, layout(Padding.RAGGED), layout(padding))
    assert assert_equal_sides(back).shape == (21, *trailing)
    assert isinstance(there, Aligned)
    assert there.adjustments == (
        f"rows of 2 sequences (12, 9 tokens) taken from reference {list(padded.shape)} "
        f"and candidate {list(ragged.shape)}",
    )


def test_nothing_is_copied() -> None:
    ragged = numbers(21, 4, 8)
    padded = pad(ragged, Padding.LEFT)
    aligned = align(padded, ragged, layout(Padding.LEFT), layout(Padding.RAGGED))
    assert isinstance(aligned, Aligned)
    for block in aligned.blocks:
        assert np.shares_memory(block.reference, padded)
        assert np.shares_memory(block.candidate, ragged)


def test_heads_before_tokens() -> None:
    ragged = numbers(21, 4, 8)  # [tokens, N, D]
    padded = pad(ragged, Padding.LEFT).swapaxes(1, 2)  # [B, N, S, D]
    aligned = align(padded, ragged, layout(Padding.LEFT), layout(Padding.RAGGED))
    assert assert_equal_sides(aligned).adjustments == (
        "rows of 2 sequences (12, 9 tokens) taken from reference [2, 4, 12, 8] with heads and "
        "tokens swapped and candidate [21, 4, 8]",
    )


def test_what_rows_share_is_held_against_each() -> None:
    shared = numbers(1, max(LENGTHS), 6)
    ragged = np.concatenate([shared[0, :n] for n in LENGTHS])
    left, right = layout(Padding.RIGHT), layout(Padding.RAGGED)
    aligned = assert_equal_sides(align(shared, ragged, left, right))
    assert aligned.shape == (sum(LENGTHS), 6)
    assert "[1, 12, 6], shared by rows" in aligned.adjustments[0]
    # Padded on the left, each row has positions of its own.
    assert isinstance(align(shared, ragged, layout(Padding.LEFT), right), ShapeDiffers)


def test_ragged_rows_behind_a_dimension_of_one() -> None:
    ragged = numbers(sum(LENGTHS), 6)
    left, right = layout(Padding.LEFT), layout(Padding.RAGGED)
    aligned = align(pad(ragged, Padding.LEFT), ragged[None], left, right)
    assert assert_equal_sides(aligned).shape == (sum(LENGTHS), 6)


def test_as_many_heads_as_tokens_is_ambiguous() -> None:
    ragged = numbers(21, 12, 8)
    padded = pad(ragged, Padding.LEFT)
    outcome = align(padded, ragged, layout(Padding.LEFT), layout(Padding.RAGGED))
    assert isinstance(outcome, NotComparable)
    assert outcome.reason.startswith("which axis of [2, 12, 12, 8] and [21, 12, 8] counts")


def test_flat_heads() -> None:
    ragged = numbers(21, 4, 8)
    flat = pad(ragged.reshape(21, 32), Padding.LEFT)
    aligned = align(flat, ragged, layout(Padding.LEFT), layout(Padding.RAGGED))
    assert isinstance(aligned, Aligned)
    assert assert_equal_sides(aligned).shape == (21, 32)
    assert aligned.adjustments[1] == "candidate's [4, 8] a token read as [32]"


@pytest.mark.parametrize("padding", [Padding.LEFT, Padding.RIGHT])
def test_only_the_last_tokens_are_there(padding: Padding) -> None:
    ragged = numbers(21, 16)
    last = ragged[[11, 20]]
    aligned = align(pad(ragged, padding), last, layout(padding), layout(Padding.RAGGED))
    assert assert_equal_sides(aligned).shape == (2, 16)
    assert isinstance(aligned, Aligned)
    assert aligned.adjustments == (
        "last token of each of 2 sequences taken from reference [2, 12, 16]",
    )
    turned = align(last, pad(ragged, padding), layout(Padding.RAGGED), layout(padding))
    assert_equal_sides(turned)
    assert_equal_sides(align(ragged, last, layout(Padding.RAGGED), layout(Padding.RAGGED)))


def test_a_decode_step() -> None:
    ragged = numbers(2, 16)
    padded = ragged.reshape(2, 1, 16)
    aligned = align(padded, ragged, layout(Padding.LEFT, 3), layout(Padding.RAGGED, 3))
    assert assert_equal_sides(aligned).shape == (2, 16)
    heads = numbers(2, 4, 8)
    for shape in ((2, 4, 1, 8), (2, 1, 4, 8), (2, 1, 32)):
        padded = heads.reshape(shape)
        aligned = align(padded, heads, layout(Padding.LEFT, 3), layout(Padding.RAGGED, 3))
        assert isinstance(aligned, Aligned)
        joined = np.concatenate([block.reference for block in aligned.blocks])
        np.testing.assert_array_equal(joined.reshape(2, 4, 8), heads)
        assert_equal_sides(aligned)


def test_decode_without_a_cache_runs_all_tokens() -> None:
    ragged = numbers(27, 16)  # 12 + 3 and 9 + 3 tokens
    padded = pad(ragged, Padding.LEFT, lengths=(15, 12))
    aligned = align(padded, ragged[[14, 26]], layout(Padding.LEFT, 3), layout(Padding.RAGGED, 3))
    assert_equal_sides(aligned)


@pytest.mark.parametrize("shape", [(1, 12, 16), (12, 16)])
def test_one_row(shape: tuple[int, ...]) -> None:
    ragged = numbers(12, 16)
    aligned = align(
        ragged.reshape(1, 12, 16),
        ragged.reshape(shape),
        layout(Padding.NONE, lengths=(12,)),
        layout(Padding.RAGGED, lengths=(12,)),
    )
    assert_equal_sides(aligned)


def test_one_row_and_its_last_token() -> None:
    reference = numbers(1, 12, 16)
    aligned = align(
        reference,
        reference[:, -1],
        layout(Padding.NONE, lengths=(12,)),
        layout(Padding.RAGGED, lengths=(12,)),
    )
    assert assert_equal_sides(aligned).shape == (1, 16)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (Padding.RIGHT, Padding.RIGHT),
        (Padding.LEFT, Padding.LEFT),
        (Padding.LEFT, Padding.RIGHT),
    ],
)
def test_pads_are_dropped_on_both_sides(left: Padding, right: Padding) -> None:
    ragged = numbers(21, 16)
    aligned = align(
        pad(ragged, left, value=1), pad(ragged, right, value=2), layout(left), layout(right)
    )
    assert assert_equal_sides(aligned).shape == (21, 16)


def test_equal_shapes_that_hold_no_tokens_are_left_alone() -> None:
    tables = numbers(64, 8)
    aligned = align(tables, tables, layout(Padding.LEFT), layout(Padding.LEFT))
    assert assert_equal_sides(aligned).adjustments == ()


def test_one_manifest_is_enough_for_ragged_rows() -> None:
    ragged = numbers(21, 16)
    aligned = align(pad(ragged, Padding.LEFT), ragged, layout(Padding.LEFT), layout(None))
    assert_equal_sides(aligned)


def test_without_manifests_only_leading_ones_go() -> None:
    reference = numbers(1, 1, 12, 16)
    aligned = align(reference, reference[0, 0])
    assert assert_equal_sides(aligned).adjustments == (
        "leading dimensions of 1 left out of [1, 1, 12, 16] and [12, 16]",
    )
    scalar = np.ones(1)
    assert_equal_sides(align(scalar, scalar[0:1].reshape(())))


def test_without_manifests_nothing_else_is_guessed() -> None:
    ragged = numbers(24, 16)
    assert align(ragged.reshape(2, 12, 16), ragged) == ShapeDiffers(
        reason="equal number of elements (384); --allow-reshape compares them in row-major order"
    )
    aligned = align(ragged.reshape(2, 12, 16), ragged, allow_reshape=True)
    assert assert_equal_sides(aligned).adjustments == (
        "candidate reshaped from [24, 16] to [2, 12, 16]",
    )
    expected = ShapeDiffers(reason="384 and 368 elements")
    assert align(ragged, ragged[1:], allow_reshape=True) == expected


def test_other_prompts_do_not_fit() -> None:
    ragged = numbers(21, 16)
    outcome = align(
        pad(ragged, Padding.LEFT),
        ragged[:20],
        layout(Padding.LEFT),
        layout(Padding.RAGGED, 0, (12, 8)),
    )
    assert isinstance(outcome, ShapeDiffers)


def test_what_one_side_had_cached_is_left_out_of_the_other() -> None:
    whole = numbers(21, 4)  # 12 and 9 tokens
    lost = (5, 2)
    rest = np.concatenate([whole[5:12], whole[14:]])
    own = Layout(padding=Padding.RAGGED, lengths=LENGTHS, step=0, skipped=lost)
    assert own.held() == (7, 7)
    aligned = assert_equal_sides(align(whole, rest, layout(Padding.RAGGED), own))
    assert aligned.shape == (14, 4)
    assert "without what was cached" in aligned.adjustments[0]
    assert assert_equal_sides(align(rest, rest, own, own)).adjustments == ()
    later = Layout(padding=Padding.RAGGED, lengths=LENGTHS, step=2, skipped=lost)
    assert later.held() == LENGTHS
    step = numbers(2, 4)
    assert_equal_sides(align(step, step, layout(Padding.RAGGED, step=2), later))


def test_batches_of_unlike_numbers_of_rows_do_not_fit() -> None:
    left, right = layout(Padding.RAGGED), layout(Padding.RAGGED, lengths=(12, 5, 9))
    assert isinstance(align(numbers(21, 4), numbers(26, 4), left, right), ShapeDiffers)
    cached = [
        Layout(padding=Padding.RAGGED, lengths=lengths, step=0, skipped=(1,) * len(lengths))
        for lengths in ((12, 9), (20,))
    ]
    for sides in (cached, cached[::-1]):
        assert isinstance(align(numbers(19, 4), numbers(19, 4), *sides), Aligned | ShapeDiffers)
        assert isinstance(align(numbers(19, 4), numbers(18, 4), *sides), ShapeDiffers)


def test_a_batch_of_very_many_rows_is_cut_at_once() -> None:
    many = layout(Padding.RAGGED, lengths=(1,) * 30_000)
    begin = time.process_time()
    assert_equal_sides(
        align(
            numbers(30_000, 2),
            numbers(30_000, 2),
            many,
            layout(Padding.RIGHT, lengths=(1,) * 30_000),
        )
    )
    assert time.process_time() - begin < 2
