"""Writes one page of HTML about two dumps: the verdict, every tensor, and where it is apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from comparison.schema.tolerance import Tolerance
from tools.entry_point import run_command
from tools.output_paths import check_paths
from tools.path_type import PathType

if TYPE_CHECKING:
    from pathlib import Path


@click.command(
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True},
    epilog="\b\n"
    "report torch_tensors/ max_tensors/\n"
    "report good/ new/ --rtol 1e-3 --atol 1e-5 -o new.html\n\n"
    "Exit codes: 0 agree, 1 diverge, 2 bad input or inconclusive. With --rtol or --atol those of "
    "compare_tensors. See docs/report.md.",
)
@click.argument("reference", metavar="DUMP_A", type=PathType())
@click.argument("candidate", metavar="DUMP_B", type=PathType())
@click.option("-o", "--output", type=PathType(), default="report.html", help="The page.")
@click.option("--rtol", type=float, help="Judge each pair; alone it leaves --atol at 0.")
@click.option("--atol", type=float, help="Judge each pair; alone it leaves --rtol at 0.")
@click.option("--allow-reshape", is_flag=True, help="As in compare_tensors.")
def report(
    *,
    reference: Path,
    candidate: Path,
    output: Path,
    rtol: float | None,
    atol: float | None,
    allow_reshape: bool,
) -> int:
    """Write a page about two dumps; A is taken to be right, B is in question."""
    # Here, so that a command line that is wrong is answered before NumPy is loaded.
    from comparison.details import compare_with_details
    from comparison.pipeline import CompareOptions
    from comparison.report.build_report import build_report
    from comparison.report.html.page import report_page
    from comparison.report.names import printable
    from comparison.store.atomic_file import write_text
    from comparison.store.dump import open_dump
    from diagnosis.two_dumps import diagnose_dumps
    from test_common.progress import counted

    check_paths(files={"output": output}, folders={}, read=[reference, candidate])
    judged = rtol is not None or atol is not None
    tolerance = Tolerance(rtol=rtol or 0.0, atol=atol or 0.0) if judged else None
    options = CompareOptions(tolerance=tolerance, allow_reshape=allow_reshape)
    with counted("comparing", what="pairs") as advance:
        compared, details = compare_with_details(reference, candidate, options, progress=advance)
    found = None
    if not judged:
        found = diagnose_dumps(open_dump(reference), open_dump(candidate), compared=compared)
    written = build_report(compared, diagnosis=found, details=details)
    write_text(output, report_page([written]))
    print(printable(f"{written.verdict}: {written.sentence}"))
    counts = f"{len(written.rows)} rows, {written.detailed} with details"
    print(f"wrote {printable(str(output))}: {counts}")
    return compared.exit_code if found is None else found.exit_code


if __name__ == "__main__":
    run_command(report)
