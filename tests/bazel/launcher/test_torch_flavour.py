import pytest

from bazel.launcher import torch_flavour
from bazel.launcher.torch_flavour import choose_torch, is_chosen_by_hand, locked_torch


@pytest.fixture
def lock(tmp_path):
    path = tmp_path / "cpu.txt"
    path.write_text("torchao==1\ntorch==2.13.0+cpu \\\n    --hash=sha256:00\n")
    return path


@pytest.fixture
def asked(monkeypatch):
    questions = []
    monkeypatch.setattr(torch_flavour, "pip_offers", lambda version: not questions.append(version))
    return questions


def choose(lock, **environ):
    return choose_torch(lock, cache=lock.parent, environ={"HOME": str(lock.parent), **environ})


def test_the_lock_names_the_build(lock):
    assert locked_torch(lock) == "2.13.0+cpu"


def test_a_lock_without_torch_is_an_error(lock):
    lock.write_text("numpy==1\n")
    with pytest.raises(ValueError, match=r"cpu\.txt pins no torch"):
        locked_torch(lock)


def test_pip_is_asked_once(lock, asked):
    assert [choose(lock), choose(lock)] == ["cpu", "cpu"]
    assert asked == ["2.13.0+cpu"]


def test_without_the_cpu_build_it_is_cuda(lock, monkeypatch):
    monkeypatch.setattr(torch_flavour, "pip_offers", lambda version: False)
    assert choose(lock) == "cuda"


def test_pip_is_asked_again_when_its_environment_changes(lock, asked):
    choose(lock)
    choose(lock, PIP_FIND_LINKS="elsewhere")
    assert len(asked) == 2


def test_pip_is_asked_again_when_its_configuration_changes(lock, asked):
    choose(lock)
    (lock.parent / ".config/pip").mkdir(parents=True)
    (lock.parent / ".config/pip/pip.conf").write_text("[global]\n")
    choose(lock)
    assert len(asked) == 2


def test_pip_is_asked_again_when_the_lock_changes(lock, asked):
    choose(lock)
    lock.write_text("torch==2.14.0+cpu\n")
    choose(lock)
    assert asked == ["2.13.0+cpu", "2.14.0+cpu"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["test", "--//:torch=cuda", "//..."], True),
        (["run", "--@model_accuracy_tools//:torch=cpu", "//x"], True),
        (["test", "//..."], False),
        (["run", "//x", "--", "--//:torch=cuda"], False),
        (["query", "//:torch"], False),
    ],
)
def test_the_command_line_decides(arguments, expected):
    assert is_chosen_by_hand(arguments, []) is expected


def test_the_users_bazelrc_decides(tmp_path):
    (tmp_path / "user.bazelrc").write_text("build --//:torch=cuda\n")
    assert is_chosen_by_hand(["test"], [tmp_path / "none", tmp_path / "user.bazelrc"])
