import re

import pytest

from test_common.capture_progress import CaptureProgress
from test_common.progress import StageLine, counted, stage


@pytest.mark.parametrize(("ci", "shown"), [("true", ""), ("", "building ...\n")])
def test_a_file_gets_one_line_and_ci_none(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], ci: str, shown: str
) -> None:
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    monkeypatch.setenv("CI", ci)
    with stage("building"):
        print("work")
    printed = capfd.readouterr()
    assert (printed.out, printed.err) == ("work\n", shown)


def test_github_folds_what_a_stage_prints(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    with stage("building\n50%"):
        print("work")
    assert capfd.readouterr().out == "::group::building%0A50%25\nwork\n::endgroup::\n"


def test_a_group_ends_when_its_stage_fails(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        with stage("building"):
            raise ValueError("failed")

    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    with pytest.raises(ValueError, match="failed"):
        fail()
    assert capfd.readouterr().out.endswith("::endgroup::\n")


def test_a_terminal_gets_a_clock(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    import sys

    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    with stage("building the model"):
        pass
    assert "building the model" in capfd.readouterr().err


def test_a_terminal_sees_how_much_is_done(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    import sys

    for name in ("GITHUB_ACTIONS", "CI"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("COLUMNS", "120")
    with counted("comparing", what="pairs") as advance:
        advance(3, 7, 2_500_000)
    shown = capfd.readouterr()
    assert shown.out == ""
    assert "comparing" in shown.err
    assert "3/7 pairs 2.5 MB" in re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown.err)


def test_nothing_is_counted_where_nobody_looks(capfd: pytest.CaptureFixture[str]) -> None:
    with counted("comparing", what="pairs") as advance:
        advance(3, 7, 2_500_000)
    assert capfd.readouterr() == ("", "")


def test_steps_behind_the_first_are_expected_to_be_like_the_last() -> None:
    told: list[tuple[int, int | None, int]] = []
    progress = CaptureProgress(
        lambda done, total=None, size_bytes=0: told.append((done, total, size_bytes)), 3
    )
    for size in (10, 20, 30):
        progress.saved(size)
    progress.step()
    progress.saved(35)
    progress.saved(40, count=1)
    progress.step()
    progress.saved(60, count=2)
    progress.saved(70)  # more than was expected
    assert told == [
        (1, None, 10),
        (2, None, 20),
        (3, None, 30),
        (4, 9, 35),
        (5, 9, 40),
        (7, 7, 60),
        (8, 8, 70),
    ]


def test_stages_follow_one_another(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    stages = StageLine()
    stages("replaying ...")
    stages("trying what explains it ...")
    stages.close()
    stages.close()
    assert capfd.readouterr().out == (
        "::group::replaying\n::endgroup::\n::group::trying what explains it\n::endgroup::\n"
    )
