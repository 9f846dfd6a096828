import os
import stat
from pathlib import Path

import pytest

from bazel.launcher import bazelisk
from bazel.launcher.bazel_choice import NoBazelError, choose_bazel, fetch


@pytest.fixture(autouse=True)
def releases_out_of_reach(monkeypatch):
    monkeypatch.setattr(bazelisk, "BAZEL_RELEASES", "http://127.0.0.1:1/")
    monkeypatch.setattr(bazelisk, "RELEASES", "http://127.0.0.1:1/")


def program(path: Path, prints: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{prints}'\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_the_variable_comes_first(tmp_path):
    program(tmp_path / "bin/bazel", "bazel 8.1.0")
    environ = {"BAZEL": "/some/bazel", "PATH": str(tmp_path / "bin")}
    assert choose_bazel(environ, tmp_path).program == "/some/bazel"


@pytest.mark.parametrize("name", ["bazel", "bazelisk"])
@pytest.mark.parametrize("version", ["7.4.1", "9.1.1", "10.0.0-pre"])
def test_a_recent_one_on_path_is_taken(tmp_path, name, version):
    found = program(tmp_path / "bin" / name, f"bazel {version}")
    choice = choose_bazel({"PATH": str(tmp_path / "bin")}, tmp_path)
    assert choice.program == str(found)
    assert not choice.is_offline


def test_the_first_recent_one_on_path_counts(tmp_path):
    program(tmp_path / "bin/bazel", "bazel 4.2.3")
    found = program(tmp_path / "bin/bazelisk", "bazel 7.7.1")
    assert choose_bazel({"PATH": str(tmp_path / "bin")}, tmp_path).program == str(found)


@pytest.mark.parametrize("prints", ["bazel 4.2.3", "bazel no_version", ""])
def test_an_old_or_unknown_one_is_passed_over(tmp_path, prints):
    program(tmp_path / "bin/bazel", prints)
    with pytest.raises(NoBazelError, match="no Bazel 7 or newer on PATH"):
        choose_bazel({"PATH": str(tmp_path / "bin")}, tmp_path)


def test_one_that_was_fetched_is_taken(tmp_path):
    found = program(tmp_path / "bazel-debian/bazel", "")
    choice = choose_bazel({"PATH": ""}, tmp_path)
    assert (choice.program, choice.is_offline, choice.is_missing) == (str(found), True, False)


def test_debian_fetches_its_own(tmp_path):
    program(tmp_path / "bin/dpkg-deb", "")
    choice = choose_bazel({"PATH": str(tmp_path / "bin")}, tmp_path)
    assert (choice.is_offline, choice.is_missing) == (True, True)


def offline_folder(folder: Path, script: str) -> Path:
    folder.mkdir()
    (folder / "fetch_bazel.py").write_text("import pathlib, sys\nout = sys.argv[1]\n" + script)
    return folder


def missing_choice(folder: Path):
    program(folder / "bin/dpkg-deb", "")
    return choose_bazel({"PATH": str(folder / "bin")}, folder)


def test_a_missing_one_is_fetched_once(tmp_path):
    script = """
pathlib.Path(out).mkdir()
pathlib.Path(out, "bazel").touch()
open("log", "a").write("x")
"""
    offline = offline_folder(tmp_path / "offline", script)
    choice = missing_choice(tmp_path)
    before = Path.cwd()
    os.chdir(tmp_path)
    try:
        fetch(choice, offline_folder=offline)
        fetch(choice, offline_folder=offline)
    finally:
        os.chdir(before)
    assert (tmp_path / "log").read_text() == "x"


def test_a_failed_fetch_says_why(tmp_path):
    offline = offline_folder(tmp_path / "offline", "sys.exit('the archive is away')")
    with pytest.raises(NoBazelError, match="the archive is away"):
        fetch(missing_choice(tmp_path), offline_folder=offline)
