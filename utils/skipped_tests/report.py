"""Writes scans as text and as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from utils.command import ensure_folder, whole_file
from utils.skipped_tests.scan import TestScan
from utils.skipped_tests.states import State


def scan_json(scan: TestScan) -> dict[str, Any]:
    """Turn a scan into its entry in the JSON file; every entry has the same keys."""
    return {
        "origin": scan.test.origin,
        "models_ran": scan.rows(State.RAN),
        "models_skipped": scan.rows(State.SKIPPED),
        "skipped_proportion": round(scan.skipped_proportion, 4),
        "reasons_skipped": _reasons(scan, State.SKIPPED),
        "models_conditional": scan.rows(State.CONDITIONAL),
        "reasons_conditional": _reasons(scan, State.CONDITIONAL),
        "models_empty": scan.rows(State.EMPTY),
        "models_not_applicable": scan.rows(State.NOT_APPLICABLE),
    }


def write_scans(scans: list[TestScan], folder: Path, name: str) -> Path:
    """Write scans by the tests' names into a JSON file, and return its path.

    Raises:
        BadInputError: the file cannot be written.
    """
    path = ensure_folder(folder) / name
    text = json.dumps({scan.test.name: scan_json(scan) for scan in scans}, indent=2)
    with whole_file(path) as file:
        file.write(f"{text}\n".encode())
    return path.resolve()


def scan_text(scan: TestScan) -> str:
    """Write one scan for the console."""
    skipped = _reasons(scan, State.SKIPPED)
    ran = scan.rows(State.RAN)
    total = len(ran) + len(skipped)
    lines = [
        f"\n== {scan.test.name} ==\n",
        f"Ran    : {len(ran)}/{total}",
        f"Skipped : {len(skipped)}/{total} ({scan.skipped_proportion:.1%})",
        *(f" - {reason}" for reason in skipped),
    ]
    for title, found in (
        ("Conditional", _reasons(scan, State.CONDITIONAL)),
        ("Overridden without a body", scan.rows(State.EMPTY)),
    ):
        lines += [f"{title} : {len(found)}", *(f" - {line}" for line in found)] if found else []
    not_applicable = scan.rows(State.NOT_APPLICABLE)
    if not_applicable:
        lines.append(f"Not applicable : {len(not_applicable)} ({', '.join(not_applicable)})")
    return "\n".join(lines)


def _reasons(scan: TestScan, state: State) -> list[str]:
    return [f"{name}: {scan.outcomes[name].reason}" for name in scan.rows(state)]
