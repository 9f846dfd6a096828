"""Counts what a run of all checks gave, by what the tests themselves reported.

A test that was skipped or did not run at all is a failure, unless a file lists it with its reason.
"""

from __future__ import annotations

import argparse
import json
import sys
import urllib.parse
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

TAIL_LINES = 60
SUITES = ("pytest", "accuracy")  # of pytest_test and accuracy_test; Bazel's own tells nothing


class ExpectedSkipsError(ValueError):
    """The file of expected skips has a line that cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One test case, as its report has it."""

    name: str
    outcome: str  # "passed", "failed" or "skipped"
    detail: str = ""


@dataclass(slots=True, kw_only=True)
class TargetRun:
    """What Bazel did with one test target."""

    status: str = "NO_STATUS"
    reports: list[Path] = field(default_factory=list)
    logs: list[Path] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class Tally:
    """The counts and what to tell of each failure."""

    passed: int = 0
    skipped: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


def read_expected_skips(text: str) -> dict[str, str]:
    """Reads lines `<test or target> # <reason>`; lines that start with # are comments.

    Raises:
        ExpectedSkipsError: A line gives no reason.
    """
    expected = {}
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        name, separator, reason = line.partition(" # ")
        if not separator or not reason.strip():
            raise ExpectedSkipsError(f"expected `<test> # <reason>`, found {line!r}")
        expected[name.strip()] = reason.strip()
    return expected


def read_cases(report: Path) -> list[Case]:
    """Reads a test's own JUnit report.

    Returns:
        Its cases; none if the report is missing, broken, or not the test's own (Bazel writes one
        itself for a test that wrote none).
    """
    try:
        root = ElementTree.parse(report).getroot()
    except (OSError, ElementTree.ParseError):
        return []
    suites = [suite for suite in root.iter("testsuite") if suite.get("name") in SUITES]
    return [_read_case(element) for suite in suites for element in suite.iter("testcase")]


def _read_case(element: ElementTree.Element) -> Case:
    name = f"{element.get('classname')}::{element.get('name')}"
    for tag, outcome in [("failure", "failed"), ("error", "failed"), ("skipped", "skipped")]:
        found = element.find(tag)
        if found is not None:
            return Case(name=name, outcome=outcome, detail=found.get("message") or "")
    return Case(name=name, outcome="passed")


def read_events(lines: Iterable[str]) -> dict[str, TargetRun]:
    """Reads the file of --build_event_json_file.

    Returns:
        What happened to each test target that Bazel reports on.
    """
    runs: dict[str, TargetRun] = {}
    for line in lines:
        event = json.loads(line)
        for kind in ["testResult", "testSummary"]:
            if kind in event.get("id", {}) and kind in event:
                run = runs.setdefault(event["id"][kind]["label"], TargetRun())
                _add_event(run, kind, event[kind])
    return runs


def _add_event(run: TargetRun, kind: str, content: dict[str, object]) -> None:
    if kind == "testSummary":
        run.status = str(content.get("overallStatus", run.status))
        return
    outputs = content.get("testActionOutput", [])
    assert isinstance(outputs, list)
    for output in outputs:
        path = Path(urllib.parse.unquote(urllib.parse.urlparse(output.get("uri", "")).path))
        if output.get("name") == "test.xml":
            run.reports.append(path)
        if output.get("name") == "test.log":
            run.logs.append(path)


def judge_target(label: str, run: TargetRun | None, expected_skips: dict[str, str]) -> Tally:
    """Counts the cases of one target.

    Args:
        label: The target.
        run: What happened to it, None if Bazel says nothing of it.
        expected_skips: Reasons by test or target.

    Returns:
        Its part of the tally.
    """
    tally = Tally()
    if run is None or not run.reports:
        if label in expected_skips:
            tally.skipped.append(label)
        else:
            tally.failures.append(f"{label} did not run{_tail(run)}")
        return tally
    for case in [case for report in run.reports for case in read_cases(report)]:
        if case.outcome == "passed":
            tally.passed += 1
        elif case.outcome == "skipped" and case.name in expected_skips:
            tally.skipped.append(case.name)
        else:
            tally.failures.append(f"{label} {case.name} {case.outcome}: {case.detail}")
    if not tally.passed and not tally.skipped and not tally.failures:
        tally.failures.append(f"{label} reports no test{_tail(run)}")
    elif run.status != "PASSED" and not tally.failures:
        tally.failures.append(f"{label} is {run.status} though no test of it failed{_tail(run)}")
    elif tally.failures:
        tally.failures[-1] += _tail(run)
    return tally


def _tail(run: TargetRun | None) -> str:
    texts = []
    for log in run.logs if run else []:
        if log.is_file():
            lines = log.read_text(errors="replace").splitlines()[-TAIL_LINES:]
            texts.append("\n".join(["", *(f"    {line}" for line in lines)]))
    return "".join(texts)


def find_orphans(root: Path, sources: Iterable[str]) -> Iterator[str]:
    """Yields the test files that no test target runs.

    Args:
        root: The repository.
        sources: Labels of the sources of all test targets.
    """
    known = {label.removeprefix("//").replace(":", "/").lstrip("/") for label in sources}
    for file in sorted((root / "tests").rglob("test_*.py")):
        if file.relative_to(root).as_posix() not in known:
            yield file.relative_to(root).as_posix()


def judge(
    targets: Iterable[str],
    runs: dict[str, TargetRun],
    expected_skips: dict[str, str],
    checks: dict[str, int],
) -> Tally:
    """Counts all of it.

    Args:
        targets: The test targets that there are.
        runs: What happened, by target.
        expected_skips: Reasons by test or target.
        checks: Exit codes of what else was run, by name.

    Returns:
        The counts.
    """
    total = Tally()
    for label in sorted({*targets, *runs}):
        part = judge_target(label, runs.get(label), expected_skips)
        total.passed += part.passed
        total.skipped += part.skipped
        total.failures += part.failures
    for name, code in checks.items():
        if code == 0:
            total.passed += 1
        else:
            total.failures.append(f"{name} ended with exit code {code}")
    return total


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=Path, required=True, help="Bazel's build events, as JSON")
    parser.add_argument("--targets", type=Path, required=True, help="all test targets, one a line")
    parser.add_argument("--sources", type=Path, required=True, help="labels of their sources")
    parser.add_argument("--skips", type=Path, required=True, help="the expected skips")
    parser.add_argument("--root", type=Path, default=Path(), help="the repository")
    parser.add_argument("checks", nargs="*", metavar="NAME=CODE", help="other checks' exit codes")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    """Prints the failures and, last, the line of counts.

    Args:
        arguments: The command line.

    Returns:
        1 if anything failed or nothing passed, else 0.
    """
    options = parse_arguments(arguments)
    events = options.events.read_text().splitlines() if options.events.is_file() else []
    checks = {name: int(code) for name, _, code in (c.rpartition("=") for c in options.checks)}
    skips = read_expected_skips(options.skips.read_text())
    targets = options.targets.read_text().split()
    tally = judge(targets, read_events(events), skips, checks)
    orphans = find_orphans(options.root, options.sources.read_text().split())
    tally.failures += [f"{file} belongs to no test target" for file in orphans]
    for name in tally.skipped:
        print(f"SKIPPED {name}: {skips[name]}")
    for failure in tally.failures:
        print(f"FAILED {failure}")
    print(f"{tally.passed} passed, {len(tally.failures)} failed")
    return 1 if tally.failures or not tally.passed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
