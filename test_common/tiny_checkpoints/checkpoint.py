"""Makes a tiny checkpoint, or finds the one made before."""

import difflib
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from comparison.schema.errors import BadInputError
from test_common.checkpoint_cache import content_key, default_cache_dir, ensure_folder
from test_common.tiny_checkpoints.recipe import Recipe
from test_common.tiny_checkpoints.recipes import RECIPES
from test_common.tiny_checkpoints.tokenizer import (
    CHAT_TEMPLATE,
    VISION_CHAT_TEMPLATE,
    save_tokenizer,
)
from test_common.tiny_checkpoints.weights import LOGIT_STD, VECTOR_STD, fill_weights
from test_common.weight_report import quiet_load

if TYPE_CHECKING:
    import torch

VERSIONED = ("transformers", "tokenizers", "torch", "numpy", "safetensors")
_LAYOUT = 1  # raise it when the code changes what a recipe gives


def ensure_tiny_checkpoint(arch: str, cache_dir: Path | None = None) -> Path:
    """Return the folder of an architecture's tiny seeded checkpoint, making it if need be.

    The weights are random, float32, and the same bytes each time; the folder has its own
    tokenizer. No network is used.

    Args:
        arch: a key of `RECIPES`, such as `llama`.
        cache_dir: where to keep it; by default the user's cache folder.

    Raises:
        BadInputError: there is no recipe for `arch`.
        UnwritableOutputError: the cache folder cannot be written.
    """
    recipe = RECIPES.get(arch)
    if recipe is None:
        near = difflib.get_close_matches(arch, RECIPES, n=3, cutoff=0.5) or sorted(RECIPES)
        raise BadInputError(
            f"no tiny checkpoint for architecture {arch!r}; nearest: {', '.join(near)}"
        )
    key = content_key(recipe_content(arch, recipe), VERSIONED)
    folder = (cache_dir or default_cache_dir()) / f"{arch}-{key}"
    return ensure_folder(folder, lambda partial: write_checkpoint(arch, recipe, partial))


def recipe_content(arch: str, recipe: Recipe) -> dict[str, Any]:
    """Return everything that decides what a recipe's checkpoint holds, for `content_key`."""
    constants = {"layout": _LAYOUT, "stds": [LOGIT_STD, VECTOR_STD], "template": CHAT_TEMPLATE}
    if recipe.vision is not None:
        constants["template"] = VISION_CHAT_TEMPLATE
    return {**asdict(recipe), **constants, "arch": arch}


def write_checkpoint(
    arch: str,
    recipe: Recipe,
    folder: Path,
    *,
    before_saving: Callable[["torch.nn.Module"], None] = lambda model: None,
) -> None:
    """Write a recipe's configuration, weights and tokenizer.

    Args:
        arch: seeds the weights.
        recipe: what to make.
        folder: an existing empty folder.
        before_saving: may read and change the weights.
    """
    import torch
    import transformers

    config = getattr(transformers, recipe.config_class)(**recipe.config_arguments)
    model = getattr(transformers, recipe.model_class)(config).to(torch.float32)
    fill_weights(model, arch=arch, recipe=recipe)
    before_saving(model)
    with quiet_load():
        model.save_pretrained(folder)
    save_tokenizer(recipe, folder)
    if recipe.vision is not None:
        _write_json(folder / "preprocessor_config.json", dict(recipe.vision.image_processor))
        _write_json(folder / "processor_config.json", dict(recipe.vision.processor))
    # save_pretrained names the class that it was called on.
    named = {"architectures": list(recipe.config_architectures)}
    _update_json(folder / "config.json", {**recipe.extra_config, **named})


def _update_json(path: Path, values: dict[str, Any]) -> None:
    _write_json(path, {**json.loads(path.read_text()), **values})


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n")
