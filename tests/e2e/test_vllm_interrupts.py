"""vLLM that is broken off: whoever is killed, nothing is left running, and the dump says so."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from comparison.store.dump import open_dump
from tests.child_processes import user_environment
from tests.tools.forked_commands import ForkedCommands, Run, session_of, wait_for

pytestmark = pytest.mark.full
ARGUMENTS = ("--framework", "vllm", "--pipeline", "tiny-random/llama", "--num-steps", "40")


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkedCommands]:
    server = ForkedCommands(user_environment(tmp_path_factory.mktemp("cache")))
    yield server
    server.close()


def run_to_its_second_step(commands: ForkedCommands, folder: Path) -> Run:
    run = commands.start(folder, *ARGUMENTS, "-o", "d")
    wait_for(folder / "d" / "1", seconds=400)
    return run


def check_nothing_is_left(run: Run, folder: Path) -> None:
    wait_for_end(run)
    manifest = open_dump(folder / "d").manifest
    assert manifest is not None
    assert not manifest.complete


def wait_for_end(run: Run) -> None:
    for _ in range(200):
        if not session_of(run.pid):
            return
        time.sleep(0.1)
    pytest.fail(f"still there: {session_of(run.pid)}")


@pytest.mark.parametrize("to_all", [True, False])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted(
    commands: ForkedCommands, tmp_path: Path, number: signal.Signals, to_all: bool
) -> None:
    run = run_to_its_second_step(commands, tmp_path)
    (os.killpg if to_all else os.kill)(run.pid, number)
    assert commands.wait(run) == 130
    errors = run.errors.read_text()
    assert errors.splitlines()[-1] == "interrupted"
    assert "Traceback" not in errors
    check_nothing_is_left(run, tmp_path)


def test_parent_that_is_killed_takes_its_worker_along(
    commands: ForkedCommands, tmp_path: Path
) -> None:
    run = run_to_its_second_step(commands, tmp_path)
    os.kill(run.pid, signal.SIGKILL)
    assert commands.wait(run) == -signal.SIGKILL
    check_nothing_is_left(run, tmp_path)


def test_worker_that_is_killed(commands: ForkedCommands, tmp_path: Path) -> None:
    run = run_to_its_second_step(commands, tmp_path)
    workers = [pid for pid in session_of(run.pid) if pid != run.pid]
    os.kill(workers[0], signal.SIGKILL)
    assert commands.wait(run) == 75
    assert (
        run.errors.read_text()
        .splitlines()[-1]
        .startswith("error: the vLLM worker was killed by SIGKILL")
    )
    check_nothing_is_left(run, tmp_path)
