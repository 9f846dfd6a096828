"""The benchmark runs, on a model too small to be worth measuring."""

import os
import subprocess
import sys

import pytest

from benchmarks.call_tree import Added, make_model, measure


@pytest.mark.parametrize("use_repr", [True, False])
def test_each_way_is_measured_in_each_round(use_repr: bool) -> None:
    model, inputs = make_model(layers=3, hidden=192, tokens=12)
    added = measure(model, inputs, use_repr=use_repr, prunes=True, rounds=2)
    for column in (added.forward, added.theirs, added.ours):
        assert len(column) == 2
        assert all(seconds > 0 for seconds in column)


def test_share_is_the_median_of_what_is_added() -> None:
    added = Added(
        use_repr=True,
        prunes=True,
        forward=[1.0, 2.0, 1.0],
        theirs=[3.0, 4.0, 11.0],
        ours=[1.5, 3.0, 2.0],
    )
    assert added.share == pytest.approx(0.25)


def test_a_row_is_printed_for_each_mode() -> None:
    sizes = ["--layers", "2", "--hidden", "192", "--tokens", "12", "--rounds", "1"]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.call_tree", *sizes],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    header, rule, *rows = done.stdout.splitlines()
    assert header.count("|") == rule.count("|") == 7
    assert [row.split(" | ")[:2] for row in rows] == [
        ["| text", "pruned"],
        ["| text", "all"],
        ["| files", "pruned"],
        ["| files", "all"],
    ]
