"""Projections that one engine fuses and another keeps apart."""

from collections.abc import Sequence
from dataclasses import dataclass

from comparison.schema.tensor_entry import TensorEntry

# Block order along the last dimension of the fused output.
FUSED_PARTS = {
    "qkv_proj": ("q_proj", "k_proj", "v_proj"),
    "gate_up_proj": ("gate_proj", "up_proj"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FusedPart:
    """Which part of a fused tensor is meant.

    Attributes:
        position: position of the part among all parts.
        parts: the separate tensors, in block order; None for one that was not dumped.
        fused_is_candidate: which side is the fused one.
    """

    position: int
    parts: tuple[TensorEntry | None, ...]
    fused_is_candidate: bool


def fused_module_of(module: str) -> tuple[str, int] | None:
    """Name the fused module that a separate one is part of, and the part's position."""
    parent, _, last = module.rpartition(".")
    for fused, parts in FUSED_PARTS.items():
        if last in parts:
            return f"{parent}.{fused}" if parent else fused, parts.index(last)
    return None


def part_modules(fused_module: str) -> tuple[str, ...]:
    """Name the separate modules of a fused one, in block order."""
    parent, _, last = fused_module.rpartition(".")
    return tuple(f"{parent}.{part}" if parent else part for part in FUSED_PARTS[last])


def slice_of_part(sizes: Sequence[int | None], position: int, total: int) -> slice | str:
    """Find a part within the fused last dimension.

    Args:
        sizes: last dimension of each part; None where it is not known.
        position: the part; its own size is known.
        total: last dimension of the fused tensor.

    Returns:
        The slice, or why there is none.
    """
    size = sizes[position]
    before, behind = sizes[:position], sizes[position + 1 :]
    known = [n for n in sizes if n is not None]
    if len(known) == len(sizes) and sum(known) != total:
        joined = " + ".join(map(str, known))
        return f"the parts have {joined} = {sum(known)} columns, the fused tensor {total}"
    if size is None or size > total:
        return f"a part of {size} columns does not fit in {total}"
    if None not in before:
        start = sum(n for n in before if n is not None)
    elif None not in behind:
        start = total - size - sum(n for n in behind if n is not None)
    else:
        return "the parts before and behind it were not dumped, so its place is not known"
    return slice(start, start + size)
