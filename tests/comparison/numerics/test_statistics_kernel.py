"""The compiled statistics against NumPy in float64, and their fingerprint against the plain way."""

import numpy as np
import pytest

from comparison.numerics.statistics_kernel import StatisticsKernel
from comparison.numerics.statistics_layout import CHUNK
from comparison.numerics.tensor_fingerprint import fingerprint_of

RANDOM = np.random.default_rng(5)


@pytest.fixture(scope="module", name="kernel")
def _kernel(tmp_path_factory: pytest.TempPathFactory) -> StatisticsKernel:
    kernel = StatisticsKernel.load(tmp_path_factory.mktemp("kernels"))
    assert kernel is not None
    return kernel


# One word, less than a block, parts of chunks, and enough chunks for several threads.
@pytest.mark.parametrize("words", [1, 511, 513, CHUNK, CHUNK + 1, 17 * CHUNK + 301])
def test_one_pass_gives_what_many_give(kernel: StatisticsKernel, words: int) -> None:
    values = (RANDOM.standard_normal(2 * words) * 3 + 0.25).astype(np.float32)
    found = kernel.sums(values)
    assert found is not None
    assert (found.least, found.greatest) == (values.min(), values.max())
    wide = values.astype(np.float64)
    assert found.total == pytest.approx(wide.sum(), rel=1e-5, abs=1e-5 * np.sqrt(wide.size))
    assert found.squares == pytest.approx((wide * wide).sum(), rel=1e-5)
    assert found.fingerprint == fingerprint_of(values)


@pytest.mark.parametrize(
    "ends", [(-3.5, -1e-40), (1e-40, 2.5), (-0.0, 0.0), (-1e-45, 1e-45), (-3e38, 3e38)]
)
def test_ends_of_either_sign_are_found_wherever_they_are(
    kernel: StatisticsKernel, ends: tuple[float, float]
) -> None:
    least, greatest = np.array(ends, np.float32)
    for place in (0, 700, 2 * CHUNK + 5):
        values = np.full(2 * CHUNK + 6, (least + greatest) / 2, np.float32)
        values[place], values[-1 - place] = least, greatest
        found = kernel.sums(values)
        if greatest > 1e19:
            assert found is None  # the squares are too great for float32
            continue
        assert found is not None
        assert (found.least, found.greatest) == (least, greatest)


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, 1027, -1])
def test_what_is_no_number_is_left_to_others(
    kernel: StatisticsKernel, odd: float, place: int
) -> None:
    values = RANDOM.standard_normal(2 * CHUNK + 6).astype(np.float32)
    values[place] = odd
    assert kernel.sums(values) is None


def test_only_whole_words_of_plain_values_are_taken(kernel: StatisticsKernel) -> None:
    values = np.ones((4, 6), np.float32)
    assert kernel.sums(values) is not None
    assert kernel.sums(values[:, :5]) is None
    assert kernel.sums(values[0, :5]) is None
    assert kernel.sums(values.astype(np.float64)) is None
    assert kernel.sums(values.astype(">f4")) is None
    assert kernel.sums(values.reshape(-1)[1:23]) is None
    assert kernel.sums(values[:0]) is None
