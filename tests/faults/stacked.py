"""Pairs with two faults: both have to be found, each with its cause.

The first lies in layer 1 or before, the second behind it, so that neither hides the other.
"""

from __future__ import annotations

from typing import Any

from tests.faults.changes import attribute, bias, scaled, weight
from tests.faults.disguise import PLAIN
from tests.faults.models import SHORT_ROWS, module_name, path_of
from tests.faults.pair import Change, Pair


def _ones_added(w: Any) -> Any:
    return w + 1.0


def _scaling(factor: float) -> Change:
    def change(module: Any) -> None:
        module.scaling *= factor

    return change


# Role, layer, cause, change: first those of the earlier fault, then those of the later one.
_STACKS: tuple[tuple[str, tuple[Any, ...], tuple[Any, ...]], ...] = (
    ("llama", ("attn", 1, "scale", _scaling(2**0.5)),
     ("norm", 2, "eps", attribute(variance_epsilon=1e-2))),
    ("llama", ("norm1", 0, "eps", attribute(variance_epsilon=1e-3)),
     ("up", 2, "weights", weight(lambda w: w * 0))),
    ("qwen2", ("q", 0, "bias", bias(lambda b: b * 0)),
     ("norm2", 2, "norm_offset", weight(_ones_added))),
    ("qwen3", ("norm2", 0, "norm_offset", weight(_ones_added)),
     ("attn", 2, "scale", _scaling(0.5))),
    ("gemma3", ("embed", 0, "scale", scaled(32**-0.5)), ("norm1", 2, "eps", attribute(eps=1e-2))),
    ("granite", ("layer", 0, "scale", attribute(residual_multiplier=1.0)),
     ("norm", 2, "eps", attribute(variance_epsilon=1e-2))),
    ("gpt2", ("o", 0, "bias", bias(lambda b: -b)), ("norm1", 2, "eps", attribute(eps=1e-2))),
    ("bert", ("v", 0, "bias", bias(lambda b: b * 0)), ("norm2", 2, "eps", attribute(eps=1e-2))),
    ("bloom", ("norm1", 0, "eps", attribute(eps=1e-2)), ("down", 2, "bias", bias(lambda b: b * 0))),
)  # fmt: skip


def pairs() -> tuple[Pair, ...]:
    """List them."""
    return tuple(_pair(number, *stack) for number, stack in enumerate(_STACKS))


def _pair(number: int, arch: str, first: tuple[Any, ...], second: tuple[Any, ...]) -> Pair:
    role, layer, cause, _ = first
    later_role, later_layer, later_cause, _ = second
    return Pair(
        name=f"stacked/{cause}_and_{later_cause}/{arch}/{number}",
        kind="stacked",
        arch=arch,
        change=_both(arch, first, second),
        disguise=PLAIN,
        modules=(module_name(arch, role, layer),),
        cause=cause,
        second=(module_name(arch, later_role, later_layer),),
        second_cause=later_cause,
        rows=SHORT_ROWS,
    )


def _both(arch: str, *faults: tuple[Any, ...]) -> Change:
    def change(root: Any) -> None:
        for role, layer, _, planted in faults:
            planted(root.get_submodule(path_of(arch, role, layer)))

    return change
