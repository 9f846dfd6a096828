from pathlib import Path

import pytest

from bazel.launcher import launch, torch_flavour
from bazel.launcher.launch import offline_options, prepare, uses_this_module


@pytest.fixture
def root(tmp_path, monkeypatch):
    root = tmp_path / "a checkout"
    (root / "bazel/offline").mkdir(parents=True)
    (root / "bazel/offline/offline.bazelrc").write_text(
        "# why\ncommon:offline --a=%workspace%/b\n\nbuild:offline --c\n"
    )
    (root / "requirements").mkdir()
    (root / "requirements/cpu.txt").write_text("torch==2.13.0+cpu\n")
    (root / "MODULE.bazel").write_text('module(name = "model_accuracy_tools")\n')
    monkeypatch.setattr(launch, "ROOT", root)
    monkeypatch.setattr(torch_flavour, "pip_offers", lambda version: False)
    monkeypatch.chdir(root)
    return root


@pytest.fixture
def environ(tmp_path):
    return {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache"), "BAZEL": "/x/bazel"}


def test_offline_options_fit_any_workspace(root):
    assert offline_options(root) == [f'common "--a={root}/b"', 'build "--c"']


def test_one_line_tells_what_was_chosen(root, environ, capsys):
    prepare(["test", "//..."], environ)
    expected = "bazelw: /x/bazel from $BAZEL; torch=cuda (pip does not offer the CPU build)\n"
    assert capsys.readouterr().err == expected


def test_the_bazelrc_names_torch_and_the_folder_of_graphs(root, environ):
    _, bazelrc = prepare(["test", "//..."], environ)
    graphs = environ["MODULAR_CACHE_DIR"]
    assert bazelrc.read_text().splitlines() == [
        f'build "--sandbox_writable_path={graphs}"',
        "build --test_env=MODULAR_CACHE_DIR",
        "build --@model_accuracy_tools//:torch=cuda",
    ]
    assert Path(graphs).is_dir()


@pytest.mark.parametrize("told", ["", "relative/cache"])
def test_a_relative_cache_counts_as_none(told, root, environ, tmp_path):
    environ["XDG_CACHE_HOME"] = told
    _, bazelrc = prepare(["test"], environ)
    assert bazelrc.is_relative_to(tmp_path / ".cache" / "model_accuracy_tools")
    assert not (root / "relative").exists()


def test_a_flag_on_the_command_line_is_left_alone(root, environ, capsys):
    _, bazelrc = prepare(["test", "--//:torch=cpu", "//..."], environ)
    assert "torch" not in bazelrc.read_text()
    assert capsys.readouterr().err.endswith("; torch as told\n")


def test_the_users_folder_of_graphs_is_kept(root, environ, tmp_path):
    environ["MODULAR_CACHE_DIR"] = str(tmp_path / "graphs")
    _, bazelrc = prepare(["test"], environ)
    assert f"--sandbox_writable_path={tmp_path}/graphs" in bazelrc.read_text()


def test_a_workspace_of_another_kind_gets_no_flag(root, environ, tmp_path, monkeypatch):
    other = tmp_path / "other"
    other.mkdir()
    (other / "MODULE.bazel").write_text('module(name = "other")\n')
    monkeypatch.chdir(other)
    _, bazelrc = prepare(["test"], environ)
    assert "//:torch" not in bazelrc.read_text()


def test_a_workspace_that_depends_on_this_one_gets_the_flag(tmp_path):
    (tmp_path / "MODULE.bazel").write_text('bazel_dep(name = "model_accuracy_tools")\n')
    (tmp_path / "x").mkdir()
    assert uses_this_module(tmp_path / "x")


def test_a_folder_in_no_workspace_is_told_where_there_is_one(
    root, environ, tmp_path, capsys, monkeypatch
):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    prepare(["test", "//..."], environ)
    said = f"{tmp_path / 'elsewhere'} is in no workspace with model_accuracy_tools, {root} is\n"
    assert capsys.readouterr().err.endswith(f"no build of torch: {said}")
