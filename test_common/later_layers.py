"""Tells the weights of layers that a shortened model does not have."""

import re
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")
_INDEX = re.compile(r"(?<![^.])\d+(?![^.])")


def is_of_later_layer(weight_name: str, num_hidden_layers: int) -> bool:
    """Tell a weight of a layer that was cut off by the numbers in its path.

    Args:
        weight_name: dotted path, `model.layers.7.mlp.up_proj.weight`.
        num_hidden_layers: number of layers kept, from the first one on.
    """
    return any(int(index) >= num_hidden_layers for index in _INDEX.findall(weight_name))


def without_later_layers(
    weights: Iterable[tuple[str, T]], num_hidden_layers: int
) -> Iterator[tuple[str, T]]:
    """Leave out the weights of layers that were cut off.

    Args:
        weights: name and value.
        num_hidden_layers: number of layers kept.
    """
    return (item for item in weights if not is_of_later_layer(item[0], num_hidden_layers))
