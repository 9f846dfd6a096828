"""Child processes that end when the run that needs them ends, however that ends."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import IO

GRACE_SECONDS = 10
_PR_SET_PDEATHSIG = 1  # of linux/prctl.h


@contextmanager
def child_process(
    command: Sequence[str],
    *,
    environ: Mapping[str, str] | None = None,
    stdin: int | None = None,
    stdout: IO[bytes] | None = None,
    stderr: IO[bytes] | None = None,
    own_group: bool = False,
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command beside this process for the time of the block.

    What still runs at the end of the block, or when something is raised in it, is ended.

    Args:
        command: the program and its arguments.
        environ: its environment, by default ours.
        stdin: as subprocess takes it; by default ours.
        stdout: where its output goes, by default to ours.
        stderr: the same for its errors.
        own_group: whether it is out of reach of the terminal's Ctrl-C, which comes to this process
            alone then; what it has started itself is ended together with it.

    Yields:
        The process.
    """
    child = subprocess.Popen(
        command,
        env=None if environ is None else dict(environ),
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        process_group=0 if own_group else None,
    )
    try:
        yield child
    finally:
        end_child(child, own_group=own_group)


def end_child(
    child: subprocess.Popen[bytes], *, own_group: bool = False, grace_seconds: float = GRACE_SECONDS
) -> None:
    """End a child if it still runs: ask first, and kill it when it does not go.

    Args:
        child: the process.
        own_group: whether it leads a group of processes, which all go.
        grace_seconds: how long it may take.
    """
    if child.stdin is not None:
        with suppress(BrokenPipeError):  # it may have gone already
            child.stdin.close()
    if child.poll() is None:
        _send(child, signal.SIGTERM, own_group=own_group)
        try:
            child.wait(grace_seconds)
        except subprocess.TimeoutExpired:
            _send(child, signal.SIGKILL, own_group=own_group)
            child.wait()
    if own_group:  # what it left behind
        _send(child, signal.SIGKILL, own_group=True)


def _send(child: subprocess.Popen[bytes], number: signal.Signals, *, own_group: bool) -> None:
    with suppress(ProcessLookupError):  # it went by itself
        if own_group:
            os.killpg(child.pid, number)
        else:
            child.send_signal(number)


def killing_signal(code: int) -> str | None:
    """Name the signal that killed a child; None where it ended by itself.

    Args:
        code: what subprocess calls its return code.
    """
    if code >= 0:
        return None
    try:
        return signal.Signals(-code).name
    except ValueError:  # of real time, which have numbers only
        return f"signal {-code}"


def end_with_parent(parent: int) -> None:
    """Let the system end this process as soon as its parent has ended, also by a kill.

    On Linux only; elsewhere nothing is done.

    Args:
        parent: process id of the parent, as the parent told it.

    Raises:
        SystemExit: the parent has ended already.
    """
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is None:
        return
    prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
    if os.getppid() != parent:  # it went before the call
        raise SystemExit(0)
