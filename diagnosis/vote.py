"""Several candidates against one reference: the odd one out, which may be the reference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from comparison.schema.diagnosis import Diagnosis, Judgement
from comparison.schema.outcome import Side
from diagnosis.check import Check
from diagnosis.finding import Finding
from diagnosis.rounding import widened
from diagnosis.sentence import capitalised

_ONE_ERROR = 0.1  # relative distance of two errors that are taken for the same


def vote(findings: Sequence[Finding]) -> Diagnosis:
    """Join the diagnoses of several candidates.

    Where all candidates are wrong in the same tensor by the same error, it is the reference that
    is wrong.

    Args:
        findings: one a candidate, at least one.
    """
    diagnoses = tuple(finding.diagnosis for finding in findings)
    if len(diagnoses) == 1:
        return diagnoses[0]
    shared = _shared_error(findings)
    if shared is not None:
        return _against_reference(diagnoses, shared)
    wrong = [found for found in diagnoses if found.verdict is Judgement.DIVERGE]
    unsure = [found for found in diagnoses if found.verdict is Judgement.INCONCLUSIVE]
    chosen = (wrong or unsure or list(diagnoses))[0]
    names = _names(diagnoses)
    right = [
        name
        for name, found in zip(names, diagnoses, strict=True)
        if found.verdict is Judgement.AGREE
    ]
    sentence = " ".join(found.sentence for found in diagnoses)
    if len(wrong) == 1 and right:
        others = " and ".join([chosen.reference_called, *right])
        sentence = capitalised(
            f"{others} agree, and {names[diagnoses.index(chosen)]} is the odd one out: "
            f"{chosen.sentence}"
        )
    return replace(chosen, sentence=sentence, candidates=diagnoses)


def _shared_error(findings: Sequence[Finding]) -> str | None:
    """Name the first guilty tensor of all candidates, if they all make one and the same error."""
    first = findings[0]
    for name, check in first.guilty.items():
        others = [finding.guilty.get(name) for finding in findings[1:]]
        if all(other is not None and _same_error(check, other) for other in others):
            return name
        return None  # only the first fault is nobody else's consequence
    return None


def _same_error(left: Check, right: Check) -> bool:
    if left.floor is None or right.floor is None or left.places != right.places:
        return False
    if left.candidate.shape != right.candidate.shape:
        return False
    mine = widened(left.candidate) - left.exact
    theirs = widened(right.candidate) - right.exact
    size = max(float(np.linalg.norm(mine)), float(np.linalg.norm(theirs)))
    return float(np.linalg.norm(mine - theirs)) < _ONE_ERROR * size


def _against_reference(diagnoses: tuple[Diagnosis, ...], tensor: str) -> Diagnosis:
    first = diagnoses[0]
    names = " and ".join(_names(diagnoses))
    culprit = first.culprit
    module = tensor if culprit is None else culprit.module
    return replace(
        first,
        culprit=None
        if culprit is None
        else replace(culprit, side=Side.REFERENCE, engine=first.reference_engine),
        sentence=capitalised(
            f"{_reference(first)} is the odd one out: {names} differ from "
            f"it by the same error in {module} (shown by {tensor}), so it is the reference that "
            "is wrong there, or all others share one fault."
        ),
        candidates=diagnoses,
    )


def _names(diagnoses: Sequence[Diagnosis]) -> list[str]:
    """Tell the candidates apart."""
    called = [found.candidate_called for found in diagnoses]
    if len(set(called)) == len(called):
        return called
    return [f"candidate {number}" for number in range(1, len(called) + 1)]


def _reference(found: Diagnosis) -> str:
    role = "the reference"
    return role if found.reference_called == role else f"{found.reference_called}, {role},"
