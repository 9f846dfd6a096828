import pytest

from test_common.progress import stage


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
