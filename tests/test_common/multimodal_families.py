"""The tiny models that read pictures, with what a test needs of them."""

from functools import cache
from typing import Any

from oracles.multimodal import MultimodalOracle
from oracles.registry import find_oracle
from test_common.tiny_checkpoints import RECIPES

FAMILIES = sorted(arch for arch, recipe in RECIPES.items() if recipe.vision is not None)
PROMPTS = ("What is it?", "Say what stands to the left of the blue bar, and what is behind it.")


@cache
def oracle_of(family: str) -> MultimodalOracle:
    oracle = find_oracle(f"tiny-random/{family}")
    assert isinstance(oracle, MultimodalOracle)
    return oracle


@cache
def model_of(family: str) -> Any:
    return oracle_of(family).create_torch_pipeline(encoding="float32", device="cpu").model
