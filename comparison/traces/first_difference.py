"""Where two traces first part, in order of execution, and which layers are missing before it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from comparison.schema.trace_comparison import FirstDifference, ValueDifference
from comparison.traces.layers import Layer, layers_of
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
    """Say which layers the fault may lie in that were not compared."""
    if event.is_end or event.pair.both is None:
        return ""  # what it was given is equal: it is at fault by itself
    equal = {layer for e in before if e.is_end and e.compared for layer in _layers(e)}
    for layer in layers_of(event.pair.one.key[0]):
        if layer in equal:  # something that was computed inside of it
            return ""
        words = _missing(layer, before)
        if words:
            return words
    return ""


def _missing(layer: Layer, before: Sequence[CallEvents]) -> str:
    seen = {
        found.number
        for e in before
        if e.pair.both is not None
        for found in _layers(e)
        if found.block == layer.block and found.number < layer.number
    }
    first = max(seen, default=-1) + 1
    if not seen or first == layer.number:
        return ""
    last = layer.number - 1
    layers = f"layers {first}..{last} are" if last > first else f"layer {first} is"
    where = _where(Layer(block=layer.block, number=first), before)
    return f"between layer {first - 1} and layer {layer.number}: {layers} absent from {where}"


def _where(layer: Layer, before: Sequence[CallEvents]) -> str:
    """Name the trace that lacks a layer."""
    holders = [e.pair for e in before if e.pair.both is None and layer in _layers(e)]
    if not holders:
        return "both traces"
    return "the reference" if holders[0].reference is None else "the candidate"


def _layers(event: CallEvents) -> Iterator[Layer]:
    return layers_of(event.pair.one.key[0])
