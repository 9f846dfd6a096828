"""Stands for the port of a model: what it does to the weights."""

from typing import Any


def scale_row(model: Any) -> None:
    """Get one row of a projection wrong by a hundredth."""
    model.model.layers[1].mlp.up_proj.weight.data[3] *= 1.01
