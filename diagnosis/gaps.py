"""Stretches of a model of which a dump holds nothing, so that no one module there can be blamed."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from comparison.align.structure import indices_of
from diagnosis.check import Check
from diagnosis.replay.reference_trace import TracedTensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """What lies between the last tensor that is known and one that is wrong.

    Attributes:
        owner: the innermost module that holds both.
        last: the last tensor before, by the reference's name.
        phrases: what to say of it.
    """

    owner: str
    last: str
    phrases: tuple[str, ...]


def gap_before(
    check: Check, checks: Sequence[Check], traced: Mapping[str, TracedTensor]
) -> Gap | None:
    """Find the gap that ends in a wrong output; None where what its module got is known.

    Args:
        check: the wrong one.
        checks: all of them.
        traced: the reference's tensors, in order of execution.
    """
    module = check.name.rpartition("-")[0]
    if check.is_input or check.since or check.owner != module:
        return None
    got = [name for name in traced if name.startswith(f"{module}-input")]
    if not any("float" in traced[name].dtype for name in got):
        return None  # such as an embedding, which begins with token ids
    before = [other for other in checks if other.order < check.order and other.floor is not None]
    if not before:
        return None
    last = max(before, key=lambda other: other.order).name
    between = _modules_between(last, module, list(traced))
    if not between:
        return None
    running = {name.rpartition("-")[0] for name in traced}
    owner = _common(last.rpartition("-")[0], module, running)
    return Gap(owner=owner, last=last, phrases=tuple(_absent_layers(last, check.name, between)))


def _modules_between(last: str, module: str, names: Sequence[str]) -> list[str]:
    """List the modules that run between, and hold neither end."""
    first = next(at for at, name in enumerate(names) if name.startswith(f"{module}-"))
    start = names.index(last)
    found = dict.fromkeys(name.rpartition("-")[0] for name in names[start + 1 : first])
    ends = (last.rpartition("-")[0], module)
    return [name for name in found if not any(f"{end}.".startswith(f"{name}.") for end in ends)]


def _common(left: str, right: str, running: Collection[str]) -> str:
    parts = []
    for one, other in zip(left.split("."), right.split("."), strict=False):
        if one != other:
            break
        parts.append(one)
    while parts and ".".join(parts) not in running:  # such as a list of layers
        parts.pop()
    return ".".join(parts) or left.partition(".")[0]


def _absent_layers(last: str, name: str, between: Sequence[str]) -> list[str]:
    ends = [found[0] if (found := indices_of(end)) else None for end in (last, name)]
    if ends[0] is None or ends[1] is None or ends[1] - ends[0] < 2:
        count = f"{len(between)} module{'s' if len(between) > 1 else ''}"
        return [f"{count} in between are absent from this dump"]
    first, stop = ends[0] + 1, ends[1] - 1
    which = f"layer {first} is" if first == stop else f"layers {first}..{stop} are"
    return [
        f"{which} absent from this dump; the divergence is between layer {ends[0]} and {ends[1]}"
    ]
