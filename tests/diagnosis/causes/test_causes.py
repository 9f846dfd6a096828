"""Faults that are planted in a small decoder come out with their causes, and with numbers."""

from collections.abc import Callable
from types import MethodType
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from comparison.schema.diagnosis import Cause, Diagnosis
from diagnosis.causes import advice, table
from diagnosis.causes.confidence import share_of
from diagnosis.diff_models import diff_models
from tests.diagnosis.causes.random_models import random_model

ROWS = [[5, 9, 2, 33, 60, 7, 7, 41, 12, 3, 18], [8, 44, 1, 30, 6, 2, 21]]


@pytest.fixture(scope="module")
def reference() -> LlamaForCausalLM:
    config = LlamaConfig(
        hidden_size=40,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=12,
        intermediate_size=56,
        vocab_size=64,
        num_hidden_layers=2,
        rms_norm_eps=2e-5,
        attention_bias=True,
        rope_parameters={"rope_type": "default", "rope_theta": 30000.0},
        eos_token_id=None,
        tie_word_embeddings=False,
    )
    return random_model(LlamaForCausalLM, config, seed=11)


def diagnosed(reference: LlamaForCausalLM, plant: Callable[[Any], object]) -> Diagnosis:
    import copy

    candidate = copy.deepcopy(reference)
    with torch.no_grad():
        plant(candidate)
    return diff_models(reference, candidate, ROWS, num_steps=2)


def cause_of(reference: LlamaForCausalLM, plant: Callable[[Any], object]) -> Cause:
    found = diagnosed(reference, plant)
    assert found.cause is not None, found.sentence
    return found.cause


def attention(model: Any, layer: int = 1) -> Any:
    return model.model.layers[layer].self_attn


def doubled(model: Any) -> None:
    layer = model.model.layers[1].mlp.down_proj
    usual = layer.forward
    layer.forward = MethodType(lambda self, x: 2 * usual(x), layer)


PLANTS: dict[str, tuple[Callable[[Any], object], str, str]] = {
    "score factor": (
        lambda m: setattr(attention(m), "scaling", attention(m).scaling * 2**0.5),
        "scale",
        "for scaling",
    ),
    "bias": (lambda m: attention(m).q_proj.bias.zero_(), "bias", "leaves the bias out"),
    "epsilon": (
        lambda m: setattr(m.model.layers[0].input_layernorm, "variance_epsilon", 1e-3),
        "eps",
        "takes 0.001 for the norm's epsilon",
    ),
    "offset": (lambda m: m.model.norm.weight.add_(1.0), "norm_offset", "one plus the weight"),
    "activation": (
        lambda m: setattr(m.model.layers[1].mlp, "act_fn", torch.nn.GELU()),
        "activation",
        "activates by GELU (erf)",
    ),
    "all-reduce": (doubled, "shard", "gives 2 times the output"),
    "theta": (
        lambda m: m.model.rotary_emb.inv_freq.mul_(torch.tensor([3.0]) ** (torch.arange(6) / 6)),
        "rope_frequency",
        "rotates with theta 10000",
    ),
    "row": (lambda m: m.model.layers[0].mlp.up_proj.weight[7].zero_(), "weights", "7: 0"),
    "quantized": (
        lambda m: m.lm_head.weight.copy_(m.lm_head.weight.to(torch.float8_e4m3fn).float()),
        "quantization",
        "rounded to float8_e4m3fn",
    ),
    "cast": (
        lambda m: m.lm_head.weight.copy_(m.lm_head.weight.bfloat16().float()),
        "cast",
        "weight rounded to bfloat16",
    ),
}


# Whose weights, as both sides loaded them, say the same as the replays.
RECORDED = {"bias", "row"}


@pytest.mark.parametrize("name", PLANTS)
def test_cause_is_named_with_its_evidence(reference: LlamaForCausalLM, name: str) -> None:
    plant, cause, evidence = PLANTS[name]
    found = cause_of(reference, plant)
    assert (found.id, found.residual is not None) == (cause, True), found
    assert evidence in found.evidence
    assert found.residual < 15 < found.unexplained
    assert found.confidence is not None
    if name in RECORDED:
        assert found.confidence == 0.95
    else:
        assert 0.0 < found.confidence <= share_of(cause) + 0.005


def test_a_fault_of_no_known_kind_is_not_named(reference: LlamaForCausalLM) -> None:
    def strange(model: Any) -> None:
        module = model.model.layers[0].mlp.act_fn
        usual = module.forward
        module.forward = lambda x: usual(x) * (1 + 0.1 * torch.sin(17 * x))

    found = cause_of(reference, strange)
    assert (found.id, found.residual) == ("unknown", None)
    assert "none of the" in found.evidence


def test_two_faults_of_one_module_are_explained_together(reference: LlamaForCausalLM) -> None:
    def both(model: Any) -> None:
        layer = model.model.layers[0].input_layernorm
        layer.weight.add_(1.0)
        layer.variance_epsilon = 1e-2

    found = cause_of(reference, both)
    assert found.residual is not None
    assert "and" in found.evidence
    assert {"eps", "norm_offset"} >= {found.id}


def test_faults_of_two_modules_each_have_their_cause(reference: LlamaForCausalLM) -> None:
    def both(model: Any) -> None:
        attention(model, 0).v_proj.bias.zero_()
        model.model.layers[1].input_layernorm.variance_epsilon = 1e-2

    found = diagnosed(reference, both)
    causes = {guilty.module: guilty.cause and guilty.cause.id for guilty in found.guilty}
    assert causes == {
        "model.model.layers.0.self_attn.v_proj": "bias",
        "model.model.layers.1.input_layernorm": "eps",
    }


def test_sentence_tells_the_number(reference: LlamaForCausalLM) -> None:
    found = diagnosed(reference, PLANTS["score factor"][0])
    assert "it takes 0.408248 for scaling (scaling is 0.288675)" in found.sentence
    assert "times what rounding explains" in found.sentence


def test_every_cause_has_advice() -> None:
    files = {trials.__module__.rpartition(".")[2] for trials in (*table.TRIALS, *table.SIGNS)}
    assert files - {"inner_clip", "mask_tensor", "rope_handed"} <= set(advice.ADVICE)


def test_confidence_is_what_was_counted() -> None:
    assert share_of("scale") > 0.88  # 7 of 7
    assert share_of("weights") < 0.5  # 7 of 15
    assert share_of("never named") == 0.5
    assert {cause for cause in advice.ADVICE if share_of(cause) >= 1.0} == set()
