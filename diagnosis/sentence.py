"""The verdict in one sentence."""

from __future__ import annotations

import math
from dataclasses import replace

from comparison.schema.diagnosis import Cause, Diagnosis, Guilty, Judgement
from comparison.schema.outcome import Side
from diagnosis.not_passed_on import NOT_PASSED_ON

_AS_MUCH = 0.1  # of an error: what runs differ by may then be all of it


def sentence_of(diagnosis: Diagnosis) -> Diagnosis:
    """Add the sentence to a diagnosis."""
    return replace(diagnosis, sentence=capitalised(_sentence(diagnosis)))


def named(diagnosis: Diagnosis, *, reference: str, candidate: str) -> Diagnosis:
    """Let the sentence call the sides as the user did, where both are of one engine.

    Args:
        diagnosis: with its sentence.
        reference: such as `torch` or the folder of a dump.
        candidate: such as `torch@my_oracle.py:FIXED`.
    """
    return sentence_of(replace(diagnosis, reference_name=reference, candidate_name=candidate))


def capitalised(sentence: str) -> str:
    """Begin a sentence; the name of a side that it begins with is left as it is spelled."""
    return sentence[:1].upper() + sentence[1:] if sentence.startswith("the ") else sentence


def _sentence(found: Diagnosis) -> str:
    coverage = found.coverage
    checked = f"{coverage.modules_checked} of {coverage.modules} modules"
    if found.verdict is Judgement.INCONCLUSIVE:
        reason = found.missing[0] if found.missing else "nothing could be checked"
        return f"Nothing can be said: {reason}."
    if found.verdict is Judgement.AGREE:
        count = len(found.harmless)
        words = "one difference is" if count == 1 else f"{count} differences are"
        cleared = f"; {words} harmless" if count else ""
        if any(NOT_PASSED_ON in item.reason for item in found.harmless):
            cleared += (
                f", but {found.candidate_called}'s dump holds values that were {NOT_PASSED_ON}"
            )
        return (
            f"{found.candidate_called} agrees with {found.reference_called}: rounding explains "
            f"every difference in the {checked} that were checked{cleared}."
        )
    if found.guilty:
        return _blame(found, found.guilty[0])
    if found.cause is not None and found.cause.id == "drift":
        return (
            f"{found.candidate_called} drifts away from {found.reference_called} without any one "
            f"module to blame ({checked} were checked): its end is off by {found.cause.evidence}."
        )
    first = next(item for item in found.inputs if item.decisive)
    if first.kind == "observer":
        return (
            f"Capture changes what {found.candidate_called} computes: without hooks its first step "
            f"is {first.candidate}, so what was captured is not what it does by itself; no module "
            "is blamed."
        )
    return (
        f"The two runs were not given the same: {first.what} is {first.reference} for the "
        f"reference and {first.candidate} for the candidate; no module is blamed."
    )


def _blame(found: Diagnosis, first: Guilty) -> str:
    where = first.module
    if first.between is not None:
        where += f", in its own computation between {first.between[0]} and {first.between[1]}"
    spot = first.spot
    at = f"step {spot.step}, row {spot.row}"
    if spot.position is not None:
        at += f", token {spot.position}"
    if spot.rank is not None:
        at += f", rank {spot.rank}"
    if first.bound > 0 and not math.isfinite(first.local_error):
        size = "there are values that are no numbers, or infinite, where the reference has others"
    elif first.bound > 0:
        size = (
            f"its own error there is {first.local_error:.2g} of the tensor's size, "
            f"{first.local_error / first.bound:,.3g} times what rounding explains"
        )
    else:
        size = "integers and masks have to be equal, and are not"
    if found.culprit is not None and found.culprit.side is Side.REFERENCE:
        return (
            f"Not {found.candidate_called} is wrong in {where} ({at}) but the reference, "
            f"{found.culprit.engine}: {_why(found.cause)}the difference there is "
            f"{first.local_error:.2g} of the tensor's size{_more(found)}."
        )
    return (
        f"{found.candidate_called} first goes wrong in {where} ({at}): {_why(found.cause)}{size}"
        f"{_own_jitter(found, first)}{_more(found)}."
    )


def _own_jitter(found: Diagnosis, first: Guilty) -> str:
    """Say that the candidate's own runs differ in the tensor that is blamed, where they do."""
    beyond = () if found.calibration is None else found.calibration.beyond
    own = next((item for item in beyond if item.tensor == first.tensor), None)
    if own is None:
        return ""
    text = f"; but its own runs differ there by {own.whole:,.3g} times what rounding explains"
    if own.whole * first.bound > _AS_MUCH * first.local_error:
        text += ", so it may be noise, such as dropout, or hang on what shares the batch"
    return text


def _why(cause: Cause | None) -> str:
    """Say what the candidate does, and how well that explains its values."""
    if cause is None or cause.id == "unknown" or not cause.evidence:
        return ""
    expected = f" ({cause.expected})" if cause.expected else ""
    if cause.residual is None:
        return f"it {cause.evidence}{expected}; "
    return (
        f"it {cause.evidence}{expected}; done to the reference too, that leaves "
        f"{cause.residual:.2g} times what rounding explains; "
    )


def _more(found: Diagnosis) -> str:
    others = len(found.guilty) - 1
    if others < 1:
        return ""
    return f"; {'one more module is' if others == 1 else f'{others} more modules are'} wrong too"
