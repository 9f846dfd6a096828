"""The text of a bug report, in plain words, and the versions that it is about."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping
from html import escape
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from comparison.report.names import printable
from comparison.schema.diagnosis import Cause, Culprit, Diagnosis
from comparison.schema.manifest import Manifest
from comparison.schema.outcome import Side
from diagnosis.repro.case import Case
from diagnosis.repro.files import runs_on_max

_PACKAGES = ("torch", "transformers", "numpy", "safetensors")


def title_of(found: Diagnosis) -> str:
    """Name the fault in a few words.

    Args:
        found: with a culprit.
    """
    culprit, cause = _culprit(found), found.cause
    why = "" if cause is None or cause.id == "unknown" else f" ({cause.id.replace('_', ' ')})"
    other = found.reference_engine
    other = "the reference" if other == found.candidate_engine else other
    return f"{found.candidate_engine} computes something else than {other} in {culprit.module}{why}"


def versions_of(reference: Manifest | None, candidate: Manifest | None) -> dict[str, Any]:
    """List what ran.

    Args:
        reference: of the reference's run; None where it was a module at hand.
        candidate: of the candidate's run.
    """
    here = {name: _version(name) for name in _PACKAGES}
    return {
        "reference": _of_run(reference),
        "candidate": _of_run(candidate),
        "where the repro was made": {
            "python": platform.python_version(),
            "platform": f"{platform.system()} {platform.machine()}",
            **{name: found for name, found in here.items() if found},
        },
    }


def report_of(
    found: Diagnosis,
    case: Case,
    measured: Mapping[str, Mapping[str, Any]],
    versions: Mapping[str, Any],
) -> str:
    """Write the report, in Markdown.

    Args:
        found: the final diagnosis.
        case: the fault.
        measured: what the script found.
        versions: as `versions_of` gives them.
    """
    parts = [
        [f"# {_text(title_of(found))}", "", _text(found.sentence)],
        _what(found),
        _how_sure(found.cause),
        ["## Numbers", "", *_numbers(found, case, measured)],
        ["## How to run it", "", *_how_to_run(found, case)],
        ["## What it does not show", "", *(f"- {text}" for text in _limits(found, case))],
        ["## Versions", "", *_versions(versions)],
    ]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def _what(found: Diagnosis) -> list[str]:
    culprit, cause = _culprit(found), found.cause
    lines = [f"- Module: {_code(culprit.module)}, by the names of {found.reference_engine}"]
    if culprit.candidate_module is not None and culprit.candidate_module != culprit.module:
        lines.append(f"- {found.candidate_engine} calls it {_code(culprit.candidate_module)}")
    lines.append(f"- Shown by: {_code(culprit.tensor)}")
    if culprit.between is not None:
        lines.append("- Between: {} and {}".format(*map(_code, culprit.between)))
    if found.guilty and found.guilty[0].where:
        lines.append(f"- Where in it: {_text(', '.join(found.guilty[0].where))}")
    if cause is not None and cause.expected:
        lines.append(f"- Expected: {_text(cause.expected)}")
    if cause is not None and cause.id != "unknown" and cause.evidence:
        lines.append(f"- Done instead: it {_text(cause.evidence)}")
    if found.operation is not None:
        lines += _operation(found)
    if culprit.side is Side.REFERENCE:
        lines.append(
            "- All candidates differ from the reference by this same error, so it is the reference "
            "that is likely to be wrong; the script still calls the candidate's output wrong"
        )
    return ["## What is wrong", "", *lines]


def _operation(found: Diagnosis) -> Iterator[str]:
    operation = found.operation
    assert operation is not None  # the caller made sure
    source = f", in {_text(operation.source)}" if operation.source else ""
    yield f"- Operation: {_code(operation.op)}{source}"
    if operation.reference_op:
        yield f"- In its place the reference has: {_code(operation.reference_op)}"


def _how_sure(cause: Cause | None) -> list[str]:
    lines = ["## How sure", ""]
    if cause is None or cause.id == "unknown":
        lines.append("That the output is wrong is measured. Why it is wrong is not known.")
        if cause is not None and cause.evidence:
            lines.append(f"What was found: it {_text(cause.evidence)}.")
        return lines
    if cause.residual is not None and cause.unexplained is not None:
        lines.append(
            f"The same was done to the reference: what is left over then is {cause.residual:.3g} "
            f"times rounding, against {cause.unexplained:.3g} times without it."
        )
    else:
        lines.append("The cause is told by signs, and was not tried on the reference.")
    if cause.confidence is not None:
        lines.append(
            f"Of causes that were said with such evidence, {cause.confidence:.0%} were right in "
            "the benchmark of planted faults."
        )
    lines += [f"As well possible: {_text(text)}." for text in cause.alternatives]
    return lines


def _numbers(
    found: Diagnosis, case: Case, measured: Mapping[str, Mapping[str, Any]]
) -> Iterator[str]:
    names = {
        "script": "the reference's module, run by repro.py in float64",
        "reference": f"the reference ({found.reference_engine}), in {case.case['dtype']}",
        "candidate": f"the candidate ({found.candidate_engine}), in {case.case['dtype']}",
    }
    yield "| output | greatest error | relative to the greatest value | times rounding |"
    yield "|---|---|---|---|"
    for key, name in names.items():
        row = measured[key]
        error, relative, times = (row[k] for k in ("absolute", "relative", "times_rounding"))
        yield f"| {name} | {error:.3g} | {relative:.3g} | {times:.3g} |"
    worst = measured["candidate"]
    yield ""
    yield (
        "Errors are distances from the expected output, which is exact but for float64's rounding. "
        f"The first wrong token is token {worst['position']} of row {worst['row']}: its value "
        f"number {worst['channel']} is {worst['got']:.9g}, and {worst['expected']:.9g} is expected."
    )


def _how_to_run(found: Diagnosis, case: Case) -> Iterator[str]:
    needs = ", ".join(["torch", "numpy", "safetensors", *case.needs])
    yield f"    pip install {needs.replace(',', '')}"
    yield "    python repro.py"
    yield ""
    yield (
        "It prints one line for each row of the table. Exit code 1: the candidate's output is "
        "wrong; 0: it is right; 2: the reference's module gives something else in this environment."
    )
    yield ""
    yield (
        "After a fix, hold another output against the same: "
        "`python repro.py --candidate output.npy`, of the shape of `candidate` in "
        "tensors.safetensors."
    )
    if runs_on_max(case.case, found.candidate_engine):
        yield ""
        yield (
            "Where MAX is installed, `python repro.py --engine max` runs MAX's own layer of this "
            "kind on the same inputs and the reference's weights. If that is right, the fault is "
            "in how the model uses the layer or loads its weights."
        )


def _limits(found: Diagnosis, case: Case) -> Iterator[str]:
    if runs_on_max(case.case, found.candidate_engine):
        yield "What the model's own code gives to the layer in MAX, such as another epsilon."
    else:
        yield (
            f"{found.candidate_engine} does not run in the script: this module does not stand "
            "alone there. Its recorded output is compared."
        )
    if case.case.get("parts"):
        parts = ", ".join(map(_code, case.case["parts"]))
        yield f"These parts are not run, and give what the candidate gave: {parts}."
    yield "The model is not in here: only tokens of one row, and weights of this one module."
    yield from (f"Cut: {_text(note)}." for note in case.notes)


def _versions(versions: Mapping[str, Any]) -> Iterator[str]:
    for part, fields in versions.items():
        told = ", ".join(f"{name} {value}" for name, value in fields.items())
        yield f"- {part}: {told or 'a module at hand, in the environment below'}"


def _text(text: str) -> str:
    """Keep text in one line, and from being read as HTML; names in it are anyone's."""
    return escape(printable(text), quote=False)


def _code(name: str) -> str:
    return "`" + printable(name).replace("`", "'") + "`"


def _of_run(manifest: Manifest | None) -> dict[str, Any]:
    if manifest is None:
        return {}
    return {
        "engine": manifest.engine,
        "encoding": manifest.encoding,
        "device": manifest.device,
        **manifest.versions,
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _culprit(found: Diagnosis) -> Culprit:
    assert found.culprit is not None  # a repro is of one
    return found.culprit
