"""Pairs the calls of two traces by module path, below the class of the model, and number."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from comparison.traces.call_order import merge_calls
from comparison.traces.engine_names import Key
from comparison.traces.layers import left_out_by
from comparison.traces.traced_call import TraceCall


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


def pair_traces(reference: TraceCall, candidate: TraceCall) -> PairedCall:
    """Pair two traces. The outermost calls are a pair, whatever they are called."""
    return _pair(reference, candidate)


def pair_or_alone(reference: TraceCall | None, candidate: TraceCall | None) -> PairedCall:
    """Pair two traces, of which one may not be there."""
    if reference is not None and candidate is not None:
        return _pair(reference, candidate)
    call = reference or candidate
    assert call is not None
    return _only(call, in_reference=reference is not None, is_absent=False)


def pair_with_dump(
    trace: TraceCall, calls: Mapping[Key, TraceCall], *, trace_is_reference: bool
) -> PairedCall:
    """Pair the calls of a trace with those of a dump, which may lack any of them.

    Args:
        trace: the outermost call.
        calls: of the dump, by key.
        trace_is_reference: whether the dump is the candidate.
    """
    held = {path: max(numbers) for path, numbers in _numbers_of_keys(calls).items()}
    # A trace without numbers may have left calls out: then a later one may be any.
    uncertain = {
        path
        for path, numbers in _numbers_of(trace).items()
        if max(numbers) == len(numbers) < held.get(path, 0)
    }

    def pair(call: TraceCall) -> PairedCall:
        unsure = call.number > 1 and call.key[0] in uncertain
        other = None if unsure else calls.get(call.key)
        return PairedCall(
            reference=call if trace_is_reference else other,
            candidate=other if trace_is_reference else call,
            is_absent=other is None,
            children=tuple(map(pair, call.children)),
        )

    return pair(trace)


def _numbers_of(trace: TraceCall) -> dict[str, set[int]]:
    """List the numbers of each module's calls."""
    found: dict[str, set[int]] = {}
    todo = [trace]
    while todo:
        call = todo.pop()
        found.setdefault(call.key[0], set()).add(call.number)
        todo += call.children
    return found


def _numbers_of_keys(keys: Iterable[Key]) -> dict[str, set[int]]:
    found: dict[str, set[int]] = {}
    for path, number in keys:
        found.setdefault(path, set()).add(number)
    return found


def _pair(reference: TraceCall, candidate: TraceCall) -> PairedCall:
    left_out = (left_out_by(reference, candidate), left_out_by(candidate, reference))
    children = (
        _pair(left, right) if left and right else _alone(left, right, left_out)
        for left, right in merge_calls(reference.children, candidate.children)
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
