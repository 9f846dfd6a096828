"""The content of a file decides, and is read once."""

import hashlib
import os
import time
from pathlib import Path

import pytest

from test_common.file_digests import FileDigests, files_below, stamp_of


def settled(path: Path, content: bytes) -> None:
    """Write a file, and wait until its time of change is one to rely on."""
    path.write_bytes(content)
    time.sleep(2.1)


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def test_a_file_is_read_once_and_again_when_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "weights"
    settled(file, b"one")
    digests = FileDigests(tmp_path / "cache" / "index.json")
    assert digests.digest(file) == sha256(b"one")
    digests.save()
    again = FileDigests(tmp_path / "cache" / "index.json")
    with monkeypatch.context() as patch:
        patch.setattr(hashlib, "file_digest", None)  # nothing is read
        assert again.digest(file) == sha256(b"one")
    before = file.stat()
    file.write_bytes(b"two")  # of the same size, and dated back
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert file.stat().st_mtime_ns == before.st_mtime_ns
    assert again.digest(file) == sha256(b"two")


def test_a_file_that_was_changed_just_now_is_read_every_time(tmp_path: Path) -> None:
    file = tmp_path / "weights"
    digests = FileDigests(tmp_path / "index.json")
    stamps = set()
    for content in (b"one", b"two"):
        file.write_bytes(content)
        os.utime(file, ns=(1, 1))
        stamps.add(stamp_of(file)[:2])
        assert digests.digest(file) == sha256(content)
    assert len(stamps) == 1
    digests.save()
    assert not (tmp_path / "index.json").exists()


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"a": 1}', '{"a": [1, 2, 3]}', "\xff", "[" * 100_000]
)
def test_an_unreadable_index_is_begun_anew(tmp_path: Path, text: str) -> None:
    (tmp_path / "index.json").write_text(text, encoding="latin-1")
    (tmp_path / "weights").write_bytes(b"one")
    assert FileDigests(tmp_path / "index.json").digest(tmp_path / "weights") == sha256(b"one")


def test_an_index_that_is_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "index.json")
    (tmp_path / "weights").write_bytes(b"one")
    assert FileDigests(tmp_path / "index.json").digest(tmp_path / "weights") == sha256(b"one")


def test_files_of_a_folder_are_listed_through_links(tmp_path: Path) -> None:
    (tmp_path / "blobs").mkdir()
    (tmp_path / "blobs" / "a1").write_bytes(b"one")
    model = tmp_path / "snapshot"
    (model / "below").mkdir(parents=True)
    (model / "model.safetensors").symlink_to(tmp_path / "blobs" / "a1")
    (model / "below" / "config.json").write_text("{}")
    assert files_below(model) == [model / "below" / "config.json", model / "model.safetensors"]
    assert files_below(model / "model.safetensors") == [model / "model.safetensors"]
