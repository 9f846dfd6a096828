"""The pages of the commands, written as users have them written."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from comparison.store.max_file import write_max_file


def run(tool: str, *arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    environment["BUILD_WORKING_DIRECTORY"] = str(cwd)
    return subprocess.run(
        [sys.executable, "-m", f"tools.{tool}", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )


def runs_of(page: Path) -> list[dict[str, Any]]:
    """Read what a page is about."""
    block = re.search(r'<script type="application/json" id="runs">(.*?)</script>', page.read_text())
    assert block is not None
    runs: list[dict[str, Any]] = json.loads(block[1])
    return runs


@pytest.fixture
def dumps(tmp_path: Path) -> Path:
    for side, factor in (("a", 1.0), ("b", 1.25)):
        (tmp_path / side).mkdir()
        for name in ("embed", "mlp"):
            scale = np.float32(factor if name == "mlp" else 1.0)
            array = np.arange(1, 36, dtype=np.float32).reshape(5, 7) * scale
            write_max_file(tmp_path / side / f"{name}.max", array, key=name)
    return tmp_path


def test_report_writes_a_page_and_says_the_verdict(dumps: Path) -> None:
    done = run("report", "a", "b", cwd=dumps)
    assert (done.returncode, done.stderr) == (1, "")
    (found,) = runs_of(dumps / "report.html")
    first, second = done.stdout.splitlines()
    assert first == f"diverge: {found['sentence']}"
    assert second == "wrote report.html: 2 rows, 1 with details"
    assert "mlp" in found["sentence"]
    assert [row[2] for row in found["rows"]] == ["embed", "mlp"]


@pytest.mark.parametrize(("atol", "code", "verdict"), [("9", 0, "agree"), ("8", 1, "differ")])
def test_report_judges_by_a_tolerance(dumps: Path, atol: str, code: int, verdict: str) -> None:
    done = run("report", "a", "b", "--atol", atol, "-o", "page.html", cwd=dumps)
    assert (done.returncode, done.stderr) == (code, "")
    assert runs_of(dumps / "page.html")[0]["verdict"] == verdict


def test_report_of_a_dump_with_itself(dumps: Path) -> None:
    done = run("report", "a", "a", cwd=dumps)
    assert (done.returncode, done.stderr) == (0, "")
    (found,) = runs_of(dumps / "report.html")
    assert (found["verdict"], found["differing"], found["detailed"]) == ("agree", 0, 0)


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("none/page.html", "--output needs a file in a folder that exists"),
        ("a/page.html", "--output a/page.html would change what is read"),
    ],
)
def test_report_refuses_a_page_that_is_in_the_way(dumps: Path, output: str, message: str) -> None:
    done = run("report", "a", "b", "-o", output, cwd=dumps)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr


def test_compare_tensors_writes_the_same_text_and_a_page(dumps: Path) -> None:
    sides = ("--reference", "a", "--candidate", "b", "--atol", "8")
    alone = run("compare_tensors", *sides, cwd=dumps)
    done = run("compare_tensors", *sides, "--html", "page.html", cwd=dumps)
    assert (done.returncode, done.stdout, done.stderr) == (1, alone.stdout, "")
    (found,) = runs_of(dumps / "page.html")
    assert found["sentence"].startswith("The dumps differ, 1 of 2 pair(s) with rtol=0, atol=8")
    assert found["unit"] == "times the tolerance, at the worst element"


def test_compare_tensors_with_a_verdict_puts_it_on_the_page(dumps: Path) -> None:
    sides = ("--reference", "a", "--candidate", "b", "--verdict")
    done = run("compare_tensors", *sides, "--html", "page.html", cwd=dumps)
    assert done.returncode == 1
    assert runs_of(dumps / "page.html")[0]["sentence"] in done.stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--html", "a/page.html"], "--html a/page.html would change what is read, a"),
        (["--html", "x", "--json", "x"], "--json and --html are one file, x: give two"),
        (["--html", "none/x"], "--html needs a file in a folder that exists, got none/x"),
    ],
)
def test_compare_tensors_refuses(dumps: Path, options: list[str], message: str) -> None:
    done = run("compare_tensors", "--reference", "a", "--candidate", "b", *options, cwd=dumps)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr


def test_report_prints_no_control_characters_of_a_name(tmp_path: Path) -> None:
    for side, factor in (("a", 1.0), ("b", 1.25)):
        (tmp_path / side).mkdir()
        array = np.arange(1, 36, dtype=np.float32).reshape(5, 7) * np.float32(factor)
        np.save(tmp_path / side / "x\x1b[31m\u202ey-output.npy", array)
    done = run("report", "a", "b", "-o", "p\x1b[1mq.html", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (1, "")
    assert "\x1b" not in done.stdout
    assert "\u202e" not in done.stdout
    assert r"x\x1b[31m\u202ey" in done.stdout


def test_page_tells_the_shape_of_a_scalar(tmp_path: Path) -> None:
    for side, value in (("a", 2.0), ("b", 3.0)):
        (tmp_path / side).mkdir()
        np.save(tmp_path / side / "x-output.npy", np.float32(value))
    run("report", "a", "b", cwd=tmp_path)
    (found,) = runs_of(tmp_path / "report.html")
    (row,) = found["rows"]
    assert row[found["fields"].index("shapes")] == [[], []]
