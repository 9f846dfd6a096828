"""Projections that one engine fuses and another keeps apart."""

from collections.abc import Sequence
from dataclasses import dataclass

from comparison.schema.tensor_entry import TensorEntry

# The fused module, and the separate ones by block order along the last dimension of its output.
_FUSED_PARTS = (
    ("qkv_proj", ("q_proj", "k_proj", "v_proj")),
    ("qkv_proj", ("query", "key", "value")),
    ("gate_up_proj", ("gate_proj", "up_proj")),
)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class FusedModule:
    """The fused module that a separate one is part of.

    Attributes:
        name: its name.
        parts: the separate modules, in block order.
        position: which of the parts is meant.
    """

    name: str
    parts: tuple[str, ...]
    position: int


def fused_module_of(module: str) -> FusedModule | None:
    """Find the fused module that a separate one is part of, None if it is of none."""
    parent, _, last = module.rpartition(".")
    prefix = f"{parent}." if parent else ""
    for fused, parts in _FUSED_PARTS:
        if last in parts:
            return FusedModule(
                name=prefix + fused,
                parts=tuple(prefix + part for part in parts),
                position=parts.index(last),
            )
    return None


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
