"""The command, run as users run it, on traces of a tiny llama."""

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.comparison.traces.traced_llama import trace_llama


def run(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "BUILD_WORKING_DIRECTORY": str(cwd),
    }
    return subprocess.run(
        [sys.executable, "-m", "tools.compare_traces", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )


def test_equal_traces_exit_0_and_a_fault_exits_1_with_both_files(tmp_path: Path) -> None:
    trace_llama(tmp_path / "good")
    trace_llama(tmp_path / "bad", fault=True, prunes=True)
    done = run("good", "good", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Verdict: agree, all 157 values are within rtol=0, atol=0" in done.stdout

    done = run("good", "bad", "--json", "out.json", "--html", "out.html", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (1, "")
    gap = "between layer 0 and layer 3: layers 1..2 are absent from the candidate"
    assert f"It lies {gap}" in done.stdout
    assert json.loads((tmp_path / "out.json").read_text())["first"]["gap"] == gap
    assert gap in (tmp_path / "out.html").read_text()


def test_bad_input_exits_2_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"module_path": ["x"]}')
    (tmp_path / "b.json").write_text('{"module_path": "Net"}')
    for arguments, message in (
        (("a.json", "b.json"), "expected a text as module_path"),
        (("b.json", "b.json"), "no value of b.json is in b.json"),
        (("b.json", "none"), "found nothing at none"),
        (("b.json", "b.json", "--rtol", "-1"), "rtol must be a finite number"),
        (("b.json", "b.json", "--html", "b.json"), "would change what is read"),
        (("b.json",), "Missing argument 'B'"),
    ):
        done = run(*arguments, cwd=tmp_path)
        assert done.returncode == 2
        assert message in done.stderr
        assert "Traceback" not in done.stderr
