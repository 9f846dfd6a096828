"""Tests of folders that are made once and kept."""

import multiprocessing
import os
from pathlib import Path

import pytest

from comparison.schema.errors import UnwritableOutputError
from test_common.checkpoint_cache import content_key, default_cache_dir, ensure_folder
from test_common.kernels_folder import kernels_folder


def test_folder_is_made_once(tmp_path: Path) -> None:
    calls: list[Path] = []

    def make(folder: Path) -> None:
        calls.append(folder)
        (folder / "file").write_text("content")

    for _ in range(2):
        assert ensure_folder(tmp_path / "a" / "made", make) == tmp_path / "a" / "made"
    assert len(calls) == 1
    assert (tmp_path / "a" / "made" / "file").read_text() == "content"


def test_failure_leaves_no_folder(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "half").write_text("")
        raise ValueError("no weights")

    with pytest.raises(ValueError, match="no weights"):
        ensure_folder(tmp_path / "made", fail)
    assert [path.name for path in tmp_path.iterdir()] == [".made.lock"]


def test_what_a_killed_run_left_is_cleared_away(tmp_path: Path) -> None:
    (tmp_path / ".made.x1.partial").mkdir()
    ensure_folder(tmp_path / "made", lambda folder: None)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".made.lock", "made"]


def _make_slowly(folder: Path) -> None:
    import time

    (folder / f"maker-{os.getpid()}").write_text("")
    time.sleep(0.3)


def _ensure(folder: Path) -> None:
    ensure_folder(folder, _make_slowly)


def test_two_processes_at_once_make_it_once(tmp_path: Path) -> None:
    workers = [multiprocessing.Process(target=_ensure, args=(tmp_path / "made",)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    assert len(list((tmp_path / "made").iterdir())) == 1


def test_cache_that_cannot_be_written_names_the_variable(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where a folder should be")
    with pytest.raises(
        UnwritableOutputError, match=r"cannot write the checkpoint cache .*XDG_CACH"
    ):
        ensure_folder(tmp_path / "cache" / "made", lambda folder: None)


def test_cache_follows_xdg(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_cache_dir() == tmp_path / "model_accuracy_tools" / "checkpoints"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    for none in ("", "cache", "./cache"):  # a relative one is none
        monkeypatch.setenv("XDG_CACHE_HOME", none)
        assert default_cache_dir() == tmp_path / ".cache" / "model_accuracy_tools" / "checkpoints"
        assert kernels_folder() == tmp_path / ".cache" / "model_accuracy_tools" / "kernels"


def test_a_user_without_a_home_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(os, "getuid", lambda: 2**31 - 5)  # that no one has
    assert kernels_folder() is None
    with pytest.raises(UnwritableOutputError, match="set XDG_CACHE_HOME"):
        default_cache_dir()


def test_key_follows_recipe_and_not_its_order() -> None:
    key = content_key({"a": 1, "b": [2, 3]}, ("pytest",))
    assert key == content_key({"b": (2, 3), "a": 1}, ("pytest",))
    assert key != content_key({"a": 2, "b": [2, 3]}, ("pytest",))
    assert key != content_key({"a": 1, "b": [2, 3]}, ("numpy",))
    assert len(key) == 12
