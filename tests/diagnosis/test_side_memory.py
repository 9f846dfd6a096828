"""Whether two sides fit into memory at once."""

from pathlib import Path
from typing import Any

import pytest

from diagnosis import side_memory
from diagnosis.side_memory import available_bytes, memory_problem
from oracles.generic_oracle import GenericOracle


def oracle_of(folder: Path, *, size: int) -> GenericOracle:
    folder.mkdir()
    with (folder / "model.safetensors").open("wb") as file:
        file.truncate(size)  # takes no room
    return GenericOracle(str(folder), device_encoding_map={"cpu": ["float32"]})


@pytest.mark.parametrize(("size", "fits"), [(10**6, True), (3 * 10**9, False)])
def test_two_copies_a_side_have_to_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, fits: bool
) -> None:
    monkeypatch.setattr(side_memory, "available_bytes", lambda: 10 * 10**9)
    problem = memory_problem(oracle_of(tmp_path / "model", size=size), sides=2)
    assert (problem is None) is fits
    if problem is not None:
        assert "16.0 GB" in problem
        assert "10.0 GB are free" in problem


def test_a_model_that_is_not_here_yet_is_run_by_itself() -> None:
    oracle = GenericOracle("nobody/not-here", device_encoding_map={"cpu": ["float32"]})
    problem = memory_problem(oracle, sides=2)
    assert problem is not None
    assert "not known" in problem


def test_a_lower_limit_of_the_control_group_counts(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 100 kB\nMemAvailable:    50 kB\n")
    given: dict[str, Any] = {"meminfo": meminfo, "cgroup": tmp_path}
    assert available_bytes(**given) == 50 * 1024
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text("1000\n")
    assert available_bytes(**given) == 50 * 1024
    (tmp_path / "memory.max").write_text("3000\n")
    assert available_bytes(**given) == 2000
    assert available_bytes(meminfo=tmp_path / "none", cgroup=tmp_path) is None
