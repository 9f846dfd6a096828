"""Compares two call-tree traces, or a trace and a dump, and says where they first part."""

from __future__ import annotations

from pathlib import Path

import click

from tools.entry_point import run_command
from tools.output_paths import check_paths
from tools.path_type import PathType


@click.command(
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="\b\n"
    "compare_traces good_trace/ new_trace/\n"
    "compare_traces good_trace/ torch_tensors/ --rtol 1e-3 --html trees.html\n\n"
    "Exit codes: 0 agree, 1 diverge, 2 bad input or nothing compared. "
    "See docs/compare_traces.md.",
)
@click.argument("reference", metavar="A", type=PathType())
@click.argument("candidate", metavar="B", type=PathType())
@click.option("--rtol", type=float, default=0.0, help="Relative tolerance; 0 by default.")
@click.option("--atol", type=float, default=0.0, help="Absolute tolerance; 0 by default.")
@click.option(
    "--json", "json_file", type=PathType(), help="Write the whole result to this file as well."
)
@click.option("--html", "html_file", type=PathType(), help="Write both trees to this page as well.")
def compare_traces(
    *,
    reference: Path,
    candidate: Path,
    rtol: float,
    atol: float,
    json_file: Path | None,
    html_file: Path | None,
) -> int:
    """Compare two traces, or a trace and a dump; A is taken to be right, B is in question."""
    # Here, so that a command line that is wrong is answered before NumPy is loaded.
    from comparison.report.trace_html import trace_page
    from comparison.report.trace_json import trace_to_json
    from comparison.report.trace_text import trace_lines
    from comparison.schema.tolerance import Tolerance
    from comparison.store.atomic_file import write_text
    from comparison.traces.trace_comparison import compare_traces as compare

    tolerance = Tolerance(rtol=rtol, atol=atol)
    check_paths(
        files={"json": json_file, "html": html_file}, folders={}, read=[reference, candidate]
    )
    found = compare(reference, candidate, tolerance)
    if json_file is not None:
        write_text(json_file, trace_to_json(found))
    if html_file is not None:
        write_text(html_file, trace_page(found))
    for line in trace_lines(found):
        print(line)
    return found.exit_code


if __name__ == "__main__":
    run_command(compare_traces)
