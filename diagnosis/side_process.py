"""Runs a side in a process of its own, beside whatever this one does meanwhile."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from comparison.schema.errors import EngineError, TryAgainError
from diagnosis.side_job import DONE_FILE, GO, JOB_FILE, RUN, SideJob, read_error
from diagnosis.side_worker import LOCAL_TRANSFORMERS
from test_common.child_process import child_process, end_child, killing_signal
from test_common.local_transformers import is_offered
from test_common.progress import stage
from test_common.relayed_output import RelayedOutput

_MODULE = "diagnosis.side_worker"
# MAX sets these in its process; a child would look for its packages beside another interpreter.
_UNSET = ("PYTHONEXECUTABLE", "PYTHONHOME")
_PAUSE_SECONDS = 0.02
# For a process whose dump is there to end by itself: it may still write the engine's own caches.
_LEAVE_SECONDS = 20.0


class SideProcess:
    """A side that runs, or waits for its job.

    Its output is kept aside until `wait` shows it, so that the lines of two sides do not mix.
    """

    def __init__(
        self, engine: str, folder: Path, child: subprocess.Popen[bytes], output: RelayedOutput
    ) -> None:
        """Take what `side_process` made."""
        self._engine = engine
        self._folder = folder
        self._child = child
        self._output = output
        self.job: SideJob | None = None
        self.is_beside = True  # False where it only runs once the reference is done

    def give(self, job: SideJob) -> None:
        """Let it build the model; the dump is not begun before `go`.

        Raises:
            TypeError: the job holds values that are no JSON.
        """
        (self._folder / JOB_FILE).write_text(job.text(), encoding="utf-8")
        self.job = job
        self._send(RUN)

    def go(self) -> None:
        """Let it write its dump."""
        self._send(GO)

    def wait(self) -> None:
        """Show what it prints, until its dump is written.

        Raises:
            TryAgainError: a signal killed it.
            AccuracyToolsError: it failed; the error is the one that it raised itself.
        """
        with _clock(f"running the candidate on {self._engine}, in a process of its own"):
            while self._child.poll() is None and not self._is_done:
                self._output.show()
                time.sleep(_PAUSE_SECONDS)
            self._output.show(all_of_it=True)
        if not self._is_done:
            raise self._error()

    def end(self) -> None:
        """End it; its dump is not wanted."""
        end_child(self._child, own_group=True)

    def leave(self) -> None:
        """Wait until a process whose dump is written has ended."""
        if self._is_done:
            ends = time.monotonic() + _LEAVE_SECONDS
            while self._child.poll() is None and time.monotonic() < ends:
                time.sleep(_PAUSE_SECONDS)

    @property
    def _is_done(self) -> bool:
        return (self._folder / DONE_FILE).exists()

    def _send(self, line: bytes) -> None:
        assert self._child.stdin is not None  # it was asked for
        with suppress(BrokenPipeError):  # it ended early; `wait` says why
            self._child.stdin.write(line)
            self._child.stdin.flush()

    def _error(self) -> Exception:
        told = read_error(self._folder)
        if told is not None:
            return told
        code = self._child.wait()
        said = self._output.last_lines()
        last = f": {said[-1]}" if said else ""
        who = f"the process of the candidate on {self._engine}"
        signal_name = killing_signal(code)
        if signal_name is not None:
            return TryAgainError(
                f"{who} was killed by {signal_name}{last}; with --one-at-a-time less memory is "
                "needed at once"
            )
        return EngineError(f"{who} ended with exit code {code}{last}")


@contextmanager
def side_process(engine: str) -> Iterator[SideProcess]:
    """Start the process of a side, which imports its engine at once.

    The process and what it started end with the block, or with this process.

    Args:
        engine: one of the engines.

    Yields:
        The process.
    """
    with TemporaryDirectory(prefix="side-") as name:
        folder = Path(name)
        output = RelayedOutput(folder)
        with child_process(
            _command(folder, engine),
            environ=_environment(),
            stdin=subprocess.PIPE,
            stdout=output.stdout,
            stderr=output.stderr,
            own_group=True,
        ) as child:
            output.close()
            running = SideProcess(engine, folder, child, output)
            yield running
            running.leave()


def _command(folder: Path, engine: str) -> list[str]:
    command = [sys.executable, "-P", "-m", _MODULE, str(folder), engine, str(os.getpid())]
    return [*command, LOCAL_TRANSFORMERS] if is_offered() else command


def _environment() -> dict[str, str]:
    """Return the environment in which the child imports what this process imports."""
    kept = {name: value for name, value in os.environ.items() if name not in _UNSET}
    places = [str(Path(place).absolute()) for place in sys.path if place]
    return {**kept, "PYTHONPATH": os.pathsep.join(places), "PYTHONUNBUFFERED": "1"}


def _clock(text: str) -> AbstractContextManager[None]:
    """Show a clock on a terminal; elsewhere the child's own stages are lines enough."""
    seen = sys.stderr.isatty() and not os.environ.get("CI")
    return stage(text) if seen else nullcontext()
