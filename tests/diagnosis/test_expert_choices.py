"""Chosen experts are judged as sets, and ties by the margin of what they were chosen from."""

import copy
from types import MethodType
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from comparison.schema.diagnosis import Judgement
from diagnosis.diff_models import diff_models
from diagnosis.expert_choices import (
    TopkLog,
    by_id,
    in_order_of,
    judge_choices,
    noise_of_scores,
    noting_topk,
)
from tests.test_common.tiny_models import ROWS, tiny_qwen3_moe

SCORES = np.array([[0.1, 0.5, 0.2, 0.2000001], [0.4, 0.3, 0.2, 0.1]])
RIGHT = np.array([[1, 3], [0, 1]])


def test_the_order_of_what_was_chosen_says_nothing() -> None:
    judged = judge_choices(RIGHT[:, ::-1], RIGHT, scores=SCORES, noise=1e-9)
    assert (judged.other.size, judged.tied.size, judged.reordered) == (0, 0, 2)
    assert "in another order for 2 token(s)" in judged.harmless
    assert judge_choices(RIGHT, RIGHT, scores=SCORES, noise=1e-9).harmless == ""


@pytest.mark.parametrize(("noise", "tied"), [(1e-6, [0]), (1e-8, [])])
def test_a_tie_is_one_whose_margin_rounding_explains(noise: float, tied: list[int]) -> None:
    other = np.array([[1, 2], [0, 1]])
    judged = judge_choices(other, RIGHT, scores=SCORES, noise=noise)
    assert judged.tied.tolist() == tied
    assert judged.other.tolist() == ([] if tied else [0])


@pytest.mark.parametrize("wrong", [[1, 1], [1, 9], [1, -1], [2, 0]])
def test_one_twice_or_unknown_or_far_below_is_no_tie(wrong: list[int]) -> None:
    judged = judge_choices(np.array([wrong, [0, 1]]), RIGHT, scores=SCORES, noise=1e-6)
    assert judged.other.tolist() == [0]


def test_weights_are_brought_into_the_order_of_what_they_go_with() -> None:
    weights, ids = np.array([[0.7, 0.3], [0.6, 0.4]]), np.array([[3, 1], [2, 0]])
    found = by_id(weights, ids, like=RIGHT, default=np.full((2, 2), 9.0))
    assert found.tolist() == [[0.3, 0.7], [0.4, 9.0]]  # the second token's 1 was not chosen
    assert in_order_of(ids, RIGHT).tolist() == [[1, 3], [2, 0]]


def test_noise_is_measured_and_no_smaller_than_the_format() -> None:
    exact = np.array([[1.0, -np.inf]])
    assert noise_of_scores(exact, exact) == pytest.approx(8 * 2.0**-24)
    assert noise_of_scores(np.array([[1.001, -np.inf]]), exact) == pytest.approx(8e-3)


def test_the_log_gives_what_was_chosen_from_even_if_it_is_overwritten() -> None:
    log, scores = TopkLog(), torch.tensor([[1.0, 3.0, 2.0]])
    with noting_topk(log):
        chosen = scores.topk(2, dim=-1).indices
    scores.zero_()
    found = log.scores_of(chosen)
    assert found is not None
    assert found.tolist() == [[1.0, 3.0, 2.0]]
    assert log.scores_of(torch.tensor([[0, 1]])) is None


def _route(change: Any) -> Any:
    """Let one layer's router choose by `change(logits)`, two experts and their weights."""

    def apply(model: Any) -> None:
        router = model.model.layers[1].mlp.gate

        def forward(self: Any, x: torch.Tensor) -> Any:
            logits = F.linear(x.reshape(-1, self.hidden_dim), self.weight)
            weights, ids = change(logits.softmax(-1))
            return logits, weights / weights.sum(-1, keepdim=True), ids

        router.forward = MethodType(forward, router)

    return apply


def _backwards(scores: torch.Tensor) -> Any:
    weights, ids = scores.topk(2)
    return weights.flip(-1), ids.flip(-1)


def _other_of_equals(scores: torch.Tensor) -> Any:
    weights, ids = scores.topk(2)
    other = torch.tensor([0, 1, 3, 2, 4, 5])[ids]  # of 2 and 3, which tie
    return weights, other


def _third_for_second(scores: torch.Tensor) -> Any:
    weights, ids = scores.topk(3)
    late = torch.arange(scores.shape[0]) % 4 == 3
    second = torch.where(late, 2, 1)[:, None]
    place = torch.cat([torch.zeros_like(second), second], dim=-1)
    return weights.gather(-1, place), ids.gather(-1, place)


def test_experts_in_another_order_agree() -> None:
    model = tiny_qwen3_moe()
    other = copy.deepcopy(model)
    _route(_backwards)(other)
    found = diff_models(model, other, ROWS)
    assert found.verdict is Judgement.AGREE
    (item,) = found.harmless
    assert item.tensor == "model.model.layers.1.mlp.gate-output_2"
    assert "in another order" in item.reason


def test_a_tie_of_experts_agrees_and_is_said() -> None:
    model = tiny_qwen3_moe()
    with torch.no_grad():
        weight = model.model.layers[1].mlp.gate.weight
        weight[2] = weight[3]  # the two tie for every token
    other = copy.deepcopy(model)
    _route(_other_of_equals)(other)
    found = diff_models(model, other, ROWS)
    assert (found.verdict, found.guilty) == (Judgement.AGREE, ())
    assert any("a tie" in item.reason for item in found.harmless)


def test_other_experts_are_counted_apart_from_their_weights() -> None:
    model = tiny_qwen3_moe()
    faulty = copy.deepcopy(model)
    _route(_third_for_second)(faulty)
    found = diff_models(model, faulty, ROWS)
    assert found.culprit is not None
    assert found.culprit.module == "model.model.layers.1.mlp.gate"
    (guilty,) = found.guilty
    assert any("the reference chose others for" in text for text in guilty.where)
    assert any("weights of what both chose are off by" in text for text in guilty.where)
