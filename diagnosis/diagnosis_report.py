"""The report of a diagnosis: what its page and its other forms show."""

from __future__ import annotations

from comparison.details import compare_with_details
from comparison.pipeline import compare
from comparison.report.build_report import build_report
from comparison.report.report_model import Report
from comparison.schema.diagnosis import Diagnosis
from comparison.store.dump import Dump


def report_of(
    reference: Dump, candidate: Dump, found: Diagnosis, *, detailed: bool = True
) -> Report:
    """Compare the dumps that a diagnosis rests on, and put together what is shown.

    Args:
        reference: the reference's dump.
        candidate: the candidate's.
        found: the diagnosis.
        detailed: whether values of single tensors are kept for a page, guilty ones first.

    Raises:
        BadInputError: nothing can be compared.
    """
    if not detailed:
        return build_report(compare(reference.path, candidate.path), diagnosis=found)
    guilty = {item.tensor for item in found.guilty}
    compared, details = compare_with_details(reference.path, candidate.path, named=guilty)
    return build_report(compared, diagnosis=found, details=details)
