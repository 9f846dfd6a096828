"""Seeded weights that keep activations near 1 and give logits clear margins."""

import hashlib
import math
from typing import TYPE_CHECKING

from test_common.tiny_checkpoints.recipe import Recipe

if TYPE_CHECKING:
    import numpy as np
    import torch

LOGIT_STD = 4.0  # of 480 such logits the first leads the second by about 1
VECTOR_STD = 0.2  # norm weights and biases
_VISION = ("vision", "visual")  # in the names of what looks at pictures
_POSITION_STD = 0.25  # of embeddings of places in a picture


def fill_weights(model: "torch.nn.Module", *, arch: str, recipe: Recipe) -> None:
    """Overwrite every parameter with seeded random values.

    Each parameter has a generator of its own, seeded by architecture and name, so that the values
    of one layer do not depend on how many there are.

    Args:
        model: the freshly constructed model, float32.
        arch: the architecture's key, part of the seed.
        recipe: the recipe of the model.
    """
    import torch

    embeddings = {
        f"{name}.weight"
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Embedding)
    }
    for name, parameter in model.named_parameters():
        centre, std = _distribution(name, tuple(parameter.shape), name in embeddings, recipe)
        values = centre + std * _standard_normal(f"{arch}/{name}", tuple(parameter.shape))
        with torch.no_grad():
            parameter.copy_(torch.from_numpy(values.astype("float32")))


def _distribution(
    name: str, shape: tuple[int, ...], is_embedding: bool, recipe: Recipe
) -> tuple[float, float]:
    """Return centre and standard deviation of one parameter."""
    is_vision = any(word in name for word in _VISION)
    if len(shape) < 2:
        norm_centre = 1.0 if is_vision else recipe.norm_centre
        return (0.0 if name.endswith("bias") else norm_centre), VECTOR_STD
    if is_vision and "position_embedding" in name:
        return 0.0, _POSITION_STD
    if is_embedding:
        return 0.0, recipe.resolved_embedding_std
    fan_in = math.prod(shape[1:])
    gain = LOGIT_STD if name.startswith("lm_head") else 1.0
    return 0.0, gain / math.sqrt(fan_in)


def _standard_normal(seed_text: str, shape: tuple[int, ...]) -> "np.ndarray":
    import numpy as np

    seed = int.from_bytes(hashlib.sha256(seed_text.encode()).digest()[:8], "big")
    return np.random.Generator(np.random.PCG64(seed)).standard_normal(shape, dtype=np.float32)
