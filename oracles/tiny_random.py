"""Oracles of the tiny seeded checkpoints: they need no network and build in a minute or two."""

from functools import partial

from oracles.catalogue import run_as
from oracles.made_checkpoint import MadeCheckpointOracle
from oracles.made_multimodal import MADE_MULTIMODAL
from oracles.oracle import PipelineOracle
from test_common.tiny_checkpoints import RECIPES, ensure_tiny_checkpoint
from test_common.tiny_checkpoints.recipe import Recipe

PREFIX = "tiny-random/"
_ENCODINGS = {"cpu": ("float32", "bfloat16"), "gpu": ("float32", "bfloat16")}
_MAX_LENGTH = 512
_RESERVED_POSITIONS = 2  # MPNet's position ids start behind its padding id


def tiny_random_oracles() -> dict[str, PipelineOracle]:
    """Return the oracles, `tiny-random/<arch>` each."""
    return {PREFIX + arch: _oracle(arch, recipe) for arch, recipe in RECIPES.items()}


def _oracle(arch: str, recipe: Recipe) -> MadeCheckpointOracle:
    how = run_as(recipe.config_architectures)
    positions = recipe.config["max_position_embeddings"] - _RESERVED_POSITIONS
    return MADE_MULTIMODAL.get(arch, MadeCheckpointOracle)(
        PREFIX + arch,
        make=partial(ensure_tiny_checkpoint, arch),
        device_encoding_map=_ENCODINGS,
        config_params={"max_length": min(_MAX_LENGTH, positions)},
        task=how.task,
        max_cpu_patches=how.max_cpu_patches,
    )
