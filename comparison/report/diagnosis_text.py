"""A diagnosis as text for a console."""

from collections.abc import Iterator

from comparison.report.names import printable
from comparison.schema.diagnosis import Diagnosis, Guilty, Judgement, TokenChoice

_LISTED = 10


def diagnosis_lines(diagnosis: Diagnosis) -> Iterator[str]:
    """Give the verdict, its evidence, and what it rests on, line by line."""
    yield f"Verdict: {diagnosis.verdict}"
    yield printable(diagnosis.sentence)
    if diagnosis.candidates:
        for number, candidate in enumerate(diagnosis.candidates, start=1):
            yield ""
            yield f"Candidate {number}, {printable(candidate.candidate_engine)}:"
            yield from diagnosis_lines(candidate)
        return
    yield from _guilty_lines(diagnosis)
    yield from _harmless_lines(diagnosis)
    yield from _input_lines(diagnosis)
    yield from _choice_lines(diagnosis)
    yield ""
    yield _coverage_line(diagnosis)
    yield from (f"not checked: {printable(text)}" for text in diagnosis.missing[:_LISTED])
    if len(diagnosis.missing) > _LISTED:
        yield f"not checked: {len(diagnosis.missing) - _LISTED} more, see --json"
    yield from (f"note: {printable(note)}" for note in diagnosis.notes)


def _guilty_lines(diagnosis: Diagnosis) -> Iterator[str]:
    if not diagnosis.guilty:
        return
    yield ""
    yield "Wrong by themselves, in order of execution:"
    for number, guilty in enumerate(diagnosis.guilty[:_LISTED], start=1):
        yield f"  {number}. {printable(guilty.module)}"
        yield from (f"     {line}" for line in _evidence(guilty))
    if len(diagnosis.guilty) > _LISTED:
        yield f"  ... {len(diagnosis.guilty) - _LISTED} more, see --json"


def _evidence(guilty: Guilty) -> Iterator[str]:
    if guilty.candidate_module is not None and guilty.candidate_module != guilty.module:
        yield f"the candidate's: {printable(guilty.candidate_module)}"
    if guilty.between is not None:
        first, last = (printable(name) for name in guilty.between)
        yield f"its own computation, between {first} and {last}"
    else:
        yield f"shown by {printable(guilty.candidate_tensor)}"
    if guilty.bound > 0:
        yield (
            f"local error {guilty.local_error:.3g}, rounding explains {guilty.bound:.3g}; "
            f"at the worst place {guilty.excess:.3g} times that"
        )
    if guilty.where:
        yield ", ".join(guilty.where)


def _harmless_lines(diagnosis: Diagnosis) -> Iterator[str]:
    if not diagnosis.harmless:
        return
    yield ""
    yield "Different, and harmless:"
    for item in diagnosis.harmless[:_LISTED]:
        yield f"  {printable(item.tensor)}: {printable(item.reason)}"
    if len(diagnosis.harmless) > _LISTED:
        yield f"  ... {len(diagnosis.harmless) - _LISTED} more, see --json"


def _input_lines(diagnosis: Diagnosis) -> Iterator[str]:
    if not diagnosis.inputs:
        return
    yield ""
    yield "Not the same on both sides:"
    for item in diagnosis.inputs[:_LISTED]:
        what, left, right = map(printable, (item.what, item.reference, item.candidate))
        yield f"  {item.kind} {what}: reference {left}, candidate {right}"
    if len(diagnosis.inputs) > _LISTED:
        yield f"  ... {len(diagnosis.inputs) - _LISTED} more, see --json"


def _choice_lines(diagnosis: Diagnosis) -> Iterator[str]:
    if not diagnosis.choices:
        return
    yield ""
    yield "Tokens chosen differently:"
    for choice in diagnosis.choices[:_LISTED]:
        yield f"  {_choice(choice)}"


def _choice(choice: TokenChoice) -> str:
    tie = "; rounding alone decides this (a tie)" if choice.is_tie else ""
    return (
        f"step {choice.spot.step}, row {choice.spot.row}: reference {choice.reference}, "
        f"candidate {choice.candidate}; margin {choice.margin:.3g}, noise {choice.noise:.3g}{tie}"
    )


def _coverage_line(diagnosis: Diagnosis) -> str:
    coverage = diagnosis.coverage
    text = (
        f"Checked {coverage.modules_checked} of {coverage.modules} modules: {coverage.replayed} "
        f"tensors held against a replay of the reference; {coverage.unpaired} of the candidate's "
        f"{coverage.paired + coverage.unpaired} tensors have no counterpart"
    )
    if diagnosis.verdict is Judgement.AGREE and coverage.modules_checked < coverage.modules:
        text += "; what a module without a counterpart computes is checked with its neighbours"
    return text
