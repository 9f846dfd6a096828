"""The notebook runs, and shows what it prints."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.child_processes import ROOT, user_environment

NOTEBOOK = ROOT / "docs" / "notebooks" / "intermediate_tensors.ipynb"


def shown(numbers: set[int]) -> dict[int, str]:
    """Return the outputs that are stored in the notebook."""
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    return {
        number: "".join(line for out in cells[number]["outputs"] for line in out["text"])
        for number in numbers
    }


def run(cache: Path, *arguments: str) -> dict[int, str]:
    """Run the notebook in its own folder and process."""
    runner = Path(__file__).with_name("notebook.py")
    result = subprocess.run(
        [sys.executable, str(runner), str(NOTEBOOK), *arguments],
        cwd=NOTEBOOK.parent,
        env=user_environment(cache),
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    printed = json.loads(result.stdout.splitlines()[-1])
    return {int(number): text for number, text in printed.items()}


def test_torch_cells_print_what_is_shown(tmp_path: Path) -> None:
    printed = run(tmp_path)
    assert len(printed) >= 5
    assert printed == shown(set(printed))


@pytest.mark.full
def test_all_cells_print_what_is_shown(tmp_path: Path) -> None:
    printed = run(tmp_path, "--max")
    assert any("tensors will be printed" in text for text in printed.values())
    assert printed == shown(set(printed))
