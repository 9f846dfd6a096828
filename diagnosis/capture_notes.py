"""What a verdict says of the two captures: of runs without hooks, and of steps that one lacks."""

from __future__ import annotations

from collections.abc import Iterator

from comparison.schema.manifest import Manifest
from test_common.verified_capture import VERIFIED


def capture_notes(reference: Manifest | None, candidate: Manifest | None) -> Iterator[str]:
    """Yield of each side that was verified whether capture changed it.

    Args:
        reference: of the reference's dump; None where it has none.
        candidate: of the candidate's.
    """
    for role, manifest in (("the reference", reference), ("the candidate", candidate)):
        told = () if manifest is None else manifest.options.get("notes", ())
        yield from (f"{role}, {note}" for note in told if VERIFIED in note)


def steps_left(reference: Manifest | None, candidate: Manifest | None) -> Iterator[str]:
    """Yield a note of steps that the reference has run and the candidate has not.

    Args:
        reference: manifest of its dump; None where it has none.
        candidate: the same.
    """
    if reference is None or candidate is None or candidate.steps >= reference.steps:
        return
    yield (
        f"the candidate has {candidate.steps} of the reference's {reference.steps} steps: of what "
        "comes after them nothing was compared"
    )
