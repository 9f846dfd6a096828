"""The guilty operation of a diagnosis as text."""

from collections.abc import Iterator

from comparison.report.names import printable
from comparison.schema.diagnosis import Diagnosis, Operation
from comparison.schema.operations import WEIGHT_PREFIX


def operation_lines(diagnosis: Diagnosis) -> Iterator[str]:
    """Name the guilty operation, what goes into it, and what the reference does there."""
    found = diagnosis.operation
    if found is None:
        return
    left_out = "that leaves something out" if found.is_missing else "that is wrong by itself"
    yield ""
    yield f"The operation below {left_out}, in step {found.step}:"
    yield f"  {printable(found.name)}{_at(found.source)}"
    if found.op:
        yield f"     the candidate computes {printable(found.op)}"
        yield f"     from {', '.join(map(printable, found.inputs))}{_rightness(found)}"
    else:
        yield "     the candidate passes on what it is given"
    if found.reference:
        then = "then " if found.is_missing else ""
        what = printable(found.reference_op)
        yield f"     the reference {then}computes {what}{_at(found.reference_source)}"
        yield f"     from {', '.join(map(printable, found.reference_inputs))}"
    else:
        yield "     the reference does nothing there, and goes on with what it has"
    if found.local_error is not None and found.bound is not None:
        yield f"     error {found.local_error:.3g}, rounding explains {found.bound:.3g}"
    if found.last != found.name:
        yield f"     nothing from there to {printable(found.last)} has a counterpart"
    yield (
        f"     {found.paired} of the candidate's {found.operations} operations there have a "
        "counterpart in the reference"
    )


def _rightness(found: Operation) -> str:
    if not any(name.startswith(WEIGHT_PREFIX) for name in found.inputs):
        return ", which is right"
    return (
        ", which is right; this search does not look at weights: diff_models compares them as a "
        "whole, where both dumps tell theirs (debug_model --weights)"
    )


def _at(source: str) -> str:
    return f" ({printable(source)})" if source else ""
