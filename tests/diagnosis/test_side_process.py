"""A side in a process of its own: what it prints, how it fails, and that it never stays behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from comparison.schema.errors import BadInputError, EngineError, TryAgainError
from comparison.store.dump import open_dump
from diagnosis.side_job import SideJob
from diagnosis.side_process import SideProcess, side_process
from diagnosis.side_runs import RunOptions
from diagnosis.sides import EngineSide
from test_common.relayed_output import RelayedOutput

_NO_ENGINE = "none"  # to import: these sides end before they need one


def give(process: SideProcess, folder: Path, oracle: str, *, run: RunOptions | None = None) -> None:
    """Let a process run the oracle of a file with this content."""
    file = folder / "mine.py"
    file.write_text(oracle)
    spec = EngineSide(engine="torch", oracle=str(file))
    process.give(SideJob(spec=spec, output=folder / "candidate", run=run or RunOptions()))


def test_a_job_comes_back_as_it_was_written(tmp_path: Path) -> None:
    run = RunOptions(
        prompts=("a", (1, 5)),
        filter=("*.mlp",),
        ops=("x",),
        num_hidden_layers=2,
        hf_config_overrides={"rope": {"theta": 2.0}},
        seed=3,
    )
    job = SideJob(spec=EngineSide(engine="max", oracle="a.py:B"), output=tmp_path / "out", run=run)
    (tmp_path / "job.json").write_text(job.text())
    assert SideJob.read(tmp_path) == job


def test_a_side_is_run_and_its_output_shown_once_it_is_waited_for(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    oracle = (
        "import sys, warnings\n"
        "from oracles.registry import find_oracle\n"
        "ORACLE = find_oracle('tiny-random/llama')\n"
        "print('to stdout')\n"
        "print('to stderr', file=sys.stderr)\n"
        "warnings.warn('of the oracle')\n"
    )
    run = RunOptions(prompts=((5, 7, 9), (8, 3)), num_steps=2)
    with side_process(_NO_ENGINE) as process:
        give(process, tmp_path, oracle, run=run)
        process.go()
        assert capfd.readouterr() == ("", "")
        process.wait()
    shown = capfd.readouterr()
    assert shown.out.startswith("to stdout\n")
    assert "Model class:" in shown.out
    assert "to stderr\n" in shown.err
    assert "warning: of the oracle\n" in shown.err
    manifest = open_dump(tmp_path / "candidate").manifest
    assert manifest is not None
    assert manifest.complete
    assert [row.token_ids for row in manifest.rows] == [(5, 7, 9), (8, 3)]


def test_an_error_is_raised_as_what_it_was(tmp_path: Path) -> None:
    with side_process(_NO_ENGINE) as process:
        give(process, tmp_path, "raise ValueError('boom')\n")
        with pytest.raises(BadInputError, match=r"mine\.py.*boom"):
            process.wait()


def test_a_fault_shows_the_last_lines(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    oracle = "import os, sys\nprint('the last line', file=sys.stderr, flush=True)\nos._exit(9)\n"
    with side_process(_NO_ENGINE) as process:
        give(process, tmp_path, oracle)
        with pytest.raises(EngineError, match="ended with exit code 9: the last line"):
            process.wait()
    assert "the last line" in capfd.readouterr().err


@pytest.mark.parametrize(("number", "name"), [(9, "SIGKILL"), (40, "signal 40")])
def test_a_killed_process_may_be_tried_again(tmp_path: Path, number: int, name: str) -> None:
    with side_process(_NO_ENGINE) as process:
        give(process, tmp_path, f"import os\nos.kill(os.getpid(), {number})\n")
        with pytest.raises(TryAgainError, match=rf"{name}.*--one-at-a-time"):
            process.wait()


def test_an_oracle_that_reads_stdin_takes_no_line_of_ours(tmp_path: Path) -> None:
    oracle = "import sys\nassert sys.stdin.read() == ''\nraise ValueError('read to its end')\n"
    with side_process(_NO_ENGINE) as process:
        give(process, tmp_path, oracle)
        process.go()
        with pytest.raises(BadInputError, match="read to its end"):
            process.wait()


def test_of_an_endless_last_line_the_beginning_is_told(tmp_path: Path) -> None:
    output = RelayedOutput(tmp_path)
    output.stderr.write(b"first\n" + b"x" * 9_999_999)
    output.close()
    assert output.last_lines() == ["x" * 400]


_SLEEPS = """
import os, subprocess, sys, time
from pathlib import Path
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
Path("{pids}").write_text(f"{{os.getpid()}} {{child.pid}}")
time.sleep(600)
"""


def pids_in(file: Path) -> list[int]:
    ends = time.monotonic() + 60
    while time.monotonic() < ends:
        if file.exists() and len(found := file.read_text().split()) == 2:
            return [int(pid) for pid in found]
        time.sleep(0.02)
    raise AssertionError("it did not start")


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"  # ended, and not asked for yet


def all_end(pids: list[int]) -> bool:
    ends = time.monotonic() + 30
    while time.monotonic() < ends and any(map(is_running, pids)):
        time.sleep(0.02)
    return not any(map(is_running, pids))


def test_what_a_process_started_goes_with_it_on_ctrl_c(tmp_path: Path) -> None:
    pids: list[int] = []

    def interrupted() -> None:
        with side_process(_NO_ENGINE) as process:
            give(process, tmp_path, _SLEEPS.format(pids=tmp_path / "pids"))
            pids.extend(pids_in(tmp_path / "pids"))
            assert all(map(is_running, pids))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert all_end(pids)


_PARENT = """
import sys, time
from pathlib import Path
from diagnosis.side_process import side_process
from tests.diagnosis.test_side_process import _SLEEPS, give
folder = Path(sys.argv[1])
with side_process("none") as process:
    give(process, folder, _SLEEPS.format(pids=folder / "pids"))
    time.sleep(600)
"""


def test_a_process_does_not_outlive_a_parent_that_is_killed(tmp_path: Path) -> None:
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    parent = subprocess.Popen([sys.executable, "-c", _PARENT, str(tmp_path)], env=environ)
    pids = pids_in(tmp_path / "pids")
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    try:
        assert all_end(pids[:1])
    finally:
        for pid in filter(is_running, pids):  # what it started itself, in this test
            os.kill(pid, signal.SIGKILL)


def test_a_process_that_gets_no_job_ends_by_itself(tmp_path: Path) -> None:
    began = time.monotonic()
    with side_process(_NO_ENGINE) as process:
        process.end()
    assert time.monotonic() - began < 30
