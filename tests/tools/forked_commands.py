"""Runs debug_model in real processes that need no import of their own, many in a few seconds.

A server imports Torch and transformers once and forks. The children are processes like any other:
they have streams, a folder and an environment of their own, and get real signals.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_SERVER = """
import json, os, signal, sys
import torch, transformers
import test_common.capture_torch, test_common.debug_run, transformers.models.llama.modeling_llama
import test_common.vllm_environment
test_common.vllm_environment._PROGRAM = "none of Bazel's"  # so that a Python that is named counts
from oracles.registry import find_oracle
from test_common.prompts import encode_prompts
from tools.debug_model import debug_model
from tools.entry_point import run_command
encode_prompts(find_oracle("tiny-random/llama").model_path, ["warm"])

def become(job):
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # until the command has a handler of its own
    os.chdir(job["folder"])
    os.environ.update(job["environment"])
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(job[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.setsid()
    sys.argv = ["debug_model", *job["arguments"]]
    run_command(debug_model)

print("ready", flush=True)
for line in sys.stdin:
    job = json.loads(line)
    if "pid" in job:
        print(os.waitstatus_to_exitcode(os.waitpid(job["pid"], 0)[1]), flush=True)
        continue
    pid = os.fork()
    if pid == 0:
        become(job)
    print(pid, flush=True)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A command that was started.

    Attributes:
        pid: of its process, which leads a session of its own.
        errors: the file of its standard error.
    """

    pid: int
    errors: Path


class ForkedCommands:
    """The server."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._server = subprocess.Popen(
            [sys.executable, "-P", "-c", _SERVER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**environment, "OMP_NUM_THREADS": "1", "CI": "1"},
        )
        assert self._line() == "ready"
        self._started = 0

    def start(self, folder: Path, *arguments: str, **environment: str) -> Run:
        """Start `debug_model` with these arguments in a folder."""
        self._started += 1
        errors = folder / f"err{self._started}"
        job = {"folder": str(folder), "arguments": arguments, "environment": environment}
        job |= {"out": str(folder / f"out{self._started}"), "err": str(errors)}
        return Run(pid=int(self._ask(job)), errors=errors)

    def wait(self, run: Run) -> int:
        """Return the exit code of a run, or minus the signal that killed it."""
        return int(self._ask({"pid": run.pid}))

    def close(self) -> None:
        """End the server."""
        assert self._server.stdin is not None
        self._server.stdin.close()
        assert self._server.wait(30) == 0

    def _ask(self, job: Mapping[str, Any]) -> str:
        assert self._server.stdin is not None
        self._server.stdin.write(json.dumps(job) + "\n")
        self._server.stdin.flush()
        return self._line()

    def _line(self) -> str:
        assert self._server.stdout is not None
        return self._server.stdout.readline().strip()


def session_of(leader: int) -> dict[int, str]:
    """Return the command lines of what runs in the session of a process, by process id."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, *fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(fields[2]) == leader and state != "Z":
                command = (folder / "cmdline").read_text()
                found[int(folder.name)] = command.replace("\0", " ")
        except OSError:  # it has ended
            continue
    return found


def wait_for(path: Path, *, seconds: float = 60) -> None:
    """Wait until a file or folder is there."""
    until = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < until, f"{path} did not come to be"
        time.sleep(0.005)
