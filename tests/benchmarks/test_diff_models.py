"""The benchmark runs, on a model too small to be worth measuring."""

import os
import subprocess
import sys

import pytest

from benchmarks.diff_models import WAYS, Size, measure

CULPRIT = "diverge, model.model.layers.1.self_attn"
OUTCOMES = {
    "forward": "logits",
    "dumps of both, compared": "88 pairs",
    "diff_models, a copy": "agree",
    "diff_models, a fault": CULPRIT,
    "diff_models in two passes, a fault": CULPRIT,
}


@pytest.mark.parametrize("way", WAYS)
def test_each_way_has_its_outcome_and_its_cost(way: str) -> None:
    cost = measure(way, Size(layers=2, hidden=192, tokens=12))
    assert cost.outcome == OUTCOMES[way]
    assert cost.seconds > 0
    assert cost.peak_bytes > 50 << 20


def test_a_row_is_printed_of_a_process_of_its_own() -> None:
    sizes = ["--layers", "2", "--hidden", "192", "--tokens", "12", "--way", "forward"]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.diff_models", *sizes],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    header, _, row = done.stdout.splitlines()
    assert header == "| way | seconds | forwards | peak memory, MiB | outcome |"
    assert row.startswith("| forward | ")
    assert row.endswith(" | logits |")
