"""How large a model is by its configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_ELEMENT_BYTES = 4
# What a model's own code raises for a configuration that it does not expect.
_ODD = (ValueError, TypeError, RuntimeError, LookupError, AttributeError, ArithmeticError)


def bytes_of_configured(folder: Path, *, trusted: bool) -> int | None:
    """Return the size of a model in float32, without taking memory for it.

    Args:
        folder: with its configuration, as transformers reads it now, overrides included.
        trusted: whether code of the folder may run.

    Returns:
        None where transformers makes no model of the configuration alone.
    """
    import torch
    from transformers import AutoConfig, AutoModel

    try:
        config = AutoConfig.from_pretrained(folder, trust_remote_code=trusted)
        with torch.device("meta"):
            model = AutoModel.from_config(config, trust_remote_code=trusted)
    except (*_ODD, OSError, AssertionError):  # building it in earnest says what is wrong
        return None
    return sum(weight.numel() for weight in model.parameters()) * _ELEMENT_BYTES
