"""Pairs the tensors of two dumps and measures how far each pair is apart."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from comparison.schema.tolerance import Tolerance
from tools.entry_point import run_command
from tools.output_paths import check_paths
from tools.path_type import PathType
from tools.report_files import ReportFiles, report_options

if TYPE_CHECKING:
    from pathlib import Path

    from comparison.details import Details
    from comparison.schema.comparison import Comparison
    from comparison.schema.diagnosis import Diagnosis
    from comparison.store.dump import Dump

_DUMP = PathType()


@click.command(
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="\b\n"
    "compare_tensors --torch-tensor torch_tensors/ --max-tensor max_tensors/\n"
    "compare_tensors --reference good/ --candidate new/ --rtol 1e-3 --atol 1e-5\n\n"
    "Exit codes: 0 agree, or measured without a tolerance; 1 a difference; 2 bad input, "
    "nothing compared, or a result cut short. See docs/compare_tensors.md.",
)
@click.option("--torch-tensor", type=_DUMP, help="PyTorch dump: folder or file. The reference.")
@click.option("--max-tensor", type=_DUMP, help="MAX dump: folder or file. The candidate.")
@click.option("--reference", type=_DUMP, help="Any dump that is taken to be right.")
@click.option("--candidate", type=_DUMP, help="Any dump that is in question.")
@click.option("--rtol", type=float, help="Relative tolerance; alone it leaves --atol at 0.")
@click.option("--atol", type=float, help="Absolute tolerance; alone it leaves --rtol at 0.")
@click.option(
    "--allow-reshape", is_flag=True, help="Compare tensors of equal size and different shape."
)
@click.option("--equal-nan", is_flag=True, help="NaN passes where both sides have it.")
@click.option("--equal-inf", is_flag=True, help="An infinity passes where both sides have it.")
@click.option("--only-differing", is_flag=True, help="Count the pairs that agree, and list others.")
@click.option(
    "--verdict",
    is_flag=True,
    help="Also say where the error jumps, so which module is wrong, as far as two dumps tell.",
)
@click.option(
    "--json",
    "json_file",
    type=PathType(),
    help="Write the whole result to this file as well.",
)
@report_options
def compare_tensors(
    *,
    torch_tensor: Path | None,
    max_tensor: Path | None,
    reference: Path | None,
    candidate: Path | None,
    rtol: float | None,
    atol: float | None,
    allow_reshape: bool,
    equal_nan: bool,
    equal_inf: bool,
    only_differing: bool,
    verdict: bool,
    json_file: Path | None,
    **others: Any,
) -> int:
    """Pair the tensors of two dumps and measure how far each pair is apart."""
    by_engine = _paths("--torch-tensor", torch_tensor, "--max-tensor", max_tensor)
    by_role = _paths("--reference", reference, "--candidate", candidate)
    paths = by_engine or by_role
    if paths is None or (by_engine and by_role):
        raise click.UsageError(
            "give either --torch-tensor and --max-tensor, or --reference and --candidate"
        )
    # Here, so that a command line that is wrong is answered before NumPy is loaded.
    from comparison.pipeline import CompareOptions, compare
    from comparison.report.text import comparison_lines, summary_lines
    from comparison.store.atomic_file import write_text
    from comparison.store.dump import open_dump
    from test_common.kernels_folder import kernels_folder
    from test_common.progress import counted

    reports = ReportFiles.of(others)
    check_paths(files={"json": json_file, **reports.files}, folders={}, read=paths)
    if (equal_nan or equal_inf) and rtol is None and atol is None:
        click.echo("note: --equal-nan and --equal-inf matter only with --rtol or --atol", err=True)
    if verdict:  # rests on whole tensors: what holds none is refused before it is compared
        dumps = open_dump(paths[0]), open_dump(paths[1])
    options = CompareOptions(
        tolerance=_tolerance(rtol, atol, equal_nan=equal_nan, equal_inf=equal_inf),
        allow_reshape=allow_reshape,
        reference_engine="torch" if by_engine else None,
        candidate_engine="max" if by_engine else None,
        kernels=kernels_folder(),
    )
    details: Details = {}
    with counted("comparing", what="pairs") as advance:
        if reports.html is None:
            result = compare(paths[0], paths[1], options, progress=advance)
        else:
            from comparison.details import compare_with_details

            result, details = compare_with_details(*paths, options, progress=advance)
    if json_file is not None:
        from comparison.report.json_report import comparison_to_json

        write_text(json_file, comparison_to_json(result))
    listed = comparison_lines(result, only_differing=only_differing)
    lines = summary_lines(result) if reports.table else listed
    sys.stdout.writelines(f"{line}\n" for line in lines)
    found = _print_verdict(*dumps, result) if verdict else None
    if reports.is_asked:
        from comparison.report.build_report import build_report

        reports.write([build_report(result, diagnosis=found, details=details)])
    return result.exit_code if found is None else found.exit_code


def _print_verdict(reference: Dump, candidate: Dump, compared: Comparison) -> Diagnosis:
    """Print the verdict of two dumps without a model."""
    from comparison.report.diagnosis_text import diagnosis_lines
    from comparison.store.mapping_guard import mappings_guarded
    from diagnosis.two_dumps import diagnose_dumps

    with mappings_guarded():
        found = diagnose_dumps(reference, candidate, compared=compared)
    print()
    for line in diagnosis_lines(found):
        print(line)
    return found


def _paths(
    first_name: str, first: Path | None, second_name: str, second: Path | None
) -> tuple[Path, Path] | None:
    """Return both paths, or None where neither was given."""
    if first is None and second is None:
        return None
    if first is None or second is None:
        given, missing = (second_name, first_name) if first is None else (first_name, second_name)
        raise click.UsageError(f"{given} needs {missing} as well")
    return first, second


def _tolerance(
    rtol: float | None, atol: float | None, *, equal_nan: bool, equal_inf: bool
) -> Tolerance | None:
    """Return what to judge by; None without --rtol and --atol."""
    if rtol is None and atol is None:
        return None
    return Tolerance(rtol=rtol or 0.0, atol=atol or 0.0, equal_nan=equal_nan, equal_inf=equal_inf)


if __name__ == "__main__":
    run_command(compare_tensors)
