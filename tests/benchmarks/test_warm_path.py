"""The benchmark of the warm path takes its figures as it says; MAX itself is run by hand."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from benchmarks.warm_path import Timed, measure, ratio, run_engine


def test_a_ratio_is_of_the_slower_engine_of_each_round() -> None:
    engines = [
        Timed(way="torch", seconds=(2.0, 8.0, 1.0)),
        Timed(way="max", seconds=(4.0, 4.0, 4.0)),
    ]
    second = Timed(way="second", seconds=(6.0, 6.0, 4.0))
    assert ratio(second, [*engines, second]) == 1.0  # of 1.5, 0.75 and 1.0


def test_an_engine_by_itself_generates_on_the_pipeline() -> None:
    run_engine("torch", "tiny-random/llama")


def test_all_ways_take_turns_and_a_first_diagnosis_finds_no_reference(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[tuple[str, bool]] = []

    def run(command: list[str], *, env: dict[str, str], **how: Any) -> Any:
        del how
        references = Path(env["XDG_CACHE_HOME"]) / "model_accuracy_tools" / "references"
        seen.append((" ".join(command[2:]), references.exists()))
        if "tools.diff_models" in command:
            references.mkdir(parents=True, exist_ok=True)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", run)
    found = measure("tiny-random/llama", rounds=2)
    assert [timed.way for timed in found] == ["torch", "max", "first", "second", "side by side"]
    assert [len(timed.seconds) for timed in found] == [2] * 5
    diagnosis = "tools.diff_models --pipeline tiny-random/llama --reference torch --candidate max"
    assert seen[5:10] == [
        ("benchmarks.warm_path --engine torch --pipeline tiny-random/llama", True),
        ("benchmarks.warm_path --engine max --pipeline tiny-random/llama", True),
        (diagnosis, False),
        (diagnosis, True),
        (f"{diagnosis} --side-by-side", True),
    ]
    assert len(seen) == 15


def test_a_way_that_fails_ends_the_benchmark(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = subprocess.CompletedProcess([], 2, "", "error: no such engine")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(SystemExit, match="no such engine"):
        measure("tiny-random/llama", rounds=1)
