"""Finds the tensors of another engine's dump that mean what a trace's values mean."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

from comparison.align.renames import CanonicalName, canonical_name
from comparison.schema.tensor_entry import TensorEntry
from comparison.schema.tensor_names import is_operation_name, parse_tensor_name
from comparison.store.dump import Dump
from comparison.traces.traced_call import TraceCall, TracedTensor

_TRACED = "torch"
_ROOT = "model"  # what hooks call the model

Key = tuple[str, int]
Place = tuple[Key, str, str]  # of a value: the call, `input` or `output`, and its name there


def calls_by_meaning(
    dump: Dump, entries: Iterable[TensorEntry], traced: Iterable[TraceCall]
) -> dict[Key, TraceCall]:
    """Group the tensors of a dump by the calls of a trace that they mean the same as.

    Args:
        dump: of an engine whose names are known.
        entries: those of its tensors that count.
        traced: the calls of the trace.

    Returns:
        The calls by the key of the trace's.
    """
    places = _places(traced, dump.engine)
    grouped: dict[Key, tuple[str, dict[str, dict[str, TracedTensor]]]] = {}
    for entry in entries:
        parsed = parse_tensor_name(entry.name)
        if parsed is None or is_operation_name(parsed.module):
            continue
        meaning = canonical_name(entry.name, engine=dump.engine, other=_TRACED)
        place = places.get((meaning, parsed.call)) if meaning is not None else None
        if place is None:
            continue
        key, side, name = place
        _, sides = grouped.setdefault(key, (parsed.module, {"input": {}, "output": {}}))
        sides[side][name] = TracedTensor(
            shape=None, dtype="", load=partial(dump.read, entry), has_loose_shape=True
        )
    return {
        key: TraceCall(path=module, number=key[1], inputs=sides["input"], outputs=sides["output"])
        for key, (module, sides) in grouped.items()
    }


def _places(
    traced: Iterable[TraceCall], engine: str | None
) -> dict[tuple[CanonicalName, int], Place]:
    """Tell where in the trace each meaning is; one that is at two places is left out."""
    found: dict[tuple[CanonicalName, int], Place | None] = {}
    for call in traced:
        for side, name in _names(call):
            dotted = f"{_ROOT}.{call.key[0]}".rstrip(".")
            meaning = canonical_name(f"{dotted}-{name}", engine=_TRACED, other=engine)
            if meaning is not None:
                known = (meaning, call.number)
                found[known] = None if known in found else (call.key, side, name)
    return {meaning: place for meaning, place in found.items() if place is not None}


def _names(call: TraceCall) -> Iterator[tuple[str, str]]:
    yield from (("input", name) for name in call.inputs)
    yield from (("output", name) for name in call.outputs)
