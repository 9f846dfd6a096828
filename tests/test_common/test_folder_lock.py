import fcntl
import gc
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from comparison.schema.errors import UnwritableOutputError
from test_common.folder_lock import FolderLock, check_unlocked, is_lock

HOLD = """
import sys, time
from pathlib import Path
from test_common.folder_lock import FolderLock
lock = FolderLock(Path(sys.argv[1]))
print("locked", flush=True)
time.sleep(float(sys.argv[2]))
"""


def hold_elsewhere(folder: Path, seconds: float) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", HOLD, str(folder), str(seconds)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    assert process.stdout.readline() == "locked\n"
    return process


def test_lock_is_a_file_that_goes_with_it(tmp_path: Path) -> None:
    lock = FolderLock(tmp_path)
    assert is_lock(tmp_path / ".lock")
    lock.release()
    lock.release()
    assert list(tmp_path.iterdir()) == []


def test_second_one_is_refused(tmp_path: Path) -> None:
    lock = FolderLock(tmp_path)
    for attempt in (FolderLock, check_unlocked):
        with pytest.raises(UnwritableOutputError) as raised:
            attempt(tmp_path)
        assert str(raised.value) == (
            f"output folder {tmp_path}: another run is writing into it, or a hook that was not "
            "removed; wait for its end, or give another folder"
        )
    lock.release()
    FolderLock(tmp_path).release()
    check_unlocked(tmp_path)


def test_last_reference_releases(tmp_path: Path) -> None:
    lock = FolderLock(tmp_path)
    del lock
    gc.collect()
    assert list(tmp_path.iterdir()) == []


def test_other_process_keeps_us_out_until_it_ends(tmp_path: Path) -> None:
    process = hold_elsewhere(tmp_path, 0.5)
    with pytest.raises(UnwritableOutputError, match="another run"):
        FolderLock(tmp_path)
    assert process.wait(60) == 0
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_leaves_locks_nothing(tmp_path: Path) -> None:
    process = hold_elsewhere(tmp_path, 60)
    process.send_signal(signal.SIGKILL)
    process.wait(60)
    assert is_lock(tmp_path / ".lock")
    check_unlocked(tmp_path)
    FolderLock(tmp_path).release()
    assert list(tmp_path.iterdir()) == []


def test_a_short_look_does_not_refuse_a_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy = [True, True, False]

    def lock(*_: object) -> None:
        if busy.pop(0):
            raise BlockingIOError

    monkeypatch.setattr("fcntl.flock", lock)
    FolderLock(tmp_path)
    assert busy == []


def test_lock_whose_file_was_removed_meanwhile_is_taken_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flock, calls = fcntl.flock, []

    def lock(descriptor: int, operation: int) -> None:
        calls.append(descriptor)
        if len(calls) == 1:
            (tmp_path / ".lock").unlink()  # by the one who had it
        flock(descriptor, operation)

    monkeypatch.setattr("fcntl.flock", lock)
    kept = FolderLock(tmp_path)
    assert len(calls) == 2
    with pytest.raises(UnwritableOutputError, match="another run"):
        FolderLock(tmp_path)
    kept.release()


def test_fork_has_no_say(tmp_path: Path) -> None:
    lock = FolderLock(tmp_path)
    child = os.fork()
    if child == 0:
        lock.release()
        os._exit(0)
    os.waitpid(child, 0)
    assert is_lock(tmp_path / ".lock")
    with pytest.raises(UnwritableOutputError, match="another run"):
        FolderLock(tmp_path)
    lock.release()


def test_file_of_someone_else_stays(tmp_path: Path) -> None:
    (tmp_path / ".lock").write_text("mine")
    assert not is_lock(tmp_path / ".lock")
    FolderLock(tmp_path).release()
    assert (tmp_path / ".lock").read_text() == "mine"


def test_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / ".lock").symlink_to(tmp_path / "other")
    with pytest.raises(OSError, match="symbolic links"):
        FolderLock(tmp_path)
    assert not (tmp_path / "other").exists()


def test_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr("fcntl.flock", refuse)
    first, second = FolderLock(tmp_path), FolderLock(tmp_path)
    second.release()
    first.release()
    assert list(tmp_path.iterdir()) == []


def test_folder_that_went_away(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    lock = FolderLock(folder)
    (folder / ".lock").unlink()
    folder.rmdir()
    lock.release()


@pytest.mark.timeout(20)
def test_a_pipe_of_its_name_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".lock")
    check_unlocked(tmp_path)
    assert not is_lock(tmp_path / ".lock")
