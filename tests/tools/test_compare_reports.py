"""The command: what it prints, writes and exits with."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from tools.compare_reports import compare_reports
from tools.compare_tensors import compare_tensors
from tools.entry_point import run_command


def run(monkeypatch: pytest.MonkeyPatch, command: object, *arguments: object) -> int:
    monkeypatch.setattr(sys, "argv", ["command", *map(str, arguments)])
    with pytest.raises(SystemExit) as exit_info:
        run_command(command)  # type: ignore[arg-type]
    assert isinstance(exit_info.value.code, int)
    return exit_info.value.code


def result(monkeypatch: pytest.MonkeyPatch, folder: Path, *, wrong: str) -> Path:
    folder.mkdir()
    for side in ("a", "b"):
        (folder / side).mkdir()
        for name in ("x-output", "y-output"):
            array = np.arange(5, dtype="float32") + (side == "b" and name == wrong)
            np.save(folder / side / f"{name}.npy", array)
    file = folder / "result.json"
    sides = ("--reference", folder / "a", "--candidate", folder / "b")
    code = run(monkeypatch, compare_tensors, *sides, "--atol", "0.1", "--json", file)
    assert code == bool(wrong)
    return file


def test_faults_of_two_files(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    old = result(monkeypatch, tmp_path / "old", wrong="x-output")
    new = result(monkeypatch, tmp_path / "new", wrong="y-output")
    good = result(monkeypatch, tmp_path / "good", wrong="")
    capsys.readouterr()
    written = tmp_path / "changes.json"
    assert run(monkeypatch, compare_reports, old, new, "--json", written) == 1
    said = capsys.readouterr().out
    assert said.startswith("Faults: 1 new, 1 fixed\nVerdict: differ, then differ\n")
    changes = json.loads(written.read_text())
    assert [fault["tensor"] for fault in changes["added"]] == ["y-output (step 0)"]
    assert run(monkeypatch, compare_reports, old, good) == 0
    assert "1 fixed" in capsys.readouterr().out
    assert run(monkeypatch, compare_reports, good, old) == 1


def test_bad_input_is_one_line_and_two(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    good = result(monkeypatch, tmp_path / "good", wrong="")
    capsys.readouterr()
    assert run(monkeypatch, compare_reports, good, tmp_path / "none.json") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "none.json" in line
    assert run(monkeypatch, compare_reports, good, good, "--json", good) == 2
    assert json.loads(good.read_text())["verdict"] == "agree"
