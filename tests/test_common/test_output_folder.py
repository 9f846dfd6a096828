import os
import stat
from pathlib import Path

import pytest

from comparison.schema.errors import UnwritableOutputError
from comparison.store import step_folder
from test_common.output_folder import ORDER_FILE_NAME, check_output_folder, clear_old_dump


def make_dump(out: Path) -> None:
    for step in ("0", "1", "12"):
        (out / step).mkdir(parents=True)
        (out / step / "tensor_names.txt").write_text("x\n")
        (out / step / "x.pt").write_bytes(b"x")
    (out / "2.partial").mkdir()
    (out / "2.partial" / "x.max").write_bytes(b"x")
    (out / "rank0" / "0").mkdir(parents=True)
    (out / "rank0" / "0" / "tensor_names.txt").write_text("x\n")
    (out / "manifest.json").write_text("{}")


def content(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_order_file_is_the_one_that_readers_look_for() -> None:
    assert ORDER_FILE_NAME == step_folder.ORDER_FILE_NAME


def test_new_and_empty_folders_pass_and_nothing_is_left_behind(tmp_path: Path) -> None:
    check_output_folder(tmp_path / "a" / "b" / "c")
    (tmp_path / "empty").mkdir()
    check_output_folder(tmp_path / "empty")
    assert content(tmp_path) == ["empty"]


def test_relative_path_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    check_output_folder(Path("new/folder"))
    check_output_folder(Path("."))
    assert content(tmp_path) == []


def test_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    with pytest.raises(UnwritableOutputError, match=r"file is a file, give the path of a folder"):
        check_output_folder(file)
    with pytest.raises(UnwritableOutputError, match=r"deep: .*/file is a file"):
        check_output_folder(file / "deep", overwrite=True)


def test_folder_with_content_is_refused_and_named(tmp_path: Path) -> None:
    for name in "dcba":
        (tmp_path / name).touch()
    with pytest.raises(UnwritableOutputError, match=r"is not empty \(a, b, c, \.\.\.\)"):
        check_output_folder(tmp_path)


def test_dangling_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(UnwritableOutputError, match="dangling link"):
        check_output_folder(tmp_path / "link")


def test_name_that_the_system_refuses(tmp_path: Path) -> None:
    with pytest.raises(UnwritableOutputError, match="File name too long"):
        check_output_folder(tmp_path / ("x" * 300))


@pytest.mark.parametrize("place", ["out", "out/below"])
def test_folder_without_permission(
    tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "out").mkdir()
    if os.geteuid() == 0:  # root may write anywhere but in /proc
        with pytest.raises(UnwritableOutputError, match="cannot write /proc"):
            check_output_folder(Path("/proc") / place)
        return
    (tmp_path / "out").chmod(stat.S_IRUSR | stat.S_IXUSR)
    with pytest.raises(UnwritableOutputError, match="Permission denied"):
        check_output_folder(tmp_path / place)


def test_overwriting_removes_the_dump_and_nothing_else(tmp_path: Path) -> None:
    make_dump(tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "folder").mkdir()
    check_output_folder(tmp_path, overwrite=True)
    assert "0/x.pt" in content(tmp_path)
    clear_old_dump(tmp_path)
    assert content(tmp_path) == ["folder", "notes.txt"]


@pytest.mark.parametrize("inside", ["photo.jpg", "january/photo.jpg"])
def test_overwriting_refuses_a_numbered_folder_that_is_no_step(tmp_path: Path, inside: str) -> None:
    make_dump(tmp_path)
    photo = tmp_path / "2024" / inside
    photo.parent.mkdir(parents=True)
    photo.touch()
    with pytest.raises(UnwritableOutputError, match=r"2024 would be overwritten, and is not part"):
        check_output_folder(tmp_path, overwrite=True)
    assert photo.exists()


def test_overwriting_does_not_follow_links(tmp_path: Path) -> None:
    outside, out = tmp_path / "outside", tmp_path / "out"
    make_dump(outside)
    before = content(outside)
    out.mkdir()
    (out / "0").symlink_to(outside / "0")
    (out / "rank1").symlink_to(outside)
    check_output_folder(out, overwrite=True)
    clear_old_dump(out)
    assert content(out) == []
    assert content(outside) == before
