"""The grids of quantised weights, against torch's own quantisation and by hand."""

import numpy as np
import torch

from diagnosis.causes.grids import Grid, grids

WEIGHT = np.random.default_rng(3).standard_normal((7, 48))
EVERY = np.arange(7)


def grid(says: str) -> Grid:
    return next(one for one in grids(WEIGHT) if one.says == says)


def test_integers_with_a_scale_a_row_are_torchs() -> None:
    scales = torch.from_numpy(np.abs(WEIGHT).max(axis=1) / 127)
    zeros = torch.zeros(7, dtype=torch.int64)
    quantised = torch.quantize_per_channel(
        torch.from_numpy(WEIGHT).float(), scales, zeros, 0, torch.qint8
    )
    values, steps = grid("in 8 bits with a scale a row").rounded(EVERY)
    np.testing.assert_allclose(values, quantised.dequantize().numpy(), rtol=0, atol=1e-6)
    np.testing.assert_allclose(steps, np.broadcast_to(scales.numpy()[:, None], steps.shape))


def test_floats_are_torchs() -> None:
    values, _ = grid("times 16 rounded to float8_e4m3fn").rounded(EVERY)
    right = (torch.from_numpy(WEIGHT).float() * 16).to(torch.float8_e4m3fn).double() / 16
    np.testing.assert_array_equal(values, right.numpy())


def test_codes_between_least_and_greatest_value_of_a_group() -> None:
    values, _ = grid("in 4 bits with a scale for each 16 inputs, from the least value on").rounded(
        EVERY
    )
    groups, given = WEIGHT.reshape(-1, 16), values.reshape(-1, 16)
    steps = (groups.max(axis=1) - groups.min(axis=1)) / 15
    assert np.all(np.abs(given - groups) <= steps[:, None] / 2 + 1e-12)
    assert max(np.unique(group.round(9)).size for group in given) <= 16
    np.testing.assert_allclose(given.min(axis=1), groups.min(axis=1))


def test_some_rows_are_as_they_are_in_the_whole() -> None:
    rows = np.array([1, 4])
    for one in grids(WEIGHT):
        np.testing.assert_array_equal(one.rounded(rows)[0], one.rounded(EVERY)[0][rows], one.says)
