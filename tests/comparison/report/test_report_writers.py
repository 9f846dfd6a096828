"""CSV, JUnit, Markdown, annotations and the table: one report, the same numbers in all."""

import csv
import io
import json
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from comparison.pipeline import CompareOptions, compare
from comparison.report.build_report import build_report
from comparison.report.csv_report import COLUMNS, reports_to_csv
from comparison.report.json_report import comparison_to_dict
from comparison.report.junit_report import reports_to_junit
from comparison.report.markdown_report import (
    ROWS_SHOWN,
    github_annotations,
    report_to_markdown,
)
from comparison.report.report_model import Report, Tone
from comparison.report.table_report import FIRST_MARK, report_to_table
from comparison.report.text import comparison_lines
from comparison.schema.comparison import Comparison
from comparison.schema.tolerance import Tolerance

HOSTILE = "=HYPERLINK(1)|<script>`]]>\x1b[31m\ufffe%0A::error::"


def write(folder: Path, tensors: dict[str, np.ndarray]) -> Path:
    folder.mkdir()
    for name, array in tensors.items():
        np.save(folder / f"{name}.npy", array)
    return folder


@pytest.fixture
def comparison(tmp_path: Path) -> Comparison:
    generator = np.random.default_rng(5)
    right = {
        f"layers.{n}.mlp-output": generator.normal(size=(3, 7)).astype("float32") for n in range(9)
    }
    wrong = {name: array.copy() for name, array in right.items()}
    wrong["layers.4.mlp-output"][2, 5] += 0.125
    wrong["layers.7.mlp-output"] = wrong["layers.7.mlp-output"][:, :5]
    del right["layers.8.mlp-output"]
    options = CompareOptions(tolerance=Tolerance(rtol=1e-5))
    return compare(write(tmp_path / "a", right), write(tmp_path / "b", wrong), options)


@pytest.fixture
def report(comparison: Comparison) -> Report:
    return build_report(comparison)


def test_numbers_are_the_same_in_all(comparison: Comparison, report: Report) -> None:
    (pair,) = [
        pair
        for pair in json.loads(json.dumps(comparison_to_dict(comparison)))["pairs"]
        if pair["reference"]["name"] == "layers.4.mlp-output"
    ]
    metrics = pair["outcome"]["metrics"]
    absolute, l2 = metrics["greatest_absolute"]["value"], metrics["relative_l2"]
    assert absolute == pytest.approx(0.125, rel=1e-5)
    (row,) = [r for r in table_of(report) if r["reference"] == "layers.4.mlp-output"]
    assert (float(row["max_abs"]), float(row["relative_l2"])) == (absolute, l2)
    shown = f"{absolute:.6g}", f"{l2:.6g}"
    (line,) = [line for line in plain(report).splitlines() if FIRST_MARK in line]
    assert all(text in line.split() for text in shown)
    (line,) = [
        line
        for line in report_to_markdown(report).splitlines()
        if line.startswith(r"| 0 | layers\.4") or line.startswith("| 0 | layers.4")
    ]
    assert all(f"| {text} |" in line for text in shown)
    (case,) = [
        case
        for case in ElementTree.fromstring(reports_to_junit([report])).iter("testcase")
        if "layers.4" in case.attrib["name"]
    ]
    message = case.find("failure").attrib["message"]
    assert f"difference {shown[0]} at [2, 5]" in message
    assert message.endswith(f"relative L2 {shown[1]}")


def table_of(report: Report) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(reports_to_csv([report]))))


def plain(report: Report) -> str:
    return report_to_table(report, width=80, is_terminal=False, color=True)


def test_csv_has_a_line_for_every_row(report: Report) -> None:
    lines = table_of(report)
    assert tuple(lines[0]) == COLUMNS
    assert [line["finding"] for line in lines].count("agrees") == 6
    by_name = {line["reference"] or line["candidate"]: line for line in lines}
    assert len(by_name) == len(report.rows) == 9
    assert by_name["layers.7.mlp-output"]["reference_shape"] == "3x7"
    assert by_name["layers.7.mlp-output"]["candidate_shape"] == "3x5"
    assert by_name["layers.8.mlp-output"]["kind"] == "candidate only"


def test_junit_counts_are_right(report: Report) -> None:
    suite = ElementTree.fromstring(reports_to_junit([report])).find("testsuite")
    cases = list(suite.iter("testcase"))
    assert int(suite.attrib["tests"]) == len(cases) == 10
    assert int(suite.attrib["failures"]) == len(list(suite.iter("failure"))) == 3
    assert int(suite.attrib["skipped"]) == len(list(suite.iter("skipped"))) == 1
    assert cases[0].attrib["name"] == "verdict"
    assert "differ" in cases[0].find("failure").attrib["message"]


def test_table_folds_what_agrees_and_marks_the_first_that_does_not(report: Report) -> None:
    lines = plain(report).splitlines()
    assert len(lines) == 1 + 5  # a heading; 0-3, 4, 5-6, 7, 8
    assert "layers.0.mlp-output ... layers.3.mlp-output" in lines[1]
    assert lines[1].endswith("4 agree")
    assert [FIRST_MARK in line for line in lines] == [False, False, True, False, False, False]
    assert "shapes differ" in lines[4]
    assert "\x1b" not in "".join(lines)


@pytest.mark.parametrize("color", [True, False])
def test_table_on_a_terminal_keeps_to_its_width(report: Report, *, color: bool) -> None:
    text = report_to_table(report, width=70, is_terminal=True, color=color)
    assert ("\x1b[31m" in text) is color
    bare = re.sub(r"\x1b\[[0-9;]*m", "", text)
    assert max(map(len, bare.splitlines())) <= 70
    assert "differs" in bare


def test_markdown_shows_a_limited_number_of_rows(tmp_path: Path) -> None:
    count = ROWS_SHOWN + 4
    ones = {f"l.{n}-output": np.ones(5, dtype="float32") for n in range(count)}
    twos = {name: 2 * array for name, array in ones.items()}
    options = CompareOptions(tolerance=Tolerance(atol=0.5))
    pages = report_to_markdown(
        build_report(compare(write(tmp_path / "a", ones), write(tmp_path / "b", twos), options))
    )
    assert sum(line.startswith("| 0 |") for line in pages.splitlines()) == ROWS_SHOWN
    assert "4 more of these rows are not shown." in pages


def test_annotations_only_where_something_is_wrong(tmp_path: Path, report: Report) -> None:
    (line,) = github_annotations(report)
    assert line.startswith("::error title=")
    ones = {"x-output": np.ones(5, dtype="float32")}
    same = compare(
        write(tmp_path / "c", ones),
        write(tmp_path / "d", ones),
        CompareOptions(tolerance=Tolerance()),
    )
    assert list(github_annotations(build_report(same))) == []


def test_hostile_names_stay_text(report: Report) -> None:
    from dataclasses import replace

    rows = tuple(replace(row, reference=HOSTILE, module=HOSTILE, id=HOSTILE) for row in report.rows)
    hostile = replace(report, rows=rows, sentence=HOSTILE + "\n::error::x")
    names = {line["reference"] for line in table_of(hostile)}
    assert all(name.startswith("'=") for name in names)
    assert "\x1b" not in reports_to_csv([hostile])
    parsed = ElementTree.fromstring(reports_to_junit([hostile]))
    assert all("<script>" in case.attrib["name"] for case in list(parsed.iter("testcase"))[1:])
    page = report_to_markdown(hostile)
    assert "<script>" not in page
    assert all(line.count(" | ") == 6 for line in page.splitlines() if line.startswith("| 0"))
    (command,) = github_annotations(hostile)
    assert "\n" not in command
    assert "%250A" in command
    assert "\x1b" not in plain(hostile)


@pytest.mark.parametrize(
    "begin", ["=", "+", "-", "@", "\t=", "\r=", "'=", "::error::\n", "%0A::e::"]
)
def test_names_begin_no_formula_and_no_command(report: Report, begin: str) -> None:
    name = f"{begin}1+1|`]]><b>\x00\x85"
    row = replace(report.rows[0], reference=name, module=name, id=name, reason=name)
    named = replace(report, rows=(row,), sentence=name, notes=(name,), evidence=((name,),))
    cells = next(csv.reader(io.StringIO(reports_to_csv([named]).split("\n", 1)[1])))
    assert not [cell for cell in cells if cell.startswith(("=", "+", "-", "@", "\t", "\r"))]
    (case, *_) = list(ElementTree.fromstring(reports_to_junit([named])).iter("testcase"))[1:]
    for shown in (case.attrib["name"], case.attrib["classname"]):
        assert "<b>" in shown
        assert "\x00" not in shown
    (line, *more) = github_annotations(replace(named, tone=Tone.BAD))
    assert more == []
    assert re.fullmatch(r"::error title=[^\n:]*::[^\n]*", line)
    page = report_to_markdown(named)
    assert "<b>" not in re.sub("(?s)(`{3,})text.*?\\1", "", page)
    assert not re.search(r"(?m)^::", page)
    assert not re.search(r"[\x00\x85]", page)


@pytest.mark.parametrize("width", [1, 20, 60, 80, 120, 300])
def test_table_never_cuts_a_figure(tmp_path: Path, width: int) -> None:
    right = {
        "a-output": np.ones(5, dtype="float32"),
        "b-output": np.array([2**63 - 1, -(2**63)]),
        "c-output": np.array([np.nan, 1.0], dtype="float32"),
        f"{'l.' * 60}-output": np.ones(3, dtype="float32"),
    }
    wrong = {name: array[::-1].copy() for name, array in right.items()}
    wrong["a-output"] = right["a-output"] * np.float32(1.001)
    options = CompareOptions(tolerance=Tolerance(rtol=1e-5))
    report = build_report(
        compare(write(tmp_path / "a", right), write(tmp_path / "b", wrong), options)
    )
    text = report_to_table(report, width=width, is_terminal=True, color=False)
    figures = [f"{row.metrics.absolute.value:.6g}" for row in report.rows if row.metrics][:1]
    for figure in (*figures, str(2**64 - 1)):
        assert any(figure in line.split() for line in text.splitlines())
    assert text.count("differs") == 3
    if max(map(len, text.splitlines())) > width:  # no room: whole lines, which a terminal wraps
        assert width <= 80
        assert "…" not in text


def test_table_shows_what_was_found_beside_long_words(tmp_path: Path) -> None:
    empty = {"model.layers.3.mlp-output": np.zeros(0, dtype="float32")}
    report = build_report(compare(write(tmp_path / "a", empty), write(tmp_path / "b", empty)))
    text = report_to_table(report, width=80, is_terminal=True, color=False)
    assert "model.layers.3.mlp-output" in text
    assert "measured; no" in text


@pytest.mark.parametrize(
    "name", ["::error::x-output", "  ::error::x-output", "a##[error]x-output", "##vso[x]-output"]
)
def test_names_are_no_commands_of_a_ci_service(tmp_path: Path, name: str) -> None:
    ones = {name: np.ones(3, dtype="float32")}
    other = {"y-output": np.ones((2, 5), dtype="float32")}
    for number, (left, right) in enumerate([(ones, other), (ones, ones)]):
        folder = tmp_path / str(number)
        folder.mkdir()
        found = compare(write(folder / "a", left), write(folder / "b", right))
        report = build_report(found)
        texts = [*comparison_lines(found), *plain(report).splitlines()]
        texts += report_to_markdown(report).splitlines()
        assert not any(re.match(r"\s*::", line) or re.search(r"##\w*\[", line) for line in texts)


def test_names_do_not_turn_the_direction_of_writing(report: Report) -> None:
    turned = replace(report, rows=(replace(report.rows[0], reference="a\u202eb\u2066c", id="x"),))
    for text in (plain(turned), reports_to_csv([turned]), reports_to_junit([turned])):
        assert "\u202e" not in text
        assert "\u2066" not in text


def test_a_long_name_fills_no_report(report: Report) -> None:
    name = "n" * 1_000_000
    row = replace(report.rows[0], reference=name, candidate=name, module=name, id=name, reason=name)
    named = replace(report, rows=(row,), sentence=name, notes=(name,), evidence=((name,),))
    texts = (
        plain(named),
        reports_to_csv([named]),
        reports_to_junit([named]),
        report_to_markdown(named),
        *github_annotations(replace(named, tone=Tone.BAD)),
    )
    assert [len(text) for text in texts if len(text) > 80_000] == []


def test_markdown_makes_no_link_of_a_name(report: Report) -> None:
    named = replace(report, sentence="see www.example.com and WWW.example.com")
    assert not re.search(r"(?i)www\.", report_to_markdown(named))


def test_csv_tells_a_scalar_from_an_unknown_shape(tmp_path: Path) -> None:
    scalar = {"x-output": np.float32(3.0), "y-output": np.ones((1, 3), dtype="float32")}
    found = compare(write(tmp_path / "a", scalar), write(tmp_path / "b", scalar))
    assert [line["reference_shape"] for line in table_of(build_report(found))] == ["scalar", "1x3"]


def failed(report: Report) -> list[tuple[str, str]]:
    cases = ElementTree.fromstring(reports_to_junit([report])).iter("testcase")
    return [
        (case.attrib["name"], failure.attrib["type"])
        for case in cases
        for failure in case.iter("failure")
    ]


def test_junit_is_as_red_as_the_verdict(report: Report) -> None:
    good = replace(report, tone=Tone.GOOD, verdict="agree")
    assert failed(good) == []  # such as a candidate of a narrower dtype, which a replay clears
    rows = list(report.rows)
    rows[0] = replace(rows[0], guilty=("it is wrong by itself",))
    rows[4] = replace(rows[4], harmless="a constant")
    said = failed(replace(report, rows=tuple(rows)))
    assert (rows[0].id, "guilty") in said
    assert rows[4].id not in [name for name, _ in said]
    assert (rows[7].id, "differs") in said
