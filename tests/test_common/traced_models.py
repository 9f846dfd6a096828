"""Tiny models of several kinds with inputs, and what a trace of them wrote."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import (
    CLIPVisionConfig,
    LlamaConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    ViTConfig,
    ViTForImageClassification,
)

from tests.test_common.tiny_models import ROWS, SIZES, tiny_gemma3, tiny_llama, tiny_qwen3_moe

_IMAGE_TOKEN = 63


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedFiles:
    """What lies in the folder of a trace.

    Attributes:
        trees: JSON files by name, as data.
        tensors: bytes of all other files by name.
    """

    trees: dict[str, Any]
    tensors: dict[str, bytes]

    @classmethod
    def read(cls, folder: Path) -> "TracedFiles":
        """Read a folder."""
        files = sorted(folder.iterdir())
        return cls(
            trees={f.name: json.loads(f.read_text()) for f in files if f.suffix == ".json"},
            tensors={f.name: f.read_bytes() for f in files if f.suffix != ".json"},
        )


def _tokens() -> dict[str, torch.Tensor]:
    """Make a batch of two lengths, padded on the left."""
    longest = max(map(len, ROWS))
    rows = [[0] * (longest - len(row)) + row for row in ROWS]
    ids = torch.tensor(rows)
    return {"input_ids": ids, "attention_mask": (ids != 0).long()}


def _vit() -> tuple[nn.Module, dict[str, torch.Tensor]]:
    torch.manual_seed(5)
    config = ViTConfig(
        hidden_size=36,
        num_hidden_layers=4,
        num_attention_heads=3,
        intermediate_size=52,
        image_size=21,
        patch_size=7,
        num_labels=5,
    )
    model = ViTForImageClassification(config).eval()
    return model, {"pixel_values": torch.randn(2, 3, 21, 21)}


def _llava() -> tuple[nn.Module, dict[str, torch.Tensor]]:
    torch.manual_seed(6)
    vision = CLIPVisionConfig(
        hidden_size=36,
        num_hidden_layers=4,
        num_attention_heads=3,
        intermediate_size=52,
        image_size=21,
        patch_size=7,
        projection_dim=20,
    )
    config = LlavaConfig(
        vision_config=vision,
        text_config=LlamaConfig(**SIZES),
        image_token_index=_IMAGE_TOKEN,
        vision_feature_layer=-2,
    )
    model = LlavaForConditionalGeneration(config).eval()
    row = [2, 3, *[_IMAGE_TOKEN] * 9, 7, 11, 13]
    pixels = torch.randn(1, 3, 21, 21)
    return model, {"input_ids": torch.tensor([row]), "pixel_values": pixels}


MODELS: dict[str, Callable[[], tuple[Any, dict[str, torch.Tensor]]]] = {
    "llama": lambda: (tiny_llama(), _tokens()),
    "gemma3": lambda: (tiny_gemma3(), _tokens()),
    "qwen3_moe": lambda: (tiny_qwen3_moe(), _tokens()),
    "vit": _vit,
    "llava": _llava,
}
