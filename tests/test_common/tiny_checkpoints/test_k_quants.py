"""Blocks that we write, read back by the package gguf: layouts are its, not ours."""

import numpy as np
import pytest
from gguf import GGMLQuantizationType
from gguf.quants import dequantize

from test_common.tiny_checkpoints.k_quants import K_QUANTISERS, quantise_q4_k

RNG = np.random.default_rng(7)
# Of 256 normal weights, mean errors of 4 and of 6 bits a weight.
MEAN_ERROR = {"q4_k": 0.07, "q6_k": 0.02}


def read_back(encoding: str, weights: np.ndarray) -> np.ndarray:
    blocks = K_QUANTISERS[encoding](weights)
    assert blocks.dtype == np.uint8
    return dequantize(blocks, GGMLQuantizationType[encoding.upper()])


@pytest.mark.parametrize("encoding", ["q4_k", "q6_k"])
def test_weights_come_back_to_within_the_step(encoding: str) -> None:
    weights = RNG.standard_normal((3, 5, 512)).astype(np.float32)
    back = read_back(encoding, weights)
    assert back.shape == weights.shape
    assert np.abs(back - weights).mean() < MEAN_ERROR[encoding]
    assert np.corrcoef(back.ravel(), weights.ravel())[0, 1] > 0.99


@pytest.mark.parametrize("encoding", ["q4_k", "q6_k"])
def test_each_part_has_a_scale_of_its_own(encoding: str) -> None:
    weights = RNG.standard_normal((1, 256)).astype(np.float32)
    weights[0, :32] *= 0.1
    back = read_back(encoding, weights)
    assert np.abs(back - weights)[0, :32].mean() < 0.2 * np.abs(weights)[0, :32].mean()


@pytest.mark.parametrize("encoding", ["q4_k", "q6_k"])
def test_zeros_stay_zeros(encoding: str) -> None:
    weights = RNG.standard_normal((2, 256)).astype(np.float32)
    weights[1] = 0
    np.testing.assert_array_equal(read_back(encoding, weights)[1], 0)


def test_a_part_of_q4_k_has_sixteen_levels() -> None:
    back = read_back("q4_k", RNG.standard_normal((1, 256)).astype(np.float32))
    assert 8 < len(np.unique(back[0, :32])) <= 16
    assert len(np.unique(back)) > 64


def test_a_row_of_other_length_is_refused() -> None:
    with pytest.raises(ValueError, match="rows of 100 weights do not fill blocks of 256"):
        quantise_q4_k(np.zeros((2, 100), dtype=np.float32))
