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
    yield ""
    yield f"The {_heading(found)}, in step {found.step}:"
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


def _heading(found: Operation) -> str:
    if found.is_missing:
        return "operation below that leaves something out"
    if found.is_proven:
        return "operation below that is wrong by itself"
    return "first operation below without a counterpart"


def _rightness(found: Operation) -> str:
    """Say of which inputs it was shown that they are the reference's."""
    unproven = [name for name in found.inputs if name in found.unproven]
    if not found.inputs:
        return ""
    if not unproven:
        return ", which is right" if len(found.inputs) == 1 else ", which are right"
    shown = ", ".join(map(printable, unproven))
    text = f"; {shown} {'was' if len(unproven) == 1 else 'were'} not shown to be right"
    if any(name.startswith(WEIGHT_PREFIX) for name in unproven):
        text += (
            " by this search, which does not look at weights and buffers: where both sides tell "
            "theirs (a dump with debug_model --weights), the verdict names those that differ"
        )
    return text


def _at(source: str) -> str:
    return f" ({printable(source)})" if source else ""
