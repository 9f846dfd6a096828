"""Pairs the calls of two traces by module path, below the class of the model, and number."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from comparison.traces.trace_dump import Key
from comparison.traces.trace_file import TraceCall

_LAYER = re.compile(r"(?P<block>.*)\.(?P<number>\d{1,9})", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedCall:
    """A call on both sides, or on one.

    Attributes:
        reference: the call, None where it is in the candidate only.
        candidate: the call, None where it is in the reference only.
        is_absent: the side that lacks it leaves it out, as pruning does; its absence tells
            nothing of the model.
        children: the calls inside, in order of execution.
    """

    reference: TraceCall | None
    candidate: TraceCall | None
    is_absent: bool
    children: tuple[PairedCall, ...]

    @property
    def both(self) -> tuple[TraceCall, TraceCall] | None:
        """The call on both sides, None where one lacks it."""
        if self.reference is None or self.candidate is None:
            return None
        return self.reference, self.candidate

    @property
    def one(self) -> TraceCall:
        """The reference's call where it has one, else the candidate's."""
        found = self.candidate if self.reference is None else self.reference
        assert found is not None
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A layer of a block.

    Attributes:
        block: path of the list that it is in.
        number: its place there.
    """

    block: str
    number: int


def pair_traces(reference: TraceCall, candidate: TraceCall) -> PairedCall:
    """Pair two traces. The outermost calls are a pair, whatever they are called."""
    return _pair(reference, candidate)


def pair_with_dump(
    trace: TraceCall, calls: Mapping[Key, TraceCall], *, trace_is_reference: bool
) -> PairedCall:
    """Pair the calls of a trace with those of a dump, which may lack any of them.

    Args:
        trace: the outermost call.
        calls: of the dump, by key.
        trace_is_reference: whether the dump is the candidate.
    """

    def pair(call: TraceCall) -> PairedCall:
        other = calls.get(call.key)
        return PairedCall(
            reference=call if trace_is_reference else other,
            candidate=other if trace_is_reference else call,
            is_absent=other is None,
            children=tuple(map(pair, call.children)),
        )

    return pair(trace)


def layers_of(path: str) -> Iterator[Layer]:
    """Give the layers that a module lies in, the innermost first.

    Args:
        path: of the module, itself perhaps a layer.
    """
    while path:
        found = _LAYER.fullmatch(path)
        if found is not None:
            yield Layer(block=found["block"], number=int(found["number"]))
        path = path.rpartition(".")[0]


def _pair(reference: TraceCall, candidate: TraceCall) -> PairedCall:
    left_out = (_left_out_by(reference), _left_out_by(candidate))
    children = (
        _pair(left, right) if left and right else _alone(left, right, left_out)
        for left, right in _merge(reference.children, candidate.children)
    )
    return PairedCall(
        reference=reference, candidate=candidate, is_absent=False, children=tuple(children)
    )


def _alone(
    left: TraceCall | None,
    right: TraceCall | None,
    left_out: tuple[Callable[[str], bool], Callable[[str], bool]],
) -> PairedCall:
    """Take a call that one side lacks, with all that is inside."""
    call = left or right
    assert call is not None
    return _only(
        call, in_reference=left is not None, is_absent=left_out[left is not None](call.key[0])
    )


def _only(call: TraceCall, *, in_reference: bool, is_absent: bool) -> PairedCall:
    return PairedCall(
        reference=call if in_reference else None,
        candidate=None if in_reference else call,
        is_absent=is_absent,
        children=tuple(
            _only(child, in_reference=in_reference, is_absent=is_absent) for child in call.children
        ),
    )


def _left_out_by(call: TraceCall) -> Callable[[str], bool]:
    """Return what tells whether a trace leaves a call out that was made inside of `call`.

    Pruning leaves the first and the last layer of a block, and may not say so.
    """
    named = {path.partition(".")[2] for path in call.pruned}
    numbers: dict[str, set[int]] = {}
    for child in call.children:
        found = _LAYER.fullmatch(child.key[0])
        if found is not None:
            numbers.setdefault(found["block"], set()).add(int(found["number"]))

    def left_out(path: str) -> bool:
        found = _LAYER.fullmatch(path)
        if path in named or found is None:
            return path in named
        kept = numbers.get(found["block"], set())
        return len(kept) == 2 and min(kept) < int(found["number"]) < max(kept)

    return left_out


def _merge(
    left: Sequence[TraceCall], right: Sequence[TraceCall]
) -> Iterator[tuple[TraceCall | None, TraceCall | None]]:
    """Give the calls of both in order; those of the right alone go before the pair behind them."""
    known = {call.key for call in left}
    places = {call.key: place for place, call in enumerate(right)}
    position = 0
    for call in left:
        place = places.pop(call.key, None)
        if place is None:
            yield call, None
            continue
        for other in right[position:place]:
            if other.key not in known:
                yield None, other
        yield call, right[place]
        position = max(position, place + 1)
    yield from ((None, other) for other in right[position:] if other.key not in known)
