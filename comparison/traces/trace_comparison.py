"""Compares two traces, or a trace and a dump, call by call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from comparison.schema.errors import NothingComparedError
from comparison.schema.tolerance import Tolerance
from comparison.schema.trace_comparison import (
    CallVerdict,
    ComparedCall,
    FirstDifference,
    TraceComparison,
    ValueDifference,
)
from comparison.traces.first_difference import CallEvents, find_first
from comparison.traces.trace_pairs import read_pairs
from comparison.traces.trace_tree import PairedCall
from comparison.traces.trace_values import (
    difference_of,
    has_other_rows,
    is_mask_of_one_side,
)
from comparison.traces.traced_call import TracedValue

_ALL_CALLS = "all calls"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rules:
    """How values are compared.

    Attributes:
        tolerance: what is allowed.
        is_whole: whether a call holds all of its values, as in two traces; a dump may lack some.
        lone_masks: names of masks that only one side has, which are added as they are met.
    """

    tolerance: Tolerance
    is_whole: bool
    lone_masks: set[str] = field(default_factory=set)


def compare_traces(reference: Path, candidate: Path, tolerance: Tolerance) -> TraceComparison:
    """Compare two traces, or a trace and a dump.

    Args:
        reference: file or folder of a trace, or a dump, that is taken to be right.
        candidate: the same, in question.
        tolerance: what is allowed. NaN, and infinity of one sign, on both sides are equal.

    Raises:
        MissingPathError: nothing lies there.
        BadInputError: a trace or dump that cannot be read, or two dumps.
        NothingComparedError: no value is on both sides.
    """
    tolerance = Tolerance(rtol=tolerance.rtol, atol=tolerance.atol, equal_nan=True, equal_inf=True)
    paired = read_pairs(reference, candidate)
    rules = _Rules(tolerance=tolerance, is_whole=paired.is_whole)
    roots: list[ComparedCall] = []
    firsts: list[FirstDifference | None] = []
    for number, call in paired.calls.items():
        events: list[CallEvents] = []
        roots.append(_compare(call, rules, events))
        first = find_first(events)
        if first is not None and len(paired.calls) > 1:
            first = replace(first, path=f"call {number}: {first.path}")
        firsts.append(first)
    compared = sum(call.compared for root in roots for call in root.walk())
    if not compared:
        raise NothingComparedError(
            f"no value of {reference} is in {candidate}, too: expected traces of one model, whose "
            "calls have the same module_path below the model"
        )
    return TraceComparison(
        reference=str(reference),
        candidate=str(candidate),
        tolerance=tolerance,
        root=roots[0] if len(roots) == 1 else _joined(roots),
        first=next((first for first in firsts if first is not None), None),
        compared=compared,
        notes=(*paired.notes, *_note_of_masks(rules.lone_masks)),
    )


def _note_of_masks(names: set[str]) -> Iterator[str]:
    if names:
        yield (
            f"{', '.join(sorted(names))}: a tensor on one side and None on the other, which is not "
            "compared: attention implementations make masks of their own or are given them "
            '(debug_model runs attn_implementation="eager")'
        )


def _joined(roots: Sequence[ComparedCall]) -> ComparedCall:
    """Put the calls of a model below one node."""
    return ComparedCall(
        reference=_ALL_CALLS,
        candidate=_ALL_CALLS,
        number=1,
        verdict=CallVerdict.NOT_COMPARED,
        compared=0,
        differences=(),
        children=tuple(roots),
        has_difference=any(root.has_difference for root in roots),
        size=1 + sum(root.size for root in roots),
    )


def _compare(pair: PairedCall, rules: _Rules, events: list[CallEvents]) -> ComparedCall:
    """Compare a call: what it is given, the calls inside, what it returns, in that order."""
    begin = CallEvents(pair=pair, is_end=False)
    events.append(begin)
    if pair.both is None:
        return _lone(pair, begin, rules, events)
    left, right = pair.both
    _compare_values(left.inputs, right.inputs, rules, begin)
    children = tuple(_compare(child, rules, events) for child in pair.children)
    end = CallEvents(pair=pair, is_end=True)
    events.append(end)
    _compare_values(left.outputs, right.outputs, rules, end)
    if left.raised != right.raised:
        what = f"raised {left.raised or 'nothing'} against {right.raised or 'nothing'}"
        end.differences.append(ValueDifference(name="call", what=what))
    compared = begin.compared + end.compared
    differences = (*begin.differences, *end.differences)
    unequal = CallVerdict.EQUAL if compared else CallVerdict.NOT_COMPARED
    return _compared_call(
        pair, CallVerdict.DIFFERS if differences else unequal, compared, differences, children
    )


def _lone(
    pair: PairedCall, begin: CallEvents, rules: _Rules, events: list[CallEvents]
) -> ComparedCall:
    """Take a call that one side lacks, by what is inside or as a whole."""
    if pair.is_absent:
        children = tuple(_compare(child, rules, events) for child in pair.children)
        return _compared_call(pair, CallVerdict.ABSENT, 0, (), children)
    verdict = CallVerdict.CANDIDATE_ONLY if pair.reference is None else CallVerdict.REFERENCE_ONLY
    begin.differences.append(ValueDifference(name="call", what=f"in the {verdict}"))
    children = tuple(_compare(child, rules, []) for child in pair.children)
    return _compared_call(pair, verdict, 0, tuple(begin.differences), children)


def _compared_call(
    pair: PairedCall,
    verdict: CallVerdict,
    compared: int,
    differences: tuple[ValueDifference, ...],
    children: tuple[ComparedCall, ...],
) -> ComparedCall:
    return ComparedCall(
        reference=None if pair.reference is None else pair.reference.path,
        candidate=None if pair.candidate is None else pair.candidate.path,
        number=pair.one.number,
        verdict=verdict,
        compared=compared,
        differences=differences,
        children=children,
        has_difference=bool(differences) or any(child.has_difference for child in children),
        size=1 + sum(child.size for child in children),
    )


def _compare_values(
    left: Mapping[str, TracedValue],
    right: Mapping[str, TracedValue],
    rules: _Rules,
    events: CallEvents,
) -> None:
    found = set()
    for name, value in left.items():
        other_name = _other_name(name, left, right)
        other = right.get(other_name)
        if other is None:
            continue
        found |= {name, other_name}
        if has_other_rows(value, other):
            continue
        if not rules.is_whole and is_mask_of_one_side(name, value, other):
            rules.lone_masks.add(name)
            continue
        events.compared += 1
        what = difference_of(value, other, rules.tolerance)
        if what is not None:
            events.differences.append(ValueDifference(name=name, what=what))
    if rules.is_whole and left and right:  # one trace may hold outputs where the other has none
        for side, values in (("reference", left), ("candidate", right)):
            events.differences += [
                ValueDifference(name=name, what=f"in the {side} only")
                for name in values
                if name not in found
            ]


def _other_name(
    name: str, left: Mapping[str, TracedValue], right: Mapping[str, TracedValue]
) -> str:
    """Find a sole output, which is `output` or the first of several."""
    if name in right:
        return name
    if name == "output":
        return "output_0"
    return "output" if name == "output_0" and "output" not in left else name
