"""What a finding gives to a repro, if one was asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from comparison.schema.diagnosis import Diagnosis
from comparison.schema.manifest import Manifest
from diagnosis.diff_options import DiffOptions
from diagnosis.finding import Finding
from diagnosis.repro.repro import repro_of, write_repro


def cut_out(
    found: Finding, reference: Manifest | None, candidate: Manifest | None, options: DiffOptions
) -> Finding:
    """Add the fault by itself to a finding.

    Args:
        found: of one candidate.
        reference: manifest of the reference's dump; None where it has none.
        candidate: the same of the candidate's.
        options: say whether it is wanted.
    """
    if options.repro is None:
        return found
    return replace(found, repro=repro_of(found, reference=reference, candidate=candidate))


def with_repro(joined: Diagnosis, found: Sequence[Finding], options: DiffOptions) -> Diagnosis:
    """Write the fault by itself, if that was asked for, and tell so.

    Args:
        joined: the whole result.
        found: of each candidate.
        options: say where to.
    """
    if options.repro is not None:
        options.tell(write_repro(options.repro, joined, found))
    return joined
