"""Runs under `ulimit -v`: a clear line, exit code 2, no traceback, nothing that looks complete."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from comparison.store.dump import open_dump
from tests.child_processes import user_environment

DEBUG_MODEL = "-m tools.debug_model --framework torch --pipeline tiny-random/llama -o d"
# In a process of its own, so that what ends it ends nothing else.
COMMAND = """
import click, ctypes, os, sys, time
from tools.entry_point import run_command
@click.command()
def command():
    {}
run_command(command)
"""


def limited(
    kilobytes: int | str, arguments: str, folder: Path, *, script: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run Python in a folder under a limit, as a user does in a shell."""
    shell = f'ulimit -c 0; ulimit -v {kilobytes}; exec "$0" -P {arguments} ${{1:+-c "$1"}}'
    return subprocess.run(
        ["bash", "-c", shell, sys.executable, *([script] if script else [])],
        cwd=folder,
        env=user_environment(folder / "cache", OPENBLAS_NUM_THREADS="1"),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


# Too little for numpy; for Torch's libraries, which is an error of Python; for what they do next,
# which is an exception of C++ that nobody takes.
@pytest.mark.parametrize(
    "kilobytes", [90_000, 300_000, pytest.param(600_000, marks=pytest.mark.full)]
)
def test_too_little_memory(kilobytes: int, tmp_path: Path) -> None:
    done = limited(kilobytes, DEBUG_MODEL, tmp_path)
    assert done.returncode == 2, done
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1] == (
        "error: there is not enough memory for this run: the address space is limited to "
        f"{kilobytes * 1024 / 1e9:.3g} GB (ulimit -v)"
    )
    assert not (tmp_path / "d").exists()


@pytest.mark.full
@pytest.mark.parametrize("kilobytes", [*range(700_000, 1_300_000, 100_000), 3_000_000])
def test_little_memory_is_enough_or_said_to_be_too_little(kilobytes: int, tmp_path: Path) -> None:
    done = limited(kilobytes, DEBUG_MODEL, tmp_path)
    assert "Traceback" not in done.stderr
    manifest = open_dump(tmp_path / "d").manifest if (tmp_path / "d").exists() else None
    if done.returncode == 0:
        assert manifest is not None
        assert manifest.complete
    else:
        assert done.returncode == 2, done
        assert "error: " in done.stderr.splitlines()[-1]
        assert manifest is None or not manifest.complete
        assert kilobytes < 3_000_000


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("return 1", 1),
        ("raise click.UsageError('x')", 2),
        ("1 / 0", 70),
        ("os.abort()", 2),
        ("ctypes.string_at(0)", 2),
        ("os._exit(1)", 2),  # as native code ends a process, OpenBLAS for one
        ("os.kill(os.getpid(), 9)", -signal.SIGKILL),  # a killer has its own reasons
        ("os.kill(os.getpid(), 15); time.sleep(9)", 130),
        ("os.kill(os.getppid(), 15); time.sleep(9)", 130),
        ("bytearray(10**10)", 2),
        (
            "__import__('threading').stack_size(2**31 - 4096); "
            "__import__('threading').Thread(target=int).start()",
            2,
        ),
    ],
)
def test_end_of_the_child_is_that_of_the_command(body: str, code: int, tmp_path: Path) -> None:
    done = limited(1_000_000, "", tmp_path, script=COMMAND.format(body))
    assert done.returncode == code, done
    if code == 2 and "UsageError" not in body:
        assert done.stderr.splitlines()[-1].endswith("limited to 1.02 GB (ulimit -v)")
    if code == 130:
        assert done.stderr == "interrupted\n"


def test_without_a_limit_there_is_no_child(tmp_path: Path) -> None:
    script = COMMAND.format("print(os.getppid())")
    done = limited("unlimited", "", tmp_path, script=script)
    assert done.stdout == f"{os.getpid()}\n"  # the shell has become the command
