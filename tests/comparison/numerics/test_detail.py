import ml_dtypes
import numpy as np
import pytest

from comparison.numerics.axes import ModelSizes, axes_of, by_head
from comparison.numerics.blocks import Block
from comparison.numerics.detail import reduce_pair
from comparison.numerics.dtypes import Array
from comparison.schema.detail import TensorDetail


def numbers(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def reduce(
    reference: Array, candidate: Array, center: tuple[int, ...] = (), **more: object
) -> TensorDetail:
    detail = reduce_pair(
        [Block(reference=reference, candidate=candidate)],
        shape=reference.shape,
        axes=axes_of(reference.shape, 0, ModelSizes(tokens=reference.shape[0])),
        center=center or (0,) * reference.ndim,
        **more,  # type: ignore[arg-type]  # by_head
    )
    assert detail is not None
    return detail


def test_maps_find_the_token_the_head_and_the_channel_at_their_scale() -> None:
    reference = numbers(37, 5, 130)  # 130 channels fold into 64 columns, of unequal width
    candidate = reference.copy()
    candidate[20, 3, 117] += 0.5
    channels, heads = reduce(reference, candidate).maps
    assert (channels.rows, channels.columns, channels.column_size) == ("token", "channel", 130)
    expected = float(np.abs(candidate - reference).max())
    by_channel = np.array(channels.values)
    assert by_channel.shape == (37, 64)
    assert by_channel[20, 117 * 64 // 130] == pytest.approx(expected)
    assert np.count_nonzero(by_channel) == 1
    by_heads = np.array(heads.values)
    assert (heads.columns, by_heads.shape) == ("head", (37, 5))
    assert np.argwhere(by_heads).tolist() == [[20, 3]]


def test_a_map_holds_the_greatest_of_each_block_over_several_chunks() -> None:
    reference = np.zeros((300, 200), np.float32)
    candidate = numbers(300, 200)
    (found,) = reduce(reference, candidate).maps
    rows, columns = np.arange(300) * 64 // 300, np.arange(200) * 64 // 200
    for r, c in ((0, 0), (13, 63), (63, 31)):
        block = np.abs(candidate[rows == r][:, columns == c])
        assert found.values[r][c] == block.max()


def test_heads_one_behind_the_other_get_a_map_too() -> None:
    reference = numbers(11, 6 * 8)
    candidate = reference.copy()
    candidate[4, 5 * 8 + 7] += 1
    maps = reduce(reference, candidate, by_head=(11, 6, 8)).maps
    assert [(item.rows, item.columns) for item in maps] == [("token", "channel"), ("token", "head")]
    assert np.argwhere(np.array(maps[1].values)).tolist() == [[4, 5]]


def test_histogram_counts_every_element_once() -> None:
    reference = np.zeros(50000, np.float64)
    candidate = np.zeros(50000)
    candidate[:3] = [2e-3, -5e-3, 1e-30]  # the last lies far below: in the lowest bin
    found = reduce(reference, candidate).histogram
    assert found.equal == 49997
    assert (len(found.counts), sum(found.counts), found.counts[0]) == (40, 3, 1)
    top = 10 ** (found.exponent + len(found.counts) / 4)
    assert 5e-3 < top < 5e-3 * 10**0.25


def test_scatter_holds_what_differs_most_and_a_sample() -> None:
    reference = numbers(70, 64)
    candidate = reference.copy()
    candidate[::7, 3] += np.arange(10, dtype=np.float32) + 1
    found = reduce(reference, candidate)
    assert found.worst == 10
    assert 300 <= len(found.scatter) - found.worst + 40 <= 400
    assert found.scatter[0] == (float(reference[63, 3]), float(candidate[63, 3]))
    assert len({x for x, _ in found.scatter[10:]} & {float(x) for x in reference[:, 5]}) > 0


@pytest.mark.parametrize("center", [(0, 0), (5, 4), (8, 40)])
def test_window_lies_within_the_tensor_and_holds_its_center(center: tuple[int, int]) -> None:
    reference, candidate = numbers(9, 41), numbers(9, 41, seed=1)
    cut = reduce(reference, candidate, center).window
    assert (len(cut.reference), len(cut.reference[0])) == (7, 7)
    row, column = center[0] - cut.row_start, center[1] - cut.column_start
    assert cut.reference[row][column] == reference[center]
    assert cut.candidate[row][column] == candidate[center]


def test_window_over_rows_of_several_blocks() -> None:
    whole = numbers(10, 12)
    blocks = [
        Block(reference=whole[:4], candidate=whole[:4] + 1),
        Block(reference=whole[4:], candidate=whole[4:] + 1, origin=4),
    ]
    found = reduce_pair(blocks, shape=(10, 12), axes=("token", "channel"), center=(5, 6))
    assert found is not None
    assert np.array_equal(np.array(found.window.reference), whole[2:9, 3:10])


@pytest.mark.parametrize(
    ("dtype", "ulp"),
    [
        (np.float32, 2.0**-23),
        (ml_dtypes.bfloat16, 2.0**-7),
        (np.float16, 2.0**-10),
        (ml_dtypes.float8_e4m3fn, 2.0**-3),
        (np.float64, 2.0**-52),
    ],
)
def test_units_in_the_last_place(dtype: type, ulp: float) -> None:
    reference = np.array([[1.0, 2.0, 0.0]]).astype(dtype)
    candidate = np.array([[1.0 + 3 * ulp, 2.0, 0.0]]).astype(dtype)
    found = reduce(reference, candidate).ulp
    assert found is not None
    assert (found.dtype, found.greatest, found.mean) == (np.dtype(dtype).name, 3.0, 1.0)


def test_the_coarser_unit_counts_where_precisions_differ() -> None:
    reference = np.array([[1.0, 1.5]], np.float32)
    candidate = np.array([[1.0078125, 1.5]]).astype(ml_dtypes.bfloat16)
    found = reduce(reference, candidate).ulp
    assert found is not None
    assert (found.dtype, found.greatest) == ("bfloat16", 1.0)


def test_nan_and_infinity_show_and_disturb_no_figure() -> None:
    reference = np.array([[1.0, np.nan, np.inf, 2.0], [1.0, 2.0, 3.0, 4.0]], np.float32)
    candidate = np.array([[1.5, np.nan, -np.inf, np.nan], [1.0, 2.0, 3.0, 4.0]], np.float32)
    found = reduce(reference, candidate, (0, 2))
    assert found.maps[0].values == ((0.5, 0.0, np.inf, np.inf), (0.0,) * 4)
    assert sum(found.histogram.counts) + found.histogram.equal == 5
    assert np.isfinite(np.array(found.scatter)).all()
    assert np.isnan(found.window.candidate[0][3])


@pytest.mark.parametrize("dtype", [np.bool_, np.int64, np.uint8])
def test_integers_and_booleans(dtype: type) -> None:
    reference = np.array([[0, 1, 1], [1, 0, 1]]).astype(dtype)
    candidate = reference.copy()
    candidate[1, 1] = 1
    found = reduce(reference, candidate, (1, 1))
    assert (found.ulp, found.histogram.equal) == (None, 5)
    assert found.window.candidate == ((0, 1, 1), (1, 1, 1))


@pytest.mark.parametrize("shape", [(), (5,), (2, 1, 3, 2, 4)])
def test_any_number_of_axes(shape: tuple[int, ...]) -> None:
    reference = numbers(*shape)
    found = reduce_pair(
        [Block(reference=reference, candidate=reference + 1)],
        shape=shape,
        axes=axes_of(shape, 0, ModelSizes()),
        center=(0,) * len(shape),
    )
    assert found is not None
    assert sum(found.histogram.counts) == reference.size
    assert bool(found.maps) == (len(shape) > 1)


def test_nothing_to_show() -> None:
    for reference in (np.zeros((0, 4), np.float32), np.zeros((2, 2), np.complex64)):
        block = Block(reference=reference, candidate=reference)
        axes = ("token", "channel")
        assert reduce_pair([block], shape=reference.shape, axes=axes, center=(0, 0)) is None


@pytest.mark.parametrize(
    ("shape", "step", "axes"),
    [
        ((13, 48), 0, ("token", "channel")),
        ((13, 6, 8), 0, ("token", "head", "channel")),
        ((2, 9, 48), 0, ("row", "token", "channel")),
        ((2, 6, 8), 1, ("token", "head", "channel")),
        ((2, 1, 48), 1, ("row", "token", "channel")),
        ((2, 6, 9, 9), 0, ("row", "head", "token", "key")),
        ((1, 13), 0, ("row", "token")),
        ((7,), 0, ("element",)),
    ],
)
def test_axes_are_named(shape: tuple[int, ...], step: int, axes: tuple[str, ...]) -> None:
    assert axes_of(shape, step, ModelSizes(tokens=13, rows=2, heads=(6, 2), head_size=8)) == axes


def test_which_tensors_are_by_head() -> None:
    sizes = ModelSizes(tokens=13, heads=(6, 2), head_size=8)
    layer = "model.layers.0.self_attn"
    assert by_head(f"{layer}.q_proj-output", (13, 48), sizes) == (13, 6, 8)
    assert by_head(f"{layer}.k_proj-output", (2, 9, 16), sizes) == (18, 2, 8)
    assert by_head(f"{layer}.o_proj-input_0", (13, 48), sizes) == (13, 6, 8)
    assert by_head(f"{layer}.o_proj-output", (13, 48), sizes) is None
    assert by_head(f"{layer}.q_proj-output", (13, 40), sizes) is None
    assert by_head("by_hand", (13, 48), sizes) is None


def test_one_value_a_token_of_a_batch_is_drawn_by_row_and_token() -> None:
    reference = numbers(3, 5)
    candidate = reference.copy()
    candidate[2, 4] += 1
    detail = reduce_pair(
        [Block(reference=reference, candidate=candidate)],
        shape=(3, 5),
        axes=axes_of((3, 5), 0, ModelSizes(tokens=15)),
        center=(2, 4),
    )
    assert detail is not None
    (found,) = detail.maps
    assert (found.rows, found.columns) == ("row", "token")
    assert np.argwhere(np.array(found.values)).tolist() == [[2, 4]]


def test_a_row_without_tokens_changes_nothing() -> None:
    reference = numbers(4, 6)
    candidate = reference + 1
    parts = ((0, 1), (1, 1), (1, 4))  # the second row has none
    blocks = [Block(reference=reference[a:b], candidate=candidate[a:b], origin=a) for a, b in parts]
    axes = axes_of((4, 6), 0, ModelSizes(tokens=4))
    found = reduce_pair(blocks, shape=(4, 6), axes=axes, center=(3, 0))
    assert found == reduce(reference, candidate, (3, 0))
