"""A reference that looks ahead: not the candidate is wrong."""

from __future__ import annotations

from comparison.schema.diagnosis import Cause
from diagnosis.causes.advice import ADVICE
from diagnosis.replay.causality import LookAhead, said_of

ID = "reference_not_causal"
_CONFIDENCE = 0.95  # it was seen to, in the very module in which the two sides differ


def cause_of_look_ahead(ahead: LookAhead) -> Cause:
    """Say that the reference looks ahead in the module in which the sides differ."""
    return Cause(
        id=ID,
        evidence=f"looks ahead: {said_of(ahead)}",
        confidence=_CONFIDENCE,
        advice=ADVICE[ID],
    )
