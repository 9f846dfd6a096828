"""Captures on a disk that is full, has no room for more files, or is read-only."""

from pathlib import Path

import pytest
import torch

from comparison.schema.errors import UnwritableOutputError
from tests.test_common.forked_captures import (
    FORMATS,
    LoadedPipeline,
    in_fork,
    is_whole,
    tensors_of,
)
from tests.test_common.private_disk import PrivateDisk

ROOM = "size=64m,nr_inodes=4000"
PARTS = (0.0, 0.3, 0.6, 0.9)  # of what a whole dump takes


@pytest.fixture(scope="module")
def oracle() -> LoadedPipeline:
    torch.set_num_threads(1)  # a fork has no threads but the one that made it
    return LoadedPipeline()


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    folder = tmp_path / "disk"
    folder.mkdir()

    def try_out() -> None:
        PrivateDisk(folder, limits=ROOM).make_read_only()

    if in_fork(try_out) != 0:
        pytest.skip("this system lets no process mount a disk of its own")
    return folder


def too_small(out: Path) -> list[str]:
    """Return limits of disks on which a dump has no room for its bytes, or for its files."""
    # Pages of files; folders take none of memory's.
    files = {
        (status := path.stat()).st_ino: -(-status.st_size // 4096) * 4096
        for path in out.rglob("*")
        if path.is_file()
    }
    names = len(list(out.rglob("*")))
    sizes = [f"size={max(4, int(part * sum(files.values()) / 1024))}k" for part in PARTS]
    return sizes + [f"nr_inodes={2 + int(part * names)}" for part in PARTS[:-1]]


def told(oracle: LoadedPipeline, out: Path, file_format: str, **given: bool) -> str:
    """Return what a capture says that cannot be written; it is one line that names the disk."""
    with pytest.raises(UnwritableOutputError) as raised:
        oracle.capture(out, file_format, **given)
    message = str(raised.value)
    assert "\n" not in message
    assert message.startswith(f"cannot write {out.parent}")
    return message


@pytest.mark.parametrize("file_format", FORMATS)
def test_full_disk(oracle: LoadedPipeline, disk: Path, tmp_path: Path, file_format: str) -> None:
    oracle.capture(tmp_path / "whole", file_format)
    whole = tensors_of(tmp_path / "whole")

    def fill(limits: str) -> None:
        small, out = PrivateDisk(disk, limits=limits), disk / "dump"
        assert "No space left on device" in told(oracle, out, file_format)
        left = tensors_of(out) if out.exists() else {}
        assert left.items() <= whole.items()  # the last manifest may be what has no room
        assert not is_whole(out)
        small.grow(ROOM)
        oracle.capture(out, file_format, resume=True)
        assert is_whole(out)
        assert tensors_of(out) == whole
        assert list(out.rglob(".*")) == []

    for limits in too_small(tmp_path / "whole"):
        assert in_fork(lambda limits=limits: fill(limits)) == 0, limits  # type: ignore[misc]


@pytest.mark.parametrize("file_format", FORMATS)
def test_read_only_disk(oracle: LoadedPipeline, disk: Path, file_format: str) -> None:
    oracle.capture(disk.parent / "before", file_format)  # the model is loaded

    def refuse() -> None:
        mounted, out = PrivateDisk(disk, limits=ROOM), disk / "dump"
        oracle.capture(out, file_format)
        whole = tensors_of(out)
        mounted.make_read_only()
        assert "Read-only file system" in told(oracle, disk / "new", file_format)
        told(oracle, out, file_format, overwrite=True)
        assert is_whole(out)
        assert tensors_of(out) == whole

    assert in_fork(refuse) == 0


def test_folder_below_a_file(oracle: LoadedPipeline, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(UnwritableOutputError, match=r"file is a file, give the path of a folder"):
        oracle.capture(tmp_path / "file" / "dump", "pt")
    with pytest.raises(UnwritableOutputError, match=r"cannot write /proc"):
        oracle.capture(Path("/proc/dump"), "pt")
