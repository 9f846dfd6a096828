"""Architectures that the first part of the benchmark does not have.

Importing this module makes them known to `models`.
"""

from __future__ import annotations

from typing import Any

from tests.faults import models

_ROPE = {"rope_type": "default", "rope_theta": 20000.0}
_PHI3_ROPE = {**_ROPE, "partial_rotary_factor": 0.5}
_WITHOUT_RMS = {name: value for name, value in models.SIZES.items() if name != "rms_norm_eps"}

NEW: dict[str, tuple[str, str, dict[str, Any]]] = {
    "olmo2": ("Olmo2ForCausalLM", "Olmo2Config", {**models.SIZES, "rope_parameters": _ROPE}),
    "phi3": (
        "Phi3ForCausalLM",
        "Phi3Config",
        {**models.SIZES, "rope_parameters": _PHI3_ROPE, "sliding_window": None},
    ),
    "starcoder2": (
        "Starcoder2ForCausalLM",
        "Starcoder2Config",
        {
            **_WITHOUT_RMS,
            "rope_parameters": _ROPE,
            "norm_epsilon": 3e-5,
            "use_bias": True,
            "sliding_window": None,
            "residual_dropout": 0.0,
            "embedding_dropout": 0.0,
        },
    ),
    "cohere": (
        "CohereForCausalLM",
        "CohereConfig",
        {
            **_WITHOUT_RMS,
            "rope_parameters": _ROPE,
            "layer_norm_eps": 3e-5,
            "logit_scale": 0.25,
            "use_qk_norm": False,
        },
    ),
}
_OWN_ROLES: dict[str, dict[str, str]] = {
    "glm4_moe": {},
    "phi3": {
        "qkv": "model.layers.{n}.self_attn.qkv_proj",
        "gate_up": "model.layers.{n}.mlp.gate_up_proj",
        "act": "model.layers.{n}.mlp.activation_fn",
    },
    "starcoder2": {
        "up": "model.layers.{n}.mlp.c_fc",
        "down": "model.layers.{n}.mlp.c_proj",
        "act": "model.layers.{n}.mlp.act",
    },
}


def register() -> None:
    """Add the architectures to those of `models`."""
    usual = {**models._LLAMA_ROLES, "shared": "model.layers.{n}.mlp.shared_experts.down_proj"}
    models._CONFIGS.update(NEW)
    models._ROLES.update({name: {**usual, **own} for name, own in _OWN_ROLES.items()})
    models._ROLES["bert"] = {
        **models._ROLES["bert"],
        "types": "embeddings.token_type_embeddings",
    }


register()
