import json
from pathlib import Path

import pytest

from bazel.count_results import ExpectedSkipsError, main, read_expected_skips

PASSED = '<testcase classname="tests.test_a" name="test_x"/>'
SKIPPED = '<testcase classname="tests.test_a" name="test_s"><skipped message="no GPU"/></testcase>'
FAILED = '<testcase classname="tests.test_a" name="test_f"><failure message="1 != 2"/></testcase>'
BROKEN = '<testcase classname="tests.test_a" name="test_e"><error message="fixture"/></testcase>'


class Run:
    """A run of one target, written down as Bazel does."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.skips = ""
        self.targets = "//tests:test_a\n"
        self.sources = "//tests:test_a.py\n"
        self.events: list[dict[str, object]] = []
        (folder / "tests").mkdir()
        (folder / "tests/test_a.py").touch()

    def add(self, cases: str, *, status: str = "PASSED", suite: str = "pytest") -> None:
        report = self.folder / "a test.xml"
        report.write_text(f'<testsuites><testsuite name="{suite}">{cases}</testsuite></testsuites>')
        log = self.folder / "test.log"
        log.write_text("the log's last line\n")
        outputs = [
            {"name": "test.xml", "uri": report.as_uri()},
            {"name": "test.log", "uri": log.as_uri()},
        ]
        label = {"label": "//tests:test_a"}
        self.events = [
            {"id": {"started": {}}, "started": {}},
            {"id": {"testResult": label}, "testResult": {"testActionOutput": outputs}},
            {"id": {"testSummary": label}, "testSummary": {"overallStatus": status}},
        ]

    def count(self, *checks: str) -> int:
        texts = {
            "events": "".join(json.dumps(event) + "\n" for event in self.events),
            "targets": self.targets,
            "sources": self.sources,
            "skips": self.skips,
        }
        arguments = ["--root", str(self.folder)]
        for name, text in texts.items():
            (self.folder / name).write_text(text)
            arguments += [f"--{name}", str(self.folder / name)]
        return main([*arguments, *checks])


@pytest.fixture
def run(tmp_path):
    return Run(tmp_path)


def test_passed_cases_and_checks_are_counted(run, capsys):
    run.add(PASSED * 2)
    assert run.count("ruff check=0") == 0
    assert capsys.readouterr().out == "3 passed, 0 failed\n"


def test_the_cases_of_an_accuracy_test_count(run, capsys):
    run.add(PASSED + PASSED, suite="accuracy")
    assert run.count() == 0
    assert capsys.readouterr().out == "2 passed, 0 failed\n"


@pytest.mark.parametrize("case", [FAILED, BROKEN])
def test_a_failed_case_fails_and_shows_the_log(run, capsys, case):
    run.add(PASSED + case, status="FAILED")
    assert run.count() == 1
    out = capsys.readouterr().out
    assert "the log's last line" in out
    assert out.endswith("\n1 passed, 1 failed\n")


def test_an_unexpected_skip_fails(run, capsys):
    run.add(PASSED + SKIPPED)
    assert run.count() == 1
    assert "FAILED //tests:test_a tests.test_a::test_s skipped: no GPU" in capsys.readouterr().out


def test_an_expected_skip_is_named_with_its_reason(run, capsys):
    run.skips = "# a comment\ntests.test_a::test_s # needs a GPU\n"
    run.add(PASSED + SKIPPED)
    assert run.count() == 0
    expected = "SKIPPED tests.test_a::test_s: needs a GPU\n1 passed, 0 failed\n"
    assert capsys.readouterr().out == expected


def test_a_report_without_cases_fails(run, capsys):
    run.add("")
    assert run.count("ruff=0") == 1
    assert "FAILED //tests:test_a reports no test" in capsys.readouterr().out


def test_a_report_that_bazel_wrote_itself_fails(run, capsys):
    run.add(PASSED, suite="//tests:test_a")
    assert run.count("ruff=0") == 1
    assert "reports no test" in capsys.readouterr().out


def test_a_target_that_did_not_run_fails(run, capsys):
    assert run.count("ruff=0") == 1
    expected = "FAILED //tests:test_a did not run\n1 passed, 1 failed\n"
    assert capsys.readouterr().out == expected


def test_a_target_that_is_expected_not_to_run_is_named(run, capsys):
    run.skips = "//tests:test_a # only on another system\n"
    assert run.count("ruff=0") == 0
    assert "SKIPPED //tests:test_a: only on another system" in capsys.readouterr().out


def test_a_failed_target_whose_cases_passed_fails(run, capsys):
    run.add(PASSED, status="TIMEOUT")
    assert run.count() == 1
    assert "//tests:test_a is TIMEOUT though no test of it failed" in capsys.readouterr().out


def test_a_failed_check_fails(run, capsys):
    run.add(PASSED)
    assert run.count("ruff=3") == 1
    assert "FAILED ruff ended with exit code 3" in capsys.readouterr().out


def test_a_test_file_of_no_target_fails(run, capsys):
    run.add(PASSED)
    (run.folder / "tests/test_forgotten.py").touch()
    assert run.count() == 1
    assert "FAILED tests/test_forgotten.py belongs to no test target" in capsys.readouterr().out


def test_nothing_at_all_is_no_success(run):
    run.targets = ""
    assert run.count() == 1


@pytest.mark.parametrize("line", ["tests.test_a::test_s", "tests.test_a::test_s # "])
def test_an_expected_skip_needs_a_reason(line):
    with pytest.raises(ExpectedSkipsError, match="expected `<test> # <reason>`"):
        read_expected_skips(line)


def test_the_file_of_expected_skips_can_be_read():
    text = (Path(__file__).parents[1] / "expected_skips.txt").read_text()
    assert isinstance(read_expected_skips(text), dict)
