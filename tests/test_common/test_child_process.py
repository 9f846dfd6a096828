"""Children end with the block, in whatever way it ends."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from test_common.child_process import child_process, end_child, killing_signal
from test_common.relayed_output import RelayedOutput

_SLEEP = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"]
_STUBBORN = [
    sys.executable,
    "-c",
    "import signal, time\nsignal.signal(15, signal.SIG_IGN)\nprint('up', flush=True)\n"
    "time.sleep(600)",
]


def started(command: Sequence[str]) -> "subprocess.Popen[bytes]":
    child = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline() == b"up\n"
    return child


def test_a_block_that_raises_ends_its_child() -> None:
    children = []

    def interrupted() -> None:
        with child_process(_SLEEP) as child:
            children.append(child)
            assert child.poll() is None
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert killing_signal(children[0].returncode) == "SIGTERM"


def test_a_child_that_has_ended_keeps_its_code() -> None:
    with child_process([sys.executable, "-c", "raise SystemExit(7)"]) as child:
        child.wait()
    assert child.returncode == 7
    assert killing_signal(7) is None


def test_a_child_that_does_not_go_is_killed() -> None:
    child = started(_STUBBORN)
    began = time.monotonic()
    end_child(child, grace_seconds=0.2)
    assert killing_signal(child.returncode) == "SIGKILL"
    assert time.monotonic() - began < 10


def test_a_child_of_its_own_group_hears_no_interrupt_of_ours() -> None:
    with child_process(_SLEEP, own_group=True) as child:
        assert os.getpgid(child.pid) == child.pid
    assert child.returncode == -signal.SIGTERM


def test_output_is_passed_on_in_whole_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = RelayedOutput(tmp_path)
    output.stdout.write(b"one\ntw")
    output.stdout.flush()
    output.stderr.write(b"\xff: bad\n")
    output.stderr.flush()
    output.show()
    assert capsys.readouterr() == ("one\n", "\ufffd: bad\n")
    output.stdout.write(b"o")
    output.close()
    output.show()
    assert capsys.readouterr() == ("", "")
    output.show(all_of_it=True)
    assert capsys.readouterr() == ("two", "")
    assert output.last_lines() == ["\ufffd: bad"]
