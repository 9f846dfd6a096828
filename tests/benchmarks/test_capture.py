"""The benchmark runs, on a model too small to be worth measuring."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.call_tree import make_model
from benchmarks.capture import (
    BARE,
    DEBUGGER,
    FORWARD,
    OURS,
    RAW,
    RAW_FILES,
    SAVE_HOOKS,
    Rounds,
    measure,
    probe_row,
)

WAYS = [FORWARD, RAW, RAW_FILES, BARE, *OURS, SAVE_HOOKS, DEBUGGER]


def test_each_way_is_measured_in_each_round(tmp_path: Path) -> None:
    model, inputs = make_model(layers=1, hidden=192, tokens=11)
    rounds = measure(model, inputs, rounds=2, folder=tmp_path)
    assert list(rounds.seconds) == WAYS
    for seconds in rounds.seconds.values():
        assert len(seconds) == 2
        assert all(second > 0 for second in seconds)
    # The embeddings, among others; an alias is no further tensor.
    assert rounds.size_bytes > 11 * 8000 * 4
    assert 10 < rounds.tensors < 40
    assert list(tmp_path.iterdir()) == []


def test_what_is_added_is_told_in_forwards_and_raw_writes() -> None:
    way = next(iter(OURS))
    rounds = Rounds(seconds={FORWARD: [1.0, 2.0], RAW: [0.5, 1.0], way: [1.5, 3.0]})
    rounds.seconds[RAW_FILES] = [0.25, 2.0]
    assert rounds.forwards(way) == pytest.approx([1.5, 1.5])
    assert rounds.raw_writes(way) == pytest.approx([1.0, 1.0])
    assert rounds.raw_writes(way, RAW_FILES) == pytest.approx([2.0, 0.5])


def test_a_row_is_printed_for_each_way(tmp_path: Path) -> None:
    sizes = ["--layers", "1", "--hidden", "192", "--tokens", "9", "--rounds", "1"]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.capture", *sizes, "--folder", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    told, _, header, rule, *rows = done.stdout.splitlines()
    assert "unique tensors" in told
    assert header.count("|") == rule.count("|") == 8
    assert [row.split(" | ")[0] for row in rows] == [f"| {way}" for way in WAYS]


def test_a_probe_that_is_not_installed_is_told_in_its_row(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 'no module msprobe' >&2\nexit 3\n")
    python.chmod(0o755)
    row = probe_row(python, task="statistics", level="L0", sizes={"rounds": 1})
    assert row == "| L0 statistics | failed: no module msprobe | - | - |"
