"""Sizes and settings that recipes start from."""

from collections.abc import Mapping
from typing import Any

DECODER: dict[str, Any] = {
    "hidden_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 640,
    "rms_norm_eps": 3e-6,
    "rope_parameters": {"rope_type": "default", "rope_theta": 50000.0},
    "tie_word_embeddings": False,
}
WITH_HEAD_DIM: dict[str, Any] = {**DECODER, "num_attention_heads": 8, "head_dim": 64}

ENCODER: dict[str, Any] = {
    "hidden_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "max_position_embeddings": 384,
    "layer_norm_eps": 3e-6,
    "hidden_act": "gelu",
}


def without(settings: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return settings with one left out."""
    return {key: value for key, value in settings.items() if key != name}
