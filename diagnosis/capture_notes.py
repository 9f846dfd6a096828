"""What runs without hooks showed of both sides."""

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
