"""The second part of the benchmark, written without a look at the tool or at the first part."""

from __future__ import annotations

from tests.faults.held_out import attention, ends, experts, layers, mlps, norms, rotation, weights
from tests.faults.held_out.archs import register
from tests.faults.pair import Plant

register()
PLANTS: tuple[Plant, ...] = (
    *attention.PLANTS,
    *rotation.PLANTS,
    *weights.PLANTS,
    *layers.PLANTS,
    *norms.PLANTS,
    *mlps.PLANTS,
    *experts.PLANTS,
    *ends.PLANTS,
)
