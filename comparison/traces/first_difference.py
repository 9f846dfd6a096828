"""Where two traces first part, in order of execution, and which layers are missing before it."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from comparison.schema.trace_comparison import FirstDifference, ValueDifference
from comparison.traces.layers import layer_number
from comparison.traces.trace_tree import PairedCall
from comparison.traces.traced_call import TraceCall


@dataclass(slots=True, kw_only=True)
class CallEvents:
    """The begin or the end of a call.

    Attributes:
        pair: the call.
        is_end: whether it is what the call returned, else what it was given.
        compared: number of values that both sides hold.
        differences: those that differ.
    """

    pair: PairedCall
    is_end: bool
    compared: int = 0
    differences: list[ValueDifference] = field(default_factory=list)


def find_first(events: Sequence[CallEvents]) -> FirstDifference | None:
    """Find the first difference.

    Args:
        events: begins and ends of all calls, in order of execution.

    Returns:
        None where there is no difference.
    """
    place = next((place for place, event in enumerate(events) if event.differences), None)
    if place is None:
        return None
    event = events[place]
    behind = next((e for e in reversed(events[:place]) if e.is_end and e.compared), None)
    return FirstDifference(
        path=_numbered(event.pair.one),
        difference=event.differences[0],
        behind=None if behind is None else _numbered(behind.pair.one),
        gap=_gap(event, events[:place]),
    )


def _numbered(call: TraceCall) -> str:
    return f"{call.path}({call.number})" if call.number > 1 else call.path


def _gap(event: CallEvents, before: Sequence[CallEvents]) -> str:
    """Say which layers the fault may lie in that were not compared.

    Another call lies in the same layers as this one as far down as their paths are the same; in
    the block where they part it may lie in an earlier layer.
    """
    if event.is_end or event.pair.both is None:
        return ""  # what it was given is equal: it is at fault by itself
    path = _parts(event)
    equal = 0  # as many parts of the path, from its begin, hold something that is equal
    seen: dict[int, int] = {}  # the last layer before this one, by the place of both in the path
    for other in before:
        parts = _parts(other)
        shared = _shared(path, parts)
        if other.is_end and other.compared:
            equal = max(equal, shared)
        if other.pair.both is not None:
            number = _number(parts, shared)
            if number is not None and number < (_number(path, shared) or 0):
                seen[shared] = max(number, seen.get(shared, 0))
    for place in sorted(seen, reverse=True):
        if place < equal:  # something that was computed inside of it
            return ""
        words = _missing(path[: place + 1], seen[place], before)
        if words:
            return words
    return ""


def _parts(event: CallEvents) -> list[str]:
    return event.pair.one.key[0].split(".")


def _shared(path: Sequence[str], other: Sequence[str]) -> int:
    """Count the parts that two paths begin with alike."""
    unlike = (place for place, (a, b) in enumerate(zip(path, other, strict=False)) if a != b)
    return next(unlike, min(len(path), len(other)))


def _number(parts: Sequence[str], place: int) -> int | None:
    """Give the number of the layer at a place of a path, None where there is none."""
    return layer_number(parts[place]) if place < len(parts) else None


def _missing(layer: Sequence[str], seen: int, before: Sequence[CallEvents]) -> str:
    """Name the layers between one that was seen and the one that a path ends with."""
    first, number = seen + 1, int(layer[-1])
    if first == number:
        return ""
    last = number - 1
    layers = f"layers {first}..{last} are" if last > first else f"layer {first} is"
    where = _where([*layer[:-1], str(first)], before)
    return f"between layer {seen} and layer {number}: {layers} absent from {where}"


def _where(layer: list[str], before: Sequence[CallEvents]) -> str:
    """Name the trace that lacks a layer."""
    holders = (e.pair for e in before if e.pair.both is None and _parts(e)[: len(layer)] == layer)
    holder = next(holders, None)
    if holder is None:
        return "both traces"
    return "the reference" if holder.reference is None else "the candidate"
