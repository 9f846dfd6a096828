"""The third part's faults, each with its disguise."""

from __future__ import annotations

from tests.faults.third_part import attention, inputs, layers, positions, weights
from tests.faults.third_part.planted import Planted

PLANTS: tuple[Planted, ...] = (
    *attention.PLANTS,
    *positions.PLANTS,
    *weights.PLANTS,
    *layers.PLANTS,
    *inputs.PLANTS,
)
