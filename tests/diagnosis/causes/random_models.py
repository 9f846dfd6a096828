"""Models whose weights are all unlike, so that no fault hides in zeros or ones."""

from typing import Any, TypeVar

import torch

Model = TypeVar("Model", bound=torch.nn.Module)


def random_model(kind: type[Model], config: Any, *, seed: int) -> Model:
    """Make a model with plain attention and weights of about 0.3, those of norms about 1.

    Args:
        kind: its class.
        config: its configuration.
        seed: of the weights.
    """
    config._attn_implementation = "eager"
    torch.manual_seed(seed)
    model = kind(config).eval()
    generator = torch.Generator().manual_seed(seed + 1)
    with torch.no_grad():
        for parameter in model.parameters():
            offset = 1.0 if parameter.ndim == 1 else 0.0
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3 + offset)
    return model
