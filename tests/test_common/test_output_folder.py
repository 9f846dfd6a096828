import json
import os
import stat
from pathlib import Path

import pytest

from comparison.schema.errors import UnwritableOutputError
from comparison.store import step_folder
from test_common.folder_lock import FolderLock
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
    (out / "1" / f".{'0f' * 16}.tmp").write_bytes(b"half a tensor")
    (out / "12" / "x.safetensors").write_bytes(b"x")
    write_manifest(out, raw_tensors={"12/raw": {"dtype": "float32", "shape": [1]}})
    (out / "12" / "raw").write_bytes(b"1234")


def write_manifest(out: Path, **changes: object) -> None:
    value = {"schema_version": 1, "engine": "torch", **changes}
    (out / "manifest.json").write_text(json.dumps(value))


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
    with pytest.raises(UnwritableOutputError, match=r"is not empty \(a, b, c and 1 more\)"):
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


@pytest.mark.parametrize(
    "foreign",
    [
        "2024/photo.jpg",
        "2024/january/photo.jpg",
        "2024.partial/photo.jpg",
        "rank1/notes.txt",
        "rank1/0/photo.jpg",
        "0/precious.docx",
        "0/raw",
        "0/.hidden",
        "0/folder/x.pt",
        "3",
        "3.partial",
        "rank2",
    ],
)
@pytest.mark.parametrize("in_a_dump", [False, True])
def test_overwriting_refuses_and_names_what_is_no_part_of_a_dump(
    tmp_path: Path, foreign: str, in_a_dump: bool
) -> None:
    if in_a_dump:
        make_dump(tmp_path)
    precious = tmp_path / foreign
    precious.parent.mkdir(parents=True, exist_ok=True)
    precious.write_text("precious")
    with pytest.raises(UnwritableOutputError, match="would be overwritten, and is not part of a"):
        check_output_folder(tmp_path, overwrite=True)
    assert precious.read_text() == "precious"


@pytest.mark.parametrize("folder", ["2024", "2024.partial"])
def test_numbered_folder_of_checkpoints_is_no_step(tmp_path: Path, folder: str) -> None:
    (tmp_path / folder).mkdir()
    (tmp_path / folder / "model.pt").touch()
    with pytest.raises(UnwritableOutputError, match=f": {folder} would be overwritten"):
        check_output_folder(tmp_path, overwrite=True)
    write_manifest(tmp_path)  # then a killed run may have left it
    check_output_folder(tmp_path, overwrite=True)


@pytest.mark.parametrize(
    "foreign", ["0/precious.docx", "rank1/0/photo.jpg", "2024/photo.jpg", "3", "rank1/notes.txt"]
)
def test_foreign_files_are_named_with_their_folder(tmp_path: Path, foreign: str) -> None:
    make_dump(tmp_path)
    (tmp_path / foreign).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / foreign).touch()
    with pytest.raises(UnwritableOutputError, match=f": {foreign} would be overwritten"):
        check_output_folder(tmp_path, overwrite=True)


@pytest.mark.parametrize(
    "text", ['{"name": "my web app"}', "[]", "{", "", '{"engine": "v8"}', "[" * 100_000]
)
def test_overwriting_refuses_a_manifest_of_something_else(tmp_path: Path, text: str) -> None:
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(UnwritableOutputError, match=r": manifest\.json would be overwritten"):
        check_output_folder(tmp_path, overwrite=True)


def test_overwriting_reads_no_file_of_a_terabyte(tmp_path: Path) -> None:
    make_dump(tmp_path)
    os.truncate(tmp_path / "0" / "tensor_names.txt", 2**40)  # a hole
    (tmp_path / "0" / "bare").touch()
    with pytest.raises(UnwritableOutputError, match=": 0/bare would be overwritten"):
        check_output_folder(tmp_path, overwrite=True)
    os.truncate(tmp_path / "manifest.json", 2**40)
    with pytest.raises(UnwritableOutputError, match="and 1 more would be overwritten"):
        check_output_folder(tmp_path, overwrite=True)


def test_overwriting_refuses_a_manifest_that_is_a_folder_or_leads_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "a" / "manifest.json").mkdir(parents=True)
    (tmp_path / "b").mkdir()
    (tmp_path / "other").write_text("other")
    (tmp_path / "b" / "manifest.json").symlink_to(tmp_path / "other")
    for name in "ab":
        with pytest.raises(UnwritableOutputError, match=r"manifest\.json would be overwritten"):
            check_output_folder(tmp_path / name, overwrite=True)


def test_manifest_of_a_later_version_is_ours(tmp_path: Path) -> None:
    write_manifest(tmp_path, schema_version=99, unknown=[1])
    check_output_folder(tmp_path, overwrite=True)
    clear_old_dump(tmp_path)
    assert content(tmp_path) == []


def test_bare_bytes_of_a_killed_run_are_part_of_its_dump(tmp_path: Path) -> None:
    write_manifest(tmp_path, options={"style": "binary"})
    for folder in ("0", "1.partial"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "model.layers.0%2Fa-output").write_bytes(b"1234")
    (tmp_path / "0" / "tensor_names.txt").write_text("model.layers.0/a-output\n")
    check_output_folder(tmp_path, overwrite=True)
    (tmp_path / "1.partial" / "precious").touch()
    with pytest.raises(UnwritableOutputError, match=r": 1\.partial/precious would be overwritten"):
        check_output_folder(tmp_path, overwrite=True)


def test_many_foreign_files_are_counted(tmp_path: Path) -> None:
    make_dump(tmp_path)
    for number in range(5):
        (tmp_path / "0" / f"{number}.jpg").touch()
    with pytest.raises(UnwritableOutputError, match=r": 0/0\.jpg, 0/1\.jpg, 0/2\.jpg and 2 more "):
        check_output_folder(tmp_path, overwrite=True)


def test_link_inside_of_a_step_is_no_part_of_a_dump(tmp_path: Path) -> None:
    make_dump(tmp_path)
    (tmp_path / "0" / "link.pt").symlink_to(tmp_path / "0" / "x.pt")
    with pytest.raises(UnwritableOutputError, match=r": 0/link\.pt would be overwritten"):
        check_output_folder(tmp_path, overwrite=True)


def test_lock_of_a_killed_run_is_no_content(tmp_path: Path) -> None:
    (tmp_path / ".lock").touch()
    check_output_folder(tmp_path)
    (tmp_path / ".lock").write_text("of another tool")
    with pytest.raises(UnwritableOutputError, match=r"not empty \(\.lock\)"):
        check_output_folder(tmp_path)


def test_folder_that_is_being_written_is_refused_early(tmp_path: Path) -> None:
    lock = FolderLock(tmp_path)
    with pytest.raises(UnwritableOutputError, match="another run is writing into it"):
        check_output_folder(tmp_path, overwrite=True)
    lock.release()
    check_output_folder(tmp_path)


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
