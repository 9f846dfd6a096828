"""The benchmark runs, on a model too small to be worth measuring."""

import os
import subprocess
import sys

from benchmarks.call_tree import make_model
from benchmarks.sketches import WAYS, measure


def test_each_way_is_measured_in_each_round() -> None:
    model, inputs = make_model(layers=2, hidden=192, tokens=12)
    found = measure(model, inputs, rounds=2)
    assert list(found) == ["plain forward", *WAYS]
    for taken in found.values():
        assert len(taken.seconds) == len(taken.shares) == 2
        assert all(seconds > 0 for seconds in taken.seconds)
    assert set(found["plain forward"].shares) == {1.0}
    assert 0 < found["stats"].size_bytes < found["sketch"].size_bytes < found["full"].size_bytes


def test_a_row_is_printed_for_each_way() -> None:
    sizes = ["--layers", "1", "--hidden", "192", "--tokens", "12", "--rounds", "1"]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.sketches", *sizes],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    header, rule, *rows = done.stdout.splitlines()
    assert header.count("|") == rule.count("|") == 7
    assert [row.split(" | ")[0].removeprefix("| ") for row in rows] == ["plain forward", *WAYS]
