"""Faults of attention and of positions come out with their causes, and with where they hold."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.llama import modeling_llama

from diagnosis.causes.scopes import Scope, cause_in
from diagnosis.diff_models import diff_models
from tests.diagnosis.causes.random_models import random_model

ROWS = [[5, 9, 2, 33, 60, 7, 7, 41, 12, 3, 18], [8, 44, 1, 30, 6, 2, 21]]
Tensor = torch.Tensor


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
        rope_parameters={"rope_type": "default", "rope_theta": 30000.0},
        eos_token_id=None,
        tie_word_embeddings=False,
    )
    return random_model(LlamaForCausalLM, config, seed=21)


def calling(name: str, make: Callable[[Any], Any]) -> Callable[[Any], None]:
    """Let the second layer's attention call another function of its source file."""

    def plant(model: Any) -> None:
        module = model.model.layers[1].self_attn
        usual = module.forward

        def forward(*args: Any, **kwargs: Any) -> Any:
            held = getattr(modeling_llama, name)
            setattr(modeling_llama, name, make(held))
            try:
                return usual(*args, **kwargs)
            finally:
                setattr(modeling_llama, name, held)

        module.forward = forward

    return plant


def attending(change: Callable[..., Any]) -> Callable[[Any], None]:
    """Change q, k, v, mask and scale before they are attended."""

    def make(usual: Any) -> Any:
        def attend(module: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor, **more: Any) -> Any:
            q, k, v, mask = change(q, k, v, mask)
            return usual(module, q, k, v, mask, **more)

        return attend

    return calling("eager_attention_forward", make)


def rotating(change: Callable[..., Any]) -> Callable[[Any], None]:
    return calling(
        "apply_rotary_pos_emb",
        lambda usual: lambda q, k, cos, sin, **_: change(usual, q, k, cos, sin),
    )


def one_head_louder(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Any:
    q = q.clone()
    q[:, 2] *= 1.5
    return q, k, v, mask


def quieter_steps(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Any:
    return (q * 0.5 if q.shape[2] == 1 else q), k, v, mask


def five_seen(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Any:
    """Let all queries see the first five tokens of a row that is not padded."""
    mask = mask.clone()
    mask[:1, :, :, :5] = 0.0
    mask[1:, :, :, 4:5] = 0.0
    return q, k, v, mask


def weak(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Any:
    return q, k, v, mask.clamp(min=-4.0)


def other_keys(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Any:
    return q, k.flip(1), v, mask


def cached_in_fp8(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Any:
    if q.shape[2] > 1:
        return q, k, v, mask
    old = [x[:, :, :-1].to(torch.float8_e4m3fn).to(x.dtype) for x in (k, v)]
    k, v = (torch.cat([new, x[:, :, -1:]], 2) for new, x in zip(old, (k, v), strict=True))
    return q, k, v, mask


def backwards_queries(usual: Any, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> Any:
    return usual(q, k, cos, -sin)[0], usual(q, k, cos, sin)[1]


def keys_alone(usual: Any, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> Any:
    return q, usual(q, k, cos, sin)[1]


def first_head_not(usual: Any, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> Any:
    new_q, new_k = usual(q, k, cos, sin)
    return torch.cat([q[:, :1], new_q[:, 1:]], 1), new_k


def in_32nds(usual: Any, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> Any:
    return usual(q, k, *((table * 32).round() / 32 for table in (cos, sin)))


def unrotated_new_keys(usual: Any, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> Any:
    new_q, new_k = usual(q, k, cos, sin)
    return new_q, (k if q.shape[2] == 1 else new_k)


PLANTS: dict[str, tuple[Callable[[Any], None], str, str]] = {
    "scale of one head": (attending(one_head_louder), "scale", "in head 2 of 4 only"),
    "scale in steps": (attending(quieter_steps), "scale", "in decode steps only"),
    "prefix": (attending(five_seen), "mask", "lets all queries see the first 5 tokens"),
    "weak mask": (attending(weak), "mask", "adds -4 to the scores of hidden keys"),
    "key heads": (attending(other_keys), "gqa_order", "takes key heads 1, 1, 0, 0"),
    "cache": (attending(cached_in_fp8), "quantization", "in the cache rounded to float8_e4m3fn"),
    "direction": (rotating(backwards_queries), "rope_layout", "direction, of the queries only"),
    "keys alone": (rotating(keys_alone), "rope_partial", "rotates the keys and not the queries"),
    "one head": (rotating(first_head_not), "rope_partial", "in head 0 of 4 only"),
    "fixed point": (rotating(in_32nds), "rope_precision", "to steps of 1/32"),
    "new keys": (rotating(unrotated_new_keys), "position_ids", "step, of the keys only"),
}


ALWAYS = {"prefix", "key heads", "fixed point"}


@pytest.mark.parametrize(
    "name",
    [name if name in ALWAYS else pytest.param(name, marks=pytest.mark.full) for name in PLANTS],
)
def test_cause_is_named_with_where_it_holds(reference: LlamaForCausalLM, name: str) -> None:
    plant, cause, evidence = PLANTS[name]
    candidate = copy.deepcopy(reference)
    plant(candidate)
    found = diff_models(reference, candidate, ROWS, num_steps=2)
    assert found.cause is not None, found.sentence
    assert (found.cause.id, found.cause.residual is not None) == (cause, True), found.cause
    assert evidence in found.cause.evidence
    assert found.cause.residual < 15 < found.cause.unexplained


@pytest.mark.parametrize(
    ("cause", "kind", "named"),
    [
        ("mask", {}, "mask"),
        ("mask", {"in_decode": True}, "decode_cache"),
        ("sliding_window", {"by_row": True, "in_padding": True}, "padding"),
        ("mask", {"by_row": True}, "mask"),
        ("position_ids", {"by_row": True, "in_padding": True}, "position_ids"),
        ("rope_layout", {"by_row": True}, None),
        ("scale", {"in_decode": True}, "scale"),
    ],
)
def test_what_holds_in_a_part_only_may_have_another_name(
    cause: str, kind: dict[str, bool], named: str | None
) -> None:
    scope = Scope(says="", holds=torch.ones(2, 3).numpy() > 0, **kind)
    assert cause_in(scope, cause) == named
