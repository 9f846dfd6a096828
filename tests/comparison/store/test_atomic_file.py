"""Whole or not at all, and only in place of a file."""

import os
from pathlib import Path

import pytest

from comparison.schema.errors import UnwritableOutputError
from comparison.store.atomic_file import atomic_file, output_target, write_text


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_new_file_and_an_old_one(tmp_path: Path) -> None:
    for text in ("one", "two"):
        write_text(tmp_path / "x.json", text)
        assert (tmp_path / "x.json").read_text() == text
    assert names(tmp_path) == ["x.json"]


def test_a_failed_block_leaves_the_old_file(tmp_path: Path) -> None:
    write_text(tmp_path / "x", "old")
    with pytest.raises(TypeError), atomic_file(tmp_path / "x") as file:
        file.writelines([b"new", "no bytes"])  # type: ignore[list-item]  # fails half way
    assert (names(tmp_path), (tmp_path / "x").read_text()) == (["x"], "old")


def test_a_link_stays_and_its_file_is_written(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "file").write_text("old")
    (tmp_path / "link").symlink_to("there/file")
    (tmp_path / "link2").symlink_to("link")
    write_text(tmp_path / "link2", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "link2").is_symlink()
    assert (tmp_path / "there" / "file").read_text() == "new"
    assert names(tmp_path / "there") == ["file"]
    assert output_target(tmp_path / "link2") == tmp_path.resolve() / "there" / "file"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("folder", "cannot write .*folder: expected a file or nothing there, found a folder"),
        ("pipe", "cannot write .*pipe: expected a file or nothing there, found a pipe"),
        ("device", "cannot write .*device: expected a file or nothing there, found a device"),
        ("dangling", "cannot write .*dangling: it is a link to nowhere, which is not there"),
        ("circle", "cannot write .*circle': Too many levels of symbolic links"),
        ("no/x", "cannot write .*x: No such file or directory; the folder must exist"),
        ("a" * 300, "cannot write .*a': File name too long"),
        ("a\0", "cannot write .*: embedded null byte"),
    ],
)
def test_what_is_not_replaced(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "device").symlink_to("/dev/null")
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "circle").symlink_to("circle")
    before = names(tmp_path)
    with pytest.raises(UnwritableOutputError, match=message):
        write_text(tmp_path / name, "new")
    assert names(tmp_path) == before
    assert Path("/dev/null").is_char_device()


@pytest.mark.parametrize("path", [Path("/"), Path("."), Path("..")])
def test_folders_without_a_name(path: Path) -> None:
    with pytest.raises(UnwritableOutputError, match="found a folder"):
        write_text(path, "new")
