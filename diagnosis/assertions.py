"""For test code: models agree, or the test fails with the verdict."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from comparison.pipeline import CompareOptions, compare
from comparison.report.build_report import build_report
from comparison.report.diagnosis_text import diagnosis_lines
from comparison.report.names import printable
from comparison.report.table_report import report_to_table
from comparison.schema.comparison import Verdict
from comparison.schema.diagnosis import Diagnosis, Judgement
from comparison.schema.errors import BadInputError
from comparison.schema.tolerance import Tolerance
from diagnosis.diff_models import diff_models
from diagnosis.diff_options import DiffOptions

if TYPE_CHECKING:
    import torch

    from diagnosis.module_dump import Inputs


def assert_agree(
    reference: torch.nn.Module | str | Path,
    candidate: torch.nn.Module | str | Path,
    inputs: Inputs | None = None,
    *,
    num_steps: int = 3,
    encoder: bool = False,
    options: DiffOptions | None = None,
) -> Diagnosis:
    """Pass if a candidate computes what the reference does.

        assert_agree(model, quantized_copy, [[1, 5, 7, 9], [1, 8, 2]])
        assert_agree("torch", "max", options=DiffOptions(run=RunOptions(pipeline="org/model")))

    Args:
        reference: as in `diff_models`.
        candidate: as in `diff_models`.
        inputs: as in `diff_models`.
        num_steps: as in `diff_models`.
        encoder: as in `diff_models`.
        options: as in `diff_models`.

    Returns:
        The diagnosis, with the coverage that the agreement rests on.

    Raises:
        AssertionError: they diverge, or too little could be checked; the message is the verdict.
        BadInputError: the arguments do not fit together, or a side cannot be read.
        EngineError: an engine cannot run a side.
    """
    __tracebackhide__ = True  # pytest shows the caller's line
    found = diff_models(
        reference, candidate, inputs, num_steps=num_steps, encoder=encoder, options=options
    )
    if found.verdict is not Judgement.AGREE:
        raise AssertionError("\n".join([found.sentence, "", *diagnosis_lines(found)]))
    return found


def assert_close(
    reference: str | Path, candidate: str | Path, *, rtol: float = 0.0, atol: float = 0.0
) -> None:
    """Pass if every pair of tensors of two dumps is within a tolerance; no model is loaded.

    Args:
        reference: folder of a dump, or one file.
        candidate: the same.
        rtol: relative tolerance, as in torch.isclose.
        atol: absolute tolerance, in the unit of the tensors.

    Raises:
        AssertionError: a pair differs by more, or something could not be compared.
        BadInputError: a dump cannot be read.
    """
    __tracebackhide__ = True  # pytest shows the caller's line
    for path in (reference, candidate):
        if not os.path.exists(path):  # a name that no file can have is not there either
            raise BadInputError(f"{path}: expected the folder of a dump, found nothing")
    options = CompareOptions(tolerance=Tolerance(rtol=rtol, atol=atol))
    found = compare(Path(reference), Path(candidate), options)
    if found.verdict is not Verdict.AGREE:
        report = build_report(found)
        table = report_to_table(report, width=0, is_terminal=False, color=False)
        notes = "".join(f"note: {printable(note)}\n" for note in found.notes)
        raise AssertionError(f"{report.sentence}\n{notes}\n{table}")
