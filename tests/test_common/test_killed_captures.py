"""Captures that are killed at any moment: what is there is right, and a rerun makes it whole."""

import random
import shutil
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from comparison.schema.errors import UnwritableOutputError
from test_common.debug_run import DebugRun
from test_common.earlier_run import earlier_manifest
from test_common.folder_lock import is_lock
from tests.test_common.forked_captures import (
    FORMATS,
    LoadedPipeline,
    Tensors,
    in_fork,
    is_whole,
    tensors_of,
)
from tests.test_common.self_kill import SelfKill

SEED = 20261130


@dataclass(frozen=True, slots=True, kw_only=True)
class Capture:
    """Captures in one format, with what a whole one gives.

    Attributes:
        oracle: whose model is loaded.
        file_format: one of FORMATS.
        tensors: of a whole dump.
        calls: number of calls of a whole run that change files.
        seconds: how long it takes.
    """

    oracle: LoadedPipeline
    file_format: str
    tensors: Tensors
    calls: int
    seconds: float

    def run(self, out: Path, **given: Any) -> DebugRun:
        return self.oracle.capture(out, self.file_format, **given)

    def killed(self, out: Path, *, at: int | None, part: float, seconds: float) -> bool:
        """Capture in a fork, and kill it at a call or after a time; False if it ended before."""

        def work() -> None:
            if at is not None:
                SelfKill(out, at=at, part=part)
            self.run(out)

        return in_fork(work, kill_after=seconds if at is None else None) == -signal.SIGKILL


@pytest.fixture(scope="module")
def oracle() -> LoadedPipeline:
    torch.set_num_threads(1)  # a fork has no threads but the one that made it
    return LoadedPipeline()


@pytest.fixture
def capture(oracle: LoadedPipeline, file_format: str, tmp_path: Path) -> Capture:
    out, told = tmp_path / "whole", tmp_path / "calls"
    oracle.capture(out, file_format)

    def count() -> None:
        kill = SelfKill(tmp_path / "counted", at=-1)
        oracle.capture(tmp_path / "counted", file_format)
        calls = kill.count
        told.write_text(str(calls), encoding="ascii")

    began = time.perf_counter()
    assert in_fork(count) == 0
    seconds = time.perf_counter() - began
    return Capture(
        oracle=oracle,
        file_format=file_format,
        tensors=tensors_of(out),
        calls=int(told.read_text()),
        seconds=seconds,
    )


def files_of(out: Path) -> dict[str, tuple[int, int]]:
    """Tell the files of tensors that are whole by number and time."""
    return {
        str(path.relative_to(out)): ((status := path.stat()).st_ino, status.st_mtime_ns)
        for path in out.glob("*/[!.]*")
        if path.suffix in (".pt", ".safetensors")
    }


def kill_at(capture: Capture, out: Path, *, number: int, count: int) -> None:
    """Kill a capture: three of four at a call, spread over all calls, else after some time.

    The first is killed before its first manifest has its name.
    """
    chance = random.Random(f"{SEED}.{capture.file_format}.{number}")
    at = 3 if number == 0 else 1 + int((number + chance.random()) * capture.calls / count)
    seconds = chance.uniform(0.0, 1.1 * capture.seconds)
    killed = capture.killed(
        out, at=None if number % 4 == 3 else at, part=chance.random(), seconds=seconds
    )
    assert killed or number % 4 == 3 or is_whole(out)


def check_killed(capture: Capture, out: Path, *, overwrites: bool) -> None:
    """Check what a killed capture has left, and reruns into its folder."""
    left = tensors_of(out) if out.exists() else {}
    assert left.items() <= capture.tensors.items()
    if is_whole(out):
        assert left == capture.tensors
    if out.exists() and not all(map(is_lock, out.iterdir())):
        with pytest.raises(UnwritableOutputError, match="is not empty"):
            capture.run(out)
    if overwrites and out.exists():
        shutil.copytree(out, out.with_name("copy"))
    before = files_of(out) if out.exists() else {}
    resumes = earlier_manifest(out) is not None and not is_whole(out)
    run = capture.run(out, resume=True)
    assert files_of(out).items() >= before.items(), "a whole file was written again"
    notes = [note for note in run.manifest.options["notes"] if note.startswith("resumed: ")]
    assert len(notes) == resumes
    check_whole(capture, out)
    if overwrites:
        capture.run(out.with_name("copy"), overwrite=True)
        check_whole(capture, out.with_name("copy"))


def check_whole(capture: Capture, out: Path) -> None:
    assert is_whole(out)
    assert tensors_of(out) == capture.tensors
    # Killed behind its last manifest, a run leaves the file of its lock, which locks nothing.
    assert [path for path in out.rglob(".*") if not is_lock(path)] == []
    assert list(out.rglob("*.partial*")) == []


def check_captures(capture: Capture, tmp_path: Path, *, count: int) -> None:
    for number in range(count):
        folder = tmp_path / str(number)
        folder.mkdir()
        kill_at(capture, folder / "dump", number=number, count=count)
        if number == 0:
            assert not (folder / "dump" / "manifest.json").exists()
        check_killed(capture, folder / "dump", overwrites=number % 6 == 0)
        shutil.rmtree(folder)


@pytest.mark.parametrize("file_format", FORMATS)
def test_killed_captures(capture: Capture, tmp_path: Path) -> None:
    check_captures(capture, tmp_path, count=18)


@pytest.mark.full
@pytest.mark.parametrize("file_format", FORMATS)
def test_many_killed_captures(capture: Capture, tmp_path: Path) -> None:
    check_captures(capture, tmp_path, count=150)


@pytest.mark.parametrize("file_format", FORMATS)
def test_a_killed_rerun(capture: Capture, tmp_path: Path) -> None:
    """A run that goes on may be killed too, and loses nothing that was there."""
    out = tmp_path / "dump"
    assert capture.killed(out, at=capture.calls // 2, part=0.5, seconds=0.0)
    left = tensors_of(out)

    def resume() -> None:
        SelfKill(out, at=capture.calls // 4, part=0.5)
        capture.run(out, resume=True)

    assert in_fork(resume) in (-signal.SIGKILL, 0)
    assert tensors_of(out).items() >= left.items()
    check_killed(capture, out, overwrites=True)
