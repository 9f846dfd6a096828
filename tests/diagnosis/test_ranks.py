"""Tensor-parallel dumps in the replay: parts are joined, copies checked, summands summed up."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from comparison.align.shards import shares_of_heads, sizes_on_rank
from comparison.schema.diagnosis import Diagnosis, Judgement
from diagnosis.diff_models import diff_models
from tests.diagnosis.two_ranks import Change, dump_two_ranks
from tests.test_common.tiny_models import ROWS, tiny_llama


def _diagnose(folder: Path, change: Change = lambda own, rank: None) -> Diagnosis:
    model = tiny_llama()
    return diff_models(model, dump_two_ranks(model, ROWS, folder, change), ROWS)


def test_what_two_ranks_hold_agrees_in_every_module(tmp_path: Path) -> None:
    found = _diagnose(tmp_path)
    assert found.verdict is Judgement.AGREE
    assert all("self_attn-output_1" in text for text in found.missing)  # attention weights
    assert found.coverage.modules_checked == found.coverage.modules


def test_a_sum_of_two_full_outputs_is_twice_the_right_one(tmp_path: Path) -> None:
    def doubled(own: Any, rank: int) -> None:
        down = own.model.layers[1].mlp.down_proj
        usual = down.forward
        down.forward = lambda x: 2 * usual(x)

    found = _diagnose(tmp_path, doubled)
    assert found.culprit is not None
    assert found.culprit.module == "model.model.layers.1.mlp.down_proj"
    assert found.guilty[0].local_error == pytest.approx(1.0, rel=1e-4)


def test_summands_that_are_never_summed_up_are_told(tmp_path: Path) -> None:
    def unreduced(own: Any, rank: int) -> None:
        down = own.model.layers[1].mlp.down_proj
        down.forward = lambda x: F.linear(x, down.weight)

    found = _diagnose(tmp_path, unreduced)
    assert found.culprit is not None
    assert found.culprit.module == "model.model.layers.1.mlp.down_proj"
    assert any("the sum over the ranks is right" in text for text in found.guilty[0].where)


def test_summands_that_are_summed_up_behind_the_module_agree(tmp_path: Path) -> None:
    """As where the all-reduce is an operation of its own, which no module shows."""

    def reduced_later(own: Any, rank: int) -> None:
        layer = own.model.layers[1]
        reduced = layer.mlp.down_proj.forward
        down = layer.mlp.down_proj

        def mlp(x: torch.Tensor) -> torch.Tensor:
            product = layer.mlp.act_fn(layer.mlp.gate_proj(x)) * layer.mlp.up_proj(x)
            down(product)  # its own output is a summand
            return reduced(product)

        down.forward = lambda x: F.linear(x, down.weight)
        layer.mlp.forward = mlp

    found = _diagnose(tmp_path, reduced_later)
    assert (found.verdict, found.guilty) == (Judgement.AGREE, ())


@pytest.mark.parametrize("wrong", [0, 1])
def test_the_rank_of_a_wrong_part_is_named(tmp_path: Path, wrong: int) -> None:
    def change(own: Any, rank: int) -> None:
        if rank == wrong:
            own.model.layers[1].mlp.up_proj.weight[3] *= 1.1

    found = _diagnose(tmp_path, change)
    assert found.culprit is not None
    assert found.culprit.module == "model.model.layers.1.mlp.up_proj"
    assert found.culprit.spot.rank == wrong
    assert f"rank {wrong}" in found.sentence


@pytest.mark.parametrize("wrong", [0, 1])
def test_the_rank_of_a_wrong_copy_is_named(tmp_path: Path, wrong: int) -> None:
    def change(own: Any, rank: int) -> None:
        if rank == wrong:
            own.model.layers[1].input_layernorm.weight[3] *= 1.5

    found = _diagnose(tmp_path, change)
    assert found.culprit is not None
    assert found.culprit.module == "model.model.layers.1.input_layernorm"
    assert found.culprit.spot.rank == wrong


def test_fewer_heads_of_keys_than_ranks_are_held_more_than_once() -> None:
    assert list(shares_of_heads(32, 2)) == [(16, 1)]
    assert (16, 2) in list(shares_of_heads(32, 4))  # two ranks hold each of two heads
    assert sizes_on_rank([64, 32, 32], 64, ranks=2) == (32, 16, 16)
    assert sizes_on_rank([64, 16, 16], 32 + 32, ranks=2) == (32, 16, 16)
    assert sizes_on_rank([64, 32, 32], 128, ranks=2) == (64, 32, 32)
    assert sizes_on_rank([None, 32], 40, ranks=2) == (None, 16)
