"""The copy, the refusals and the finder, on a small package that stands in for transformers."""

import subprocess
import sys
from pathlib import Path

import pytest

from test_common import local_transformers
from test_common.local_transformers import (
    LocalTransformersError,
    clean_up_copies,
    copies_folder,
    edited_files,
    set_up_copy,
)
from tests.child_processes import user_environment

LLAMA = "models/llama/modeling_llama.py"


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    site = install(tmp_path / "site packages", "5.0.0")
    monkeypatch.setattr(sys, "path", [str(site), *sys.path])
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "my cache"))
    return site / "transformers"


def install(site: Path, version: str) -> Path:
    package = site / "transformers"
    (package / LLAMA).parent.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / LLAMA).write_text("WIDTH = 1\n")
    (package / LLAMA).chmod(0o444)
    (package / "__pycache__").mkdir()
    (package / "__pycache__" / "x.pyc").write_bytes(b"x")
    info = site / f"transformers-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: transformers\nVersion: {version}\n"
    )
    return site


def content(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def test_the_copy_can_be_edited_and_the_installed_package_stays(installed: Path) -> None:
    before = content(installed)
    copy, is_new = set_up_copy()
    assert (copy, is_new) == (copies_folder() / "5.0.0" / "transformers", True)
    assert sorted(content(copy)) == ["__init__.py", LLAMA]
    (copy / LLAMA).write_text("WIDTH = 2\n")
    assert content(installed) == before


def test_setting_up_twice_changes_nothing(installed: Path) -> None:
    copy, _ = set_up_copy()
    stamp = (copy / LLAMA).stat().st_mtime_ns
    assert set_up_copy() == (copy, False)
    assert (copy / LLAMA).stat().st_mtime_ns == stamp


@pytest.mark.parametrize("edit", ["change", "add", "remove"])
def test_edits_are_never_overwritten(installed: Path, edit: str) -> None:
    copy, _ = set_up_copy()
    file = copy / ("new.py" if edit == "add" else LLAMA)
    if edit == "remove":
        file.unlink()
    else:
        file.write_text("WIDTH = 3\n")
    before = content(copy)
    expected = rf"has edits, which are kept \({file.relative_to(copy)}\).*cleanup_local_trans"
    with pytest.raises(LocalTransformersError, match=expected):
        set_up_copy()
    assert content(copy) == before
    assert edited_files(copy.parent) == (file.relative_to(copy).as_posix(),)


def test_what_python_compiles_is_no_edit(installed: Path) -> None:
    copy, _ = set_up_copy()
    (copy / "__pycache__").mkdir()
    (copy / "__pycache__" / "y.pyc").write_bytes(b"y")
    assert edited_files(copy.parent) == ()


def test_an_unedited_copy_follows_the_installed_package(installed: Path) -> None:
    copy, _ = set_up_copy()
    (installed / "__init__.py").write_text("NEW = 1\n")
    assert set_up_copy() == (copy, True)
    assert (copy / "__init__.py").read_text() == "NEW = 1\n"


def test_cleaning_up_removes_the_copy_and_puts_edits_aside(installed: Path) -> None:
    before = content(installed)
    copy, _ = set_up_copy()
    (copy / LLAMA).write_text("WIDTH = 4\n")
    (copy / "__init__.py").unlink()
    versions, (kept,) = clean_up_copies()
    assert versions == ("5.0.0",)
    assert content(kept) == {LLAMA: b"WIDTH = 4\n"}
    assert not copy.parent.exists()
    assert content(installed) == before
    assert clean_up_copies() == ((), ())
    assert content(kept) == {LLAMA: b"WIDTH = 4\n"}


def test_cleaning_up_tells_of_an_installed_package_that_changed(installed: Path) -> None:
    copy, _ = set_up_copy()
    (installed / "__init__.py").write_text("BROKEN = 1\n")
    with pytest.raises(LocalTransformersError, match="is not what was copied from it"):
        clean_up_copies()
    assert not copy.exists()


def test_a_copy_whose_list_is_gone_is_not_touched(installed: Path) -> None:
    copy, _ = set_up_copy()
    (copy.parent / "original.json").write_text("{}")
    with pytest.raises(LocalTransformersError, match="so edits cannot be told"):
        set_up_copy()
    assert copy.is_dir()


def test_nothing_installed_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    with pytest.raises(LocalTransformersError, match="no transformers is installed"):
        set_up_copy()


def imported_from(site: Path, cache: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """Import transformers in a process that was offered the local copy."""
    code = (
        "import sys; from test_common.local_transformers import offer_local_transformers as offer;"
        f"offer(); offer(); sys.path.insert(0, {str(site)!r});"
        "import transformers; print(transformers.__file__)"
    )
    return subprocess.run(
        [sys.executable, "-c", code],
        env=user_environment(cache, **more),
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_copy_is_imported_and_told(installed: Path, tmp_path: Path) -> None:
    cache = tmp_path / "my cache"
    plain = imported_from(installed.parent, cache)
    assert (plain.stdout, plain.stderr) == (f"{installed}/__init__.py\n", "")
    copy, _ = set_up_copy()
    local = imported_from(installed.parent, cache)
    assert local.stdout == f"{copy}/__init__.py\n"
    assert local.stderr == f"local transformers in use: {copy}\n"
    clean_up_copies()
    assert imported_from(installed.parent, cache).stdout == plain.stdout


@pytest.mark.parametrize("mark", local_transformers._TESTS)
def test_tests_use_the_installed_package(installed: Path, tmp_path: Path, mark: str) -> None:
    set_up_copy()
    found = imported_from(installed.parent, tmp_path / "my cache", **{mark: "x"})
    assert (found.stdout, found.stderr) == (f"{installed}/__init__.py\n", "")


def test_edits_of_another_version_are_refused_not_ignored(installed: Path, tmp_path: Path) -> None:
    cache = tmp_path / "my cache"
    copy, _ = set_up_copy()
    other = install(tmp_path / "other", "6.0.0")
    assert imported_from(other, cache).stdout == f"{other}/transformers/__init__.py\n"
    (copy / LLAMA).write_text("WIDTH = 5\n")
    refused = imported_from(other, cache)
    assert refused.returncode != 0
    assert "is of transformers 5.0.0, and 6.0.0 is installed" in refused.stderr
    assert "setup_local_transformers.sh for a copy of 6.0.0 beside it" in refused.stderr


def test_copies_of_two_versions_lie_beside_each_other(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = set_up_copy()
    (first / LLAMA).write_text("WIDTH = 6\n")
    other = install(tmp_path / "other", "6.0.0")
    monkeypatch.setattr(sys, "path", [str(other), *sys.path])
    second, _ = set_up_copy()
    assert second.parent.name == "6.0.0"
    assert imported_from(other, tmp_path / "my cache").stdout == f"{second}/__init__.py\n"
