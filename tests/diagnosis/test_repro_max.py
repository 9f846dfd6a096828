"""`repro.py --engine max`: MAX's own layers on the recorded inputs, in a process of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.diagnosis.planted_repros import (
    Plant,
    embedding,
    epsilon,
    gelu,
    run_script,
    transposed,
    written_as_of_max,
)


@pytest.mark.full
@pytest.mark.parametrize("plant", [epsilon, transposed, embedding, gelu])
def test_max_computes_the_layer_by_itself(plant: Plant, tmp_path: Path) -> None:
    folder = written_as_of_max(plant, tmp_path)
    assert (
        "`python repro.py --engine max` runs MAX's own layer" in (folder / "REPORT.md").read_text()
    )
    recorded = run_script(folder)
    assert recorded.returncode == 1, recorded.stderr
    done = run_script(folder, "--engine", "max")
    assert done.returncode == 0, done.stdout + done.stderr
    last = done.stdout.splitlines()[-1]
    assert last.startswith("MAX's own layer: max abs error ")
    assert last.endswith("-> is right")
