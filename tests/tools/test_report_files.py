"""--csv, --junit, --markdown and --table of the commands, and what GitHub is told."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from comparison.pipeline import CompareOptions, compare
from comparison.report.build_report import build_report
from comparison.schema.tolerance import Tolerance
from tools.report_files import ReportFiles


def run(folder: Path, *options: str, **environ: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([os.getcwd(), *sys.path])
    kept = {name: value for name, value in os.environ.items() if name != "GITHUB_ACTIONS"}
    sides = ("--reference", "a", "--candidate", "b")
    return subprocess.run(
        [sys.executable, "-m", "tools.compare_tensors", *sides, *options],
        cwd=folder,
        env={**kept, "PYTHONPATH": path, **environ},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture
def dumps(tmp_path: Path) -> Path:
    for side in ("a", "b"):
        (tmp_path / side).mkdir()
        for name in ("x-output", "y-output", "z-output"):
            array = np.arange(11, dtype="float32") + (side == "b" and name == "z-output")
            np.save(tmp_path / side / f"{name}.npy", array)
    return tmp_path


def test_every_form_is_written(dumps: Path) -> None:
    files = [f"--{form}={form}.txt" for form in ("csv", "junit", "markdown", "html", "json")]
    done = run(dumps, "--atol", "0.5", *files)
    assert done.returncode == 1, done.stderr
    assert "z-output" in done.stdout
    assert (dumps / "csv.txt").read_text().count("\n") == 4
    suites = ElementTree.parse(dumps / "junit.txt").getroot()
    assert (suites.attrib["tests"], suites.attrib["failures"]) == ("4", "2")
    assert "z\\-output" in (dumps / "markdown.txt").read_text()
    assert (dumps / "html.txt").read_text().startswith("<!")


def test_table_takes_the_place_of_the_text(dumps: Path) -> None:
    done = run(dumps, "--atol", "0.5", "--table")
    rows = [line for line in done.stdout.splitlines() if line.endswith(("agree", "differs"))]
    assert [row.split()[-1] for row in rows] == ["agree", "differs"]
    assert rows[1].startswith("▶")
    assert "\x1b" not in done.stdout
    assert "Greatest" not in done.stdout


def test_github_gets_an_annotation_where_something_is_wrong(dumps: Path) -> None:
    done = run(dumps, "--atol", "0.5", GITHUB_ACTIONS="true")
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("::error")]
    assert "z-output" in line
    done = run(dumps, "--atol", "2", GITHUB_ACTIONS="true")
    assert done.returncode == 0
    assert "::error" not in done.stdout


def test_files_that_collide_are_refused(dumps: Path) -> None:
    done = run(dumps, "--csv", "x", "--junit", "x")
    assert done.returncode == 2
    assert "are one file" in done.stderr
    assert not (dumps / "x").exists()


@pytest.mark.parametrize(
    ("environ", "is_colored"),
    [({}, True), ({"TERM": "dumb"}, False), ({"NO_COLOR": "1"}, False), ({"COLUMNS": "1"}, True)],
)
def test_table_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    dumps: Path,
    *,
    environ: dict[str, str],
    is_colored: bool,
) -> None:
    for name in ("NO_COLOR", "COLUMNS", "GITHUB_ACTIONS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"TERM": "xterm", **environ}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    options = CompareOptions(tolerance=Tolerance(atol=0.5))
    report = build_report(compare(dumps / "a", dumps / "b", options))
    nothing = {"html": None, "csv": None, "junit": None, "markdown": None}
    ReportFiles(**nothing, table=True).write([report])
    text = capsys.readouterr().out
    assert ("\x1b[" in text) is is_colored
    assert "z-output" in text
    assert "differs" in text


def test_candidates_of_one_name_are_told_apart(
    capsys: pytest.CaptureFixture[str], dumps: Path
) -> None:
    report = build_report(compare(dumps / "a", dumps / "b"))
    named = replace(report, candidate=replace(report.candidate, name="same\x1b"))
    files = {"html": None, "csv": dumps / "csv", "junit": dumps / "junit", "markdown": None}
    ReportFiles(**files, table=True).write([named, named])
    sides = {line.split(",")[0] for line in (dumps / "csv").read_text().splitlines()[1:]}
    assert sides == {r"same\x1b", r"same\x1b (2)"}
    suites = ElementTree.parse(dumps / "junit").getroot().iter("testsuite")
    assert len({suite.attrib["name"] for suite in suites}) == 2
    printed = capsys.readouterr().out
    assert [line for line in printed.splitlines() if line.endswith(":")] == [
        r"same\x1b:",
        r"same\x1b (2):",
    ]
