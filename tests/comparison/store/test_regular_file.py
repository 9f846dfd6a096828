"""Only files are opened, and nothing waits for a writer."""

import os
import socket
from pathlib import Path

import pytest

from comparison.schema.errors import CorruptFileError
from comparison.store import regular_file
from comparison.store.regular_file import open_regular, read_regular


def test_a_file_and_a_link_to_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "link").symlink_to("file")
    for name in ("file", "link"):
        with open_regular(tmp_path / name) as file:
            assert file.read() == b"content"


def test_what_is_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # the name of a socket must be short
    os.mkfifo("pipe")
    Path("folder").mkdir()
    Path("device").symlink_to("/dev/null")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
        for kind in ("pipe", "folder", "device", "socket"):
            with pytest.raises(
                CorruptFileError, match=f"^{kind}: expected a file, found a {kind}$"
            ):
                open_regular(Path(kind))


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        open_regular(tmp_path / "nothing")


def test_a_pipe_that_takes_a_files_place_is_closed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "pipe")
    looked_at = os.stat(tmp_path / "file")
    monkeypatch.setattr(regular_file.os, "stat", lambda _: looked_at)  # it was a file then
    before = os.listdir("/proc/self/fd")
    with pytest.raises(CorruptFileError, match=r"expected a file, found a pipe$"):
        open_regular(tmp_path / "pipe")
    assert os.listdir("/proc/self/fd") == before


def test_a_file_larger_than_it_may_be(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    assert read_regular(path, most_bytes=5) == b"12345"
    with pytest.raises(CorruptFileError, match=r"/file: expected at most 4 bytes, found more$"):
        read_regular(path, most_bytes=4)
