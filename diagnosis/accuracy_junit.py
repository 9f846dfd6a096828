"""The results of several checks as a report in JUnit's form, which CI systems show case by case."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree import ElementTree

SUITE = "accuracy"
_NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedCase:
    """How the check of one pipeline ended.

    Attributes:
        pipeline: by the name the user gave.
        exit_code: 0 agree, 1 diverge, anything else: no verdict.
        sentence: the verdict, or what went wrong, in one sentence.
        lines: the verdict with its evidence.
        seconds: what it took.
    """

    pipeline: str
    exit_code: int
    sentence: str
    lines: Sequence[str] = ()
    seconds: float = 0.0


def junit_report(target: str, cases: Sequence[CheckedCase]) -> str:
    """Return the report: a verdict that diverges is a failure, none an error.

    Args:
        target: what the cases belong to.
        cases: in the order they were run.
    """
    failures = sum(case.exit_code == 1 for case in cases)
    counts = {
        "tests": len(cases),
        "failures": failures,
        "errors": sum(case.exit_code != 0 for case in cases) - failures,
        "skipped": 0,
        "time": f"{sum(case.seconds for case in cases):.3f}",
    }
    suites = ElementTree.Element("testsuites")
    suite = ElementTree.SubElement(
        suites, "testsuite", {"name": SUITE, **{key: str(count) for key, count in counts.items()}}
    )
    for case in cases:
        _add_case(suite, target, case)
    return ElementTree.tostring(suites, encoding="unicode", xml_declaration=True) + "\n"


def _add_case(suite: ElementTree.Element, target: str, case: CheckedCase) -> None:
    element = ElementTree.SubElement(
        suite,
        "testcase",
        {"classname": target, "name": _shown(case.pipeline), "time": f"{case.seconds:.3f}"},
    )
    if case.exit_code:
        tag = "failure" if case.exit_code == 1 else "error"
        found = ElementTree.SubElement(element, tag, {"message": _shown(case.sentence)})
        found.text = _shown("\n".join(case.lines))


def _shown(text: str) -> str:
    return _NOT_IN_XML.sub("\N{REPLACEMENT CHARACTER}", text)
