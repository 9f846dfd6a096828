"""Says what changed between two results: which faults are fixed, new, moved or unchanged."""

from __future__ import annotations

from pathlib import Path

import click

from tools.entry_point import run_command
from tools.output_paths import check_paths
from tools.path_type import PathType


@click.command(
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="\b\n"
    "compare_reports yesterday.json today.json\n"
    "compare_reports main.json branch.json --json changes.json\n\n"
    "Exit codes: 0 nothing new, 1 a fault is new or has moved, 2 bad input, or too little was "
    "checked again. See docs/compare_reports.md.",
)
@click.argument("old", type=PathType())
@click.argument("new", type=PathType())
@click.option("--json", "json_file", type=PathType(), help="Write the result to this file as well.")
def compare_reports(*, old: Path, new: Path, json_file: Path | None) -> int:
    """Compare two files that --json of diff_models or compare_tensors wrote, OLD and NEW."""
    from comparison.history.fault_history import fault_history
    from comparison.history.saved_result import read_result
    from comparison.report.history_json import history_to_json
    from comparison.report.history_text import history_lines
    from comparison.store.atomic_file import write_text

    check_paths(files={"json": json_file}, folders={}, read=[old, new])
    history = fault_history(read_result(old), read_result(new))
    if json_file is not None:
        write_text(json_file, history_to_json(history))
    for line in history_lines(history):
        print(line)
    return history.exit_code


if __name__ == "__main__":
    run_command(compare_reports)
