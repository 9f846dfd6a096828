"""A diagnosis as text for a console."""

from collections.abc import Iterator, Sequence

from comparison.report.names import printable
from comparison.report.operation_text import operation_lines
from comparison.report.unpaired_text import unpaired_summary
from comparison.schema.diagnosis import (
    ConfigField,
    Diagnosis,
    Guilty,
    Jitter,
    Judgement,
    TokenChoice,
)

_LISTED = 10


def diagnosis_lines(diagnosis: Diagnosis) -> Iterator[str]:
    """Give the verdict, its evidence, and what it rests on, line by line."""
    yield f"Verdict: {diagnosis.verdict}"
    yield printable(diagnosis.sentence)
    if diagnosis.candidates:
        for number, candidate in enumerate(diagnosis.candidates, start=1):
            yield ""
            name = candidate.candidate_name or candidate.candidate_engine
            yield f"Candidate {number}, {printable(name)}:"
            yield from diagnosis_lines(candidate)
        return
    yield from _cause_lines(diagnosis)
    yield from _guilty_lines(diagnosis)
    yield from operation_lines(diagnosis)
    yield from _harmless_lines(diagnosis)
    yield from _input_lines(diagnosis)
    yield from _choice_lines(diagnosis)
    yield from _config_lines(diagnosis)
    yield from _calibration_lines(diagnosis)
    yield ""
    yield _coverage_line(diagnosis)
    yield from _missing_lines(diagnosis.missing)
    yield from (f"note: {printable(note)}" for note in diagnosis.notes)
    yield from unpaired_summary(diagnosis.unpaired)


def _missing_lines(missing: Sequence[str]) -> Iterator[str]:
    """Say what was not checked; tensors of the same reason in one line."""
    by_reason: dict[str, list[str]] = {}
    for text in missing:
        name, colon, reason = text.partition(": ")
        by_reason.setdefault(reason if colon else text, []).append(name)
    listed = list(by_reason.items())
    for reason, names in listed[:_LISTED]:
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        yield f"not checked: {printable(names[0])}{more}" + (
            f": {printable(reason)}" if reason != names[0] else ""
        )
    if len(listed) > _LISTED:
        left = sum(len(names) for _, names in listed[_LISTED:])
        yield f"not checked: {left} more, see --json"


def _rest(items: Sequence[object]) -> Iterator[str]:
    """Count what is not listed."""
    if len(items) > _LISTED:
        yield f"  ... {len(items) - _LISTED} more, see --json"


def _cause_lines(diagnosis: Diagnosis) -> Iterator[str]:
    cause, culprit = diagnosis.cause, diagnosis.culprit
    if cause is None:
        return
    yield ""
    sure = "" if cause.confidence is None else f" (confidence {cause.confidence:.0%})"
    yield f"Cause: {cause.id}{sure}"
    if cause.evidence:
        who = "" if culprit is None else f"the {culprit.side} "
        yield f"  {who}{printable(cause.evidence)}"
    if cause.expected:
        yield f"  in the reference {printable(cause.expected)}"
    if cause.residual is not None and cause.unexplained is not None:
        yield (
            f"  done to the reference, that leaves {cause.residual:.3g} times rounding; "
            f"without it are {cause.unexplained:.3g}"
        )
    yield from (f"  as well: {printable(text)}" for text in cause.alternatives[:_LISTED])
    if cause.advice:
        yield f"  look at: {cause.advice}"


def _guilty_lines(diagnosis: Diagnosis) -> Iterator[str]:
    if not diagnosis.guilty:
        return
    yield ""
    explained = sum(guilty.cause is not None for guilty in diagnosis.guilty)
    only = f"; a cause was sought for {explained} of {len(diagnosis.guilty)}"
    more = only if 0 < explained < len(diagnosis.guilty) else ""
    yield f"Wrong by themselves, in order of execution{more}:"
    for number, guilty in enumerate(diagnosis.guilty[:_LISTED], start=1):
        yield f"  {number}. {printable(guilty.module)}"
        yield from (f"     {line}" for line in _evidence(guilty))
    yield from _rest(diagnosis.guilty)


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
    if guilty.reference_error is not None:
        yield _third_opinion(guilty.local_error, guilty.reference_error)
    if guilty.where:
        yield ", ".join(guilty.where)
    if guilty.cause is not None and guilty.cause.id != "unknown":
        yield f"cause {guilty.cause.id}: {printable(guilty.cause.evidence)}"


def _third_opinion(candidate: float, reference: float) -> str:
    """Say which side is nearer to float64 on the same inputs."""
    nearer = "candidate" if candidate < reference else "reference"
    return (
        f"against float64 on the same inputs the candidate is off by {candidate:.3g}, the "
        f"reference by {reference:.3g}: the {nearer} is nearer"
    )


def _harmless_lines(diagnosis: Diagnosis) -> Iterator[str]:
    if not diagnosis.harmless:
        return
    yield ""
    yield "Different, and harmless:"
    for item in diagnosis.harmless[:_LISTED]:
        yield f"  {printable(item.tensor)}: {printable(item.reason)}"
    yield from _rest(diagnosis.harmless)


def _input_lines(diagnosis: Diagnosis) -> Iterator[str]:
    if not diagnosis.inputs:
        return
    yield ""
    yield "Not the same on both sides:"
    for item in diagnosis.inputs[:_LISTED]:
        what, left, right = map(printable, (item.what, item.reference, item.candidate))
        yield f"  {item.kind} {what}: reference {left}, candidate {right}"
    yield from _rest(diagnosis.inputs)


def _choice_lines(diagnosis: Diagnosis) -> Iterator[str]:
    if not diagnosis.choices:
        return
    yield ""
    yield "Tokens chosen differently:"
    for choice in diagnosis.choices[:_LISTED]:
        yield f"  {_choice(choice)}"
    yield from _rest(diagnosis.choices)


def _choice(choice: TokenChoice) -> str:
    tie = "; rounding alone decides this (a tie)" if choice.is_tie else ""
    return (
        f"step {choice.spot.step}, row {choice.spot.row}: reference {choice.reference}, "
        f"candidate {choice.candidate}; margin {choice.margin:.3g}, noise {choice.noise:.3g}{tie}"
    )


def _config_lines(diagnosis: Diagnosis) -> Iterator[str]:
    if diagnosis.config_audit is None:
        return
    yield ""
    yield "Config audit: fields that the reference reads and that do not reach the candidate"
    for item in diagnosis.config_audit:
        yield f"  {printable(_config_field(item))}"
    if not diagnosis.config_audit:
        yield "  none"


def _config_field(item: ConfigField) -> str:
    default = "the default" if not item.non_default else f"default {item.default!r}"
    unread = item.candidate_reads == ()
    parts = ["the candidate never reads it"] if unread else []
    if item.graph_changes is False:
        parts.append("another value leaves its graph and weights as they are")
    elif item.graph_changes:
        parts.append("another value changes its graph or weights all the same")
    return f"{item.field} = {item.value!r} ({default}): {'; '.join(parts)}"


def _calibration_lines(diagnosis: Diagnosis) -> Iterator[str]:
    found = diagnosis.calibration
    if found is None:
        return
    yield ""
    yield f"Calibration: {found.tensors} tensors, the candidate run {' and '.join(found.runs)}"
    if found.greatest is None:
        yield "  no difference between its own runs"
        return
    yield f"  greatest difference between its own runs: {printable(_jitter(found.greatest))}"
    for item in found.raised[:_LISTED]:
        yield f"  limit raised from {item.limit:.3g} to {item.raised:.3g}: {printable(item.tensor)}"
    yield from _rest(found.raised)
    for item in found.beyond[:_LISTED]:
        yield f"  more than jitter, its limit stays: {printable(_jitter(item))}"
    yield from _rest(found.beyond)


def _jitter(item: Jitter) -> str:
    return f"{item.tensor}, {item.whole:.3g} times rounding, {item.worst:.3g} at the worst place"


def _coverage_line(diagnosis: Diagnosis) -> str:
    coverage = diagnosis.coverage
    if not coverage.modules and not coverage.paired:
        return "Checked nothing else: no tensor was held against another"
    how = (
        f"{coverage.replayed} tensors, all steps of one counted once, held against a replay of the "
        "reference"
        if coverage.replayed
        else "the two dumps' tensors held against each other, and none against a replay"
    )
    text = (
        f"Checked {coverage.modules_checked} of {coverage.modules} modules: {how}; of the "
        f"candidate's {coverage.paired + coverage.unpaired}, counted in each step, "
        f"{coverage.unpaired} have no counterpart"
    )
    if diagnosis.verdict is Judgement.AGREE and coverage.modules_checked < coverage.modules:
        text += "; what a module without a counterpart computes is checked with its neighbours"
    return text
