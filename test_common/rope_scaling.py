"""Rotary frequencies by transformers' own formulas, for another configuration than a model's."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def rope_frequencies(config: Any, parameters: Mapping[str, Any]) -> tuple[torch.Tensor, float]:
    """Compute the frequencies of a scaled rotation.

    Args:
        config: of the model; it stays as it is.
        parameters: its `rope_parameters`, as changed; `rope_type` names the formula.

    Returns:
        The inverse frequencies, [pairs], and the factor of the tables.

    Raises:
        KeyError: transformers knows no such type, or a parameter is missing.
    """
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    other = copy.deepcopy(config)
    other.rope_parameters = dict(parameters)
    frequencies, factor = ROPE_INIT_FUNCTIONS[parameters["rope_type"]](other, None)
    return frequencies, float(factor)
