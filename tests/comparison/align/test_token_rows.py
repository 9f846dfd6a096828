"""Values by row and token position, whatever the layout."""

import numpy as np
import pytest

from comparison.align.rows import Layout
from comparison.align.token_rows import Wanted, token_rows
from comparison.schema.manifest import Padding, Stretch

LENGTHS = (5, 3)
WANTED = Wanted(trailing=(4, 2))


def _rows(step: int = 0) -> list[np.ndarray]:
    """Values that tell row, position, head and feature."""
    return [
        np.array(
            [
                [
                    [1000 * row + 100 * position + 10 * head + d for d in range(2)]
                    for head in range(4)
                ]
                for position in range(length + step)
            ],
            dtype=np.float32,
        )
        for row, length in enumerate(LENGTHS)
    ]


def _padded(rows: list[np.ndarray], side: Padding) -> np.ndarray:
    width = max(len(row) for row in rows)
    batch = np.full((len(rows), width, 4, 2), -1, np.float32)
    for number, row in enumerate(rows):
        place = slice(width - len(row), width) if side is Padding.LEFT else slice(0, len(row))
        batch[number, place] = row
    return batch


@pytest.mark.parametrize("form", ["left", "right", "ragged", "heads first", "flat", "flat batch"])
def test_whole_rows_of_a_prefill(form: str) -> None:
    rows = _rows()
    padding = {"ragged": Padding.RAGGED, "right": Padding.RIGHT}.get(form, Padding.LEFT)
    array = np.concatenate(rows) if form == "ragged" else _padded(rows, padding)
    if form == "heads first":
        array = array.swapaxes(1, 2)
    if form == "flat":
        array = array.reshape(2, 5, 8)
    if form == "flat batch":
        array = array.reshape(10, 4, 2)
    found = token_rows(array, Layout(padding=padding, lengths=LENGTHS, step=0), WANTED)
    assert found is not None
    for row, wanted in zip(found, rows, strict=True):
        np.testing.assert_array_equal(row.values.reshape(wanted.shape), wanted)
        np.testing.assert_array_equal(row.positions, np.arange(len(wanted)))


@pytest.mark.parametrize("padding", [Padding.LEFT, Padding.RAGGED])
@pytest.mark.parametrize("cached", [True, False])
def test_of_a_decode_step_only_the_newest_token_counts(padding: Padding, cached: bool) -> None:
    rows = _rows(step=2)
    newest = np.stack([row[-1:] for row in rows])  # [B, 1, N, D]
    array = newest if cached else _padded(rows, Padding.LEFT)
    if padding is Padding.RAGGED:
        array = newest[:, 0]
    found = token_rows(array, Layout(padding=padding, lengths=LENGTHS, step=2), WANTED)
    assert found is not None
    assert [row.positions.tolist() for row in found] == [[6], [4]]
    for row, wanted in zip(found, rows, strict=True):
        np.testing.assert_array_equal(row.values, wanted[-1:])


def test_last_tokens_alone_are_told_from_whole_rows() -> None:
    last = np.stack([row[-1] for row in _rows()])
    found = token_rows(last, Layout(padding=Padding.RAGGED, lengths=LENGTHS, step=0), WANTED)
    assert found is not None
    assert [row.positions.tolist() for row in found] == [[4], [2]]


def test_one_value_a_row_is_no_last_token_where_none_is_kept_alone() -> None:
    pooled = np.stack([row[-1] for row in _rows()])
    layout = Layout(padding=Padding.RIGHT, lengths=LENGTHS, step=0, last_tokens=False)
    assert token_rows(pooled, layout, WANTED) is None


def test_masks_are_cut_on_both_axes() -> None:
    mask = np.arange(50).reshape(2, 1, 5, 5)
    layout = Layout(padding=Padding.LEFT, lengths=LENGTHS, step=0)
    found = token_rows(mask, layout, Wanted(trailing=(), square=True))
    assert found is not None
    np.testing.assert_array_equal(found[1].values, mask[1, 0, 2:, 2:])


def test_what_does_not_fit_is_not_guessed() -> None:
    layout = Layout(padding=Padding.LEFT, lengths=LENGTHS, step=0)
    assert token_rows(np.zeros((2, 5, 9)), layout, WANTED) is None
    assert token_rows(np.zeros(()), layout, WANTED) is None


def _stretched(*stretches: Stretch, padding: Padding = Padding.RAGGED, **more: bool) -> Layout:
    return Layout(padding=padding, lengths=LENGTHS, step=0, stretches=stretches, **more)


STRETCHES = (Stretch(row=0, first=1, count=3), Stretch(row=1, first=0, count=2))


def _parts(rows: list[np.ndarray]) -> list[np.ndarray]:
    return [rows[s.row][s.first : s.first + s.count] for s in STRETCHES]


@pytest.mark.parametrize("form", ["ragged", "one sequence", "batch", "heads first", "flat heads"])
def test_stretches_of_rows(form: str) -> None:
    parts = _parts(_rows())
    padding = Padding.LEFT if form in ("batch", "heads first") else Padding.RAGGED
    array = np.concatenate(parts)
    if form == "one sequence":
        array = array[None]
    if form == "flat heads":
        array = array.reshape(5, 8)
    if padding is Padding.LEFT:
        array = _padded(parts, padding)
    if form == "heads first":
        array = array.swapaxes(1, 2)
    found = token_rows(array, _stretched(*STRETCHES, padding=padding), WANTED)
    assert found is not None
    assert [row.positions.tolist() for row in found] == [[1, 2, 3], [0, 1]]
    for row, part in zip(found, parts, strict=True):
        np.testing.assert_array_equal(row.values, part)


def test_the_last_tokens_of_stretches() -> None:
    last = np.stack([part[-1] for part in _parts(_rows())])
    found = token_rows(last, _stretched(*STRETCHES), WANTED)
    assert found is not None
    assert [row.positions.tolist() for row in found] == [[3], [1]]
    assert token_rows(last, _stretched(*STRETCHES, last_tokens=False), WANTED) is None


def test_a_row_of_which_nothing_was_computed_is_empty() -> None:
    first = STRETCHES[0]
    found = token_rows(_parts(_rows())[0], _stretched(first), WANTED)
    assert found is not None
    assert [len(row.values) for row in found] == [3, 0]
    assert found[1].positions.tolist() == []


def test_a_mask_of_a_stretch_is_not_read() -> None:
    square = Wanted(trailing=(), square=True)
    assert token_rows(np.zeros((1, 1, 5, 5)), _stretched(*STRETCHES), square) is None


def test_a_tensor_shared_by_all_rows() -> None:
    positions = np.arange(5.0)[None, :, None]  # [1, S, 1]
    layout = Layout(padding=Padding.RIGHT, lengths=LENGTHS, step=0)
    found = token_rows(positions, layout, Wanted(trailing=(1,)))
    assert found is not None
    assert [row.values[:, 0].tolist() for row in found] == [[0, 1, 2, 3, 4], [0, 1, 2]]
    left = Layout(padding=Padding.LEFT, lengths=LENGTHS, step=0)
    assert token_rows(positions, left, Wanted(trailing=(1,))) is None  # it counts pads


@pytest.mark.parametrize(
    ("shape", "step"), [((2, 5, 5), 0), ((2, 3, 5, 5), 0), ((2, 1, 4, 4), 0), ((3, 1, 5, 5), 0)]
)
def test_what_is_no_mask(shape: tuple[int, ...], step: int) -> None:
    layout = Layout(padding=Padding.LEFT, lengths=LENGTHS, step=step)
    assert token_rows(np.zeros(shape), layout, Wanted(trailing=(), square=True)) is None


def test_a_mask_of_a_decode_step_and_one_shared_by_rows() -> None:
    square = Wanted(trailing=(), square=True)
    mask = np.arange(14).reshape(2, 1, 1, 7)
    layout = Layout(padding=Padding.LEFT, lengths=LENGTHS, step=2)
    found = token_rows(mask, layout, square)
    assert found is not None
    assert [row.positions.tolist() for row in found] == [[6], [4]]
    assert found[1].values.tolist() == [[9, 10, 11, 12, 13]]
    shared = np.arange(25).reshape(1, 1, 5, 5)
    first = token_rows(shared, Layout(padding=Padding.RIGHT, lengths=LENGTHS, step=0), square)
    assert first is not None
    assert first[1].values.tolist() == [[0, 1, 2], [5, 6, 7], [10, 11, 12]]
