"""Experts that are chosen, weighed or stacked in another way have their causes."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

from comparison.schema.diagnosis import Cause
from diagnosis.diff_models import diff_models
from tests.diagnosis.causes.random_models import random_model

ROWS = [[5, 9, 2, 33, 60, 7, 7, 41, 12, 3, 18, 50, 22]]
Routed = tuple[torch.Tensor, torch.Tensor]


@pytest.fixture(scope="module")
def reference() -> Qwen3MoeForCausalLM:
    config = Qwen3MoeConfig(
        hidden_size=40,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=12,
        moe_intermediate_size=20,
        num_experts=8,
        num_experts_per_tok=3,
        norm_topk_prob=True,
        decoder_sparse_step=1,
        vocab_size=72,
        num_hidden_layers=2,
        eos_token_id=None,
    )
    return random_model(Qwen3MoeForCausalLM, config, seed=31)


def experts_of(model: Any) -> Any:
    return model.model.layers[1].mlp.experts


def routed(change: Callable[[torch.Tensor, torch.Tensor], Routed]) -> Callable[[Any], None]:
    """Let the experts get other numbers and weights."""

    def plant(model: Any) -> None:
        module = experts_of(model)
        usual = module.forward
        module.forward = lambda x, ids, weights: usual(x, *change(ids, weights))

    return plant


def chosen(change: Callable[[torch.Tensor], Routed]) -> Callable[[Any], None]:
    """Let the router choose by `change(logits)`."""

    def plant(model: Any) -> None:
        gate = model.model.layers[1].mlp.gate

        def forward(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
            logits = torch.nn.functional.linear(x.reshape(-1, 40), gate.weight)
            values, ids = change(logits)
            return logits, values, ids

        gate.forward = forward

    return plant


def without_best(logits: torch.Tensor) -> Routed:
    values, ids = logits.softmax(-1).topk(4, -1)
    return values[:, 1:] / values[:, 1:].sum(-1, keepdim=True), ids[:, 1:]


PLANTS: dict[str, tuple[Callable[[Any], Any], str, str]] = {
    "before": (routed(lambda i, w: ((i - 1) % 8, w)), "moe_routing", "the expert before"),
    "squared": (routed(lambda i, w: (i, w * w)), "moe_routing", "weights twice"),
    "one lost": (lambda m: experts_of(m).gate_up_proj[5].zero_(), "weights", "expert 5"),
    "rank lost": (lambda m: experts_of(m).down_proj[6:].zero_(), "shard", "rank 3 of 4 out"),
    "best": (chosen(without_best), "moe_routing", "passes the best expert over"),
}


@pytest.mark.parametrize("name", PLANTS)
def test_cause_is_named_with_its_evidence(reference: Qwen3MoeForCausalLM, name: str) -> None:
    plant, cause, evidence = PLANTS[name]
    candidate = copy.deepcopy(reference)
    with torch.no_grad():
        plant(candidate)
    found = diff_models(reference, candidate, ROWS, num_steps=1)
    assert isinstance(found.cause, Cause), found.sentence
    assert (found.cause.id, found.cause.residual is not None) == (cause, True), found.cause
    assert evidence in found.cause.evidence
