"""Runs that are broken off: by Ctrl-C, by SIGTERM, by a dead worker, by another run, by a limit."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from comparison.store.dump import open_dump
from tests.child_processes import user_environment
from tests.tools.forked_commands import ForkedCommands, Run, session_of, wait_for

LLAMA = ("--framework", "torch", "--pipeline", "tiny-random/llama")
SIGNALS = (signal.SIGINT, signal.SIGTERM)
# The main thread waits in native code, where no handler of Python can run.
IN_NATIVE_CODE = """
libc, mutex = ctypes.CDLL(None), ctypes.create_string_buffer(64)
print("ready", flush=True)
libc.pthread_mutex_lock(mutex), libc.pthread_mutex_lock(mutex)
"""
CLEANS_UP = """
try:
    print("ready", flush=True)
    time.sleep(60)
finally:
    print("clean", flush=True)
"""
# As a library does that runs something in a fork: what is sent to that is not for us.
FORKS = """
child = os.fork()
if child == 0:
    time.sleep(60)
    os._exit(0)
os.kill(child, signal.SIGTERM)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM
print("ready", flush=True)
time.sleep(1)
"""
# An oracle whose model waits in its second step until a file is there.
WAITING = """
import time
from pathlib import Path
from tools.create_pipelines import PIPELINE_ORACLES, GenericOracle

class Waiting(GenericOracle):
    def create_torch_pipeline(self, **given):
        built = super().create_torch_pipeline(**given)
        usual = built.model.model.norm.forward
        def forward(x):
            while x.shape[1] == 1 and not Path("go").exists():
                time.sleep(0.01)
            return usual(x)
        built.model.model.norm.forward = forward
        return built

ORACLE = Waiting(
    PIPELINE_ORACLES["tiny-random/llama"].model_path, device_encoding_map={"cpu": ["float32"]}
)
"""


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkedCommands]:
    server = ForkedCommands(user_environment(tmp_path_factory.mktemp("cache")))
    yield server
    server.close()


def start(body: str) -> subprocess.Popen[str]:
    """Start a command whose function has this body, and wait until it says that it is ready."""
    code = (
        "import click, ctypes, os, signal, time\nfrom tools.entry_point import run_command\n"
        "@click.command()\ndef command():\n"
        + "".join(f"    {line}\n" for line in body.strip().splitlines())
        + "run_command(command)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def end_of(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def test_native_code_is_left_after_a_while() -> None:
    processes = [start(IN_NATIVE_CODE) for _ in SIGNALS]
    began = time.monotonic()
    for process, number in zip(processes, SIGNALS, strict=True):
        process.send_signal(number)
    assert [end_of(process) for process in processes] == [(130, "", "interrupted\n")] * 2
    assert 4 < time.monotonic() - began < 30


def test_second_signal_leaves_native_code_at_once() -> None:
    process = start(IN_NATIVE_CODE)
    process.send_signal(signal.SIGINT)
    time.sleep(0.2)
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    assert end_of(process) == (130, "", "interrupted\n")
    assert time.monotonic() - began < 4


@pytest.mark.parametrize("number", SIGNALS)
def test_signals_end_cleanly(number: signal.Signals) -> None:
    process = start(CLEANS_UP)
    process.send_signal(number)
    assert end_of(process) == (130, "clean\n", "interrupted\n")


def test_signal_of_a_fork_is_not_ours() -> None:
    assert end_of(start(FORKS)) == (0, "", "")


@pytest.mark.parametrize("number", SIGNALS)
def test_run_cut_off_between_steps_says_so(
    commands: ForkedCommands, tmp_path: Path, number: signal.Signals
) -> None:
    (tmp_path / "waiting.py").write_text(WAITING)
    arguments = ("--framework", "torch", "--oracle", "waiting.py", "--num-steps", "2", "-o", "d")
    run = commands.start(tmp_path, *arguments)
    wait_for(tmp_path / "d" / "1")
    os.killpg(run.pid, number)
    assert commands.wait(run) == 130
    assert run.errors.read_text() == "interrupted\n"
    manifest = open_dump(tmp_path / "d").manifest
    assert manifest is not None
    assert not manifest.complete


def test_any_moment_of_a_run(commands: ForkedCommands, tmp_path: Path) -> None:
    arguments = (*LLAMA, "--num-steps", "4", "--overwrite", "-o", "d")
    began = time.monotonic()
    assert commands.wait(commands.start(tmp_path, *arguments)) == 0
    whole = time.monotonic() - began
    random.seed(31)
    for number in SIGNALS * 4:
        run = commands.start(tmp_path, *arguments)
        time.sleep(random.uniform(0.02, whole))
        os.killpg(run.pid, number)  # as a terminal does
        code = commands.wait(run)
        errors = run.errors.read_text()
        ends = {130: ["interrupted"], 0: [], -number: []}  # the last one before our own code began
        assert errors.splitlines() == ends[code]
        assert session_of(run.pid) == {}
        assert not (tmp_path / "d" / ".lock").exists()
        manifest = open_dump(tmp_path / "d").manifest
        assert manifest is not None
        assert manifest.complete or code != 0
    assert commands.wait(commands.start(tmp_path, *arguments)) == 0
    assert json.loads((tmp_path / "d" / "manifest.json").read_text())["complete"] is True


def test_second_run_into_a_folder_is_refused(commands: ForkedCommands, tmp_path: Path) -> None:
    (tmp_path / "waiting.py").write_text(WAITING)
    arguments = ("--framework", "torch", "--oracle", "waiting.py", "--num-steps", "2", "-o", "d")
    first = commands.start(tmp_path, *arguments)
    wait_for(tmp_path / "d" / "1")
    for more in ((), ("--overwrite",)):
        second = commands.start(tmp_path, *arguments, *more)
        assert commands.wait(second) == 2
        (error,) = second.errors.read_text().splitlines()
        assert error.startswith("error: output folder d: another run is writing into it")
    (tmp_path / "go").touch()
    assert commands.wait(first) == 0
    assert open_dump(tmp_path / "d").manifest.complete  # type: ignore[union-attr]


def test_of_runs_that_start_together_one_writes(commands: ForkedCommands, tmp_path: Path) -> None:
    runs = [commands.start(tmp_path, *LLAMA, "-o", "d") for _ in range(4)]
    codes = [commands.wait(run) for run in runs]
    assert sorted(codes) == [0, 2, 2, 2]
    for code, run in zip(codes, runs, strict=True):
        assert code == 0 or "error: output folder d" in run.errors.read_text()
    manifest = open_dump(tmp_path / "d").manifest
    assert manifest is not None
    assert manifest.complete
    assert manifest.certificate is not None
    assert len((tmp_path / "d" / "0" / "tensor_names.txt").read_text().splitlines()) == (
        manifest.certificate.saved
    )


@pytest.mark.parametrize(
    ("script", "code", "line"),
    [
        ("kill -KILL $$", 75, "error: the vLLM worker was killed by SIGKILL"),
        ("kill -SEGV $$", 75, "error: the vLLM worker was killed by SIGSEGV"),
        ("exit 3", 2, "error: the vLLM worker failed: exit code 3"),
    ],
)
def test_worker_that_dies(
    commands: ForkedCommands, tmp_path: Path, script: str, code: int, line: str
) -> None:
    run = start_worker(commands, tmp_path, f"echo 'its last words' >&2; {script}")
    assert commands.wait(run) == code
    *_, words, last = run.errors.read_text().splitlines()
    assert words == "its last words"
    assert last.startswith(line)
    assert session_of(run.pid) == {}
    assert not (tmp_path / "d").exists()


@pytest.mark.parametrize("number", SIGNALS)
def test_worker_goes_with_its_parent(
    commands: ForkedCommands, tmp_path: Path, number: signal.Signals
) -> None:
    run = start_worker(commands, tmp_path, "touch started; exec sleep 600")
    wait_for(tmp_path / "started")
    os.kill(run.pid, number)  # to the parent alone
    assert commands.wait(run) == 130
    assert run.errors.read_text().splitlines()[-1] == "interrupted"
    assert session_of(run.pid) == {}


def start_worker(commands: ForkedCommands, folder: Path, script: str) -> Run:
    """Start a run on vLLM, with a script in the place of the Python that has vLLM."""
    program = folder / "python"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    arguments = ("--framework", "vllm", "--pipeline", "tiny-random/llama", "-o", "d")
    return commands.start(folder, *arguments, MODEL_ACCURACY_TOOLS_VLLM_PYTHON=str(program))
