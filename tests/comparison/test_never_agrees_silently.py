"""No path on which NaN, an empty set, a missing tensor or a skipped file ends as agreement."""

import json
import shutil
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from comparison.numerics.dtypes import Array
from comparison.pipeline import CompareOptions, compare
from comparison.report.build_report import build_report
from comparison.report.junit_report import reports_to_junit
from comparison.report.markdown_report import report_to_markdown
from comparison.report.report_model import Tone
from comparison.schema.comparison import Verdict
from comparison.schema.manifest import Manifest
from comparison.schema.tolerance import Tolerance
from comparison.store.manifest_file import read_manifest, write_manifest
from diagnosis.assertions import assert_close
from diagnosis.diff_models import DiffOptions, diff_sides
from diagnosis.sides import DumpSide
from tests.comparison.dumps import Tensors, make_manifest, numbers, write_dump, write_step
from tools.compare_tensors import compare_tensors
from tools.entry_point import run_command

TIGHT = Tolerance(rtol=1e-3, atol=1e-3)
LOOSE = Tolerance(rtol=1e9, atol=1e9, equal_nan=True, equal_inf=True)
GOOD = {"model.a-output": numbers(3, 5), "model.b-output": numbers(7)}
ONE = {"model.a-output": numbers(3, 5)}
NAN, INF = np.float32(np.nan), np.float32(np.inf)


def plus(array: Array) -> Tensors:
    return {**GOOD, "model.c-output": array}


@dataclass(frozen=True)
class Case:
    """Two dumps, and what comes of them.

    Attributes:
        make: writes the reference's and the candidate's dump.
        verdict: with a tolerance that allows any number, NaN and infinities alike.
        said: part of the line of the verdict.
        unjudged: the verdict without a tolerance.
        strict: the verdict with a tolerance that lets no NaN and no infinity pass.
    """

    make: Callable[[Path, Path], None]
    verdict: Verdict
    said: str
    unjudged: Verdict | None = None
    strict: Verdict | None = None


def pair(reference: Tensors, candidate: Tensors) -> Callable[[Path, Path], None]:
    def make(left: Path, right: Path) -> None:
        write_dump(left, [reference])
        write_dump(right, [candidate])

    return make


def damaged(damage: Callable[[Path], None], *, steps: int = 1) -> Callable[[Path, Path], None]:
    def make(left: Path, right: Path) -> None:
        for side in (left, right):
            write_dump(side, [GOOD] * steps)
        damage(right)

    return make


def changed_manifest(dump: Path, change: Callable[[Manifest], Manifest]) -> None:
    file = dump / "manifest.json"
    write_manifest(file, change(read_manifest(file)))


def cut_off(dump: Path) -> None:
    changed_manifest(dump, lambda manifest: replace(manifest, complete=False))


def shorten(dump: Path) -> None:
    file = dump / "0" / "model.b-output.max"
    file.write_bytes(file.read_bytes()[:-9])


def lose_step(dump: Path) -> None:
    """Leave no trace of a step, as of a run that was asked for fewer."""
    shutil.rmtree(dump / "1")
    changed_manifest(dump, lambda manifest: replace(manifest, steps=1))


def ranked(ranks: list[int]) -> Callable[[Path], None]:
    def make(dump: Path) -> None:
        for rank in ranks:
            write_step(dump / f"rank{rank}" / "0", GOOD)
        manifest = replace(make_manifest("vllm"), options={"tensor_parallel_size": 2})
        write_manifest(dump / "manifest.json", manifest)

    return make


def of_ranks(left: list[int], right: list[int]) -> Callable[[Path, Path], None]:
    def make(reference: Path, candidate: Path) -> None:
        ranked(left)(reference)
        ranked(right)(candidate)

    return make


NONE_LIKE = np.array([np.nan, 1, np.inf], np.float32)
CASES = {
    "NaN only": Case(
        pair({"m-output": np.full(5, NAN)}, {"m-output": np.full(5, NAN)}),
        Verdict.AGREE,
        "; 1 pair(s) hold NaN or infinity, alike on both sides",
        unjudged=Verdict.INCONCLUSIVE,
        strict=Verdict.DIFFER,
    ),
    "infinity only": Case(
        pair({"m-output": np.full(5, INF)}, {"m-output": np.full(5, INF)}),
        Verdict.AGREE,
        "; 1 pair(s) hold NaN or infinity, alike on both sides",
        unjudged=Verdict.INCONCLUSIVE,
        strict=Verdict.DIFFER,
    ),
    "NaN on both sides": Case(
        pair(plus(NONE_LIKE), plus(NONE_LIKE)),
        Verdict.AGREE,
        "all 3 pair(s) are within rtol=1e+09, atol=1e+09; 1 pair(s) hold NaN or infinity",
        unjudged=Verdict.MEASURED,
        strict=Verdict.DIFFER,
    ),
    "NaN on one side": Case(
        pair(plus(np.ones(3, np.float32)), plus(NONE_LIKE)),
        Verdict.DIFFER,
        "differ, 1 of 3 pair(s) with rtol=1e+09, atol=1e+09 (1 in NaN or infinity)",
    ),
    "NaN elsewhere": Case(
        pair({"m-output": NONE_LIKE}, {"m-output": NONE_LIKE[::-1].copy()}),
        Verdict.DIFFER,
        "(1 in NaN or infinity)",
    ),
    "infinity of another sign": Case(
        pair({"m-output": np.full(3, INF)}, {"m-output": np.full(3, -INF)}),
        Verdict.DIFFER,
        "(1 in NaN or infinity)",
    ),
    "no elements": Case(
        pair({"m-output": np.zeros((0, 4))}, {"m-output": np.zeros((0, 4))}),
        Verdict.INCONCLUSIVE,
        "nothing was compared",
    ),
    "one without elements": Case(
        pair(plus(np.zeros((0, 4))), plus(np.zeros((0, 4)))),
        Verdict.AGREE,
        "all 2 pair(s) are within rtol=1e+09, atol=1e+09; 1 pair(s) have nothing to measure",
        unjudged=Verdict.MEASURED,
    ),
    "no pair": Case(
        pair({"x-output": numbers(3)}, {"y-output": numbers(4, 2)}),
        Verdict.INCONCLUSIVE,
        "nothing was compared",
    ),
    "a tensor that the candidate lacks": Case(
        pair(GOOD, ONE), Verdict.INCONCLUSIVE, "1 tensor(s) lack the counterpart that they should"
    ),
    "a tensor that the reference lacks": Case(
        pair(ONE, GOOD), Verdict.INCONCLUSIVE, "1 tensor(s) lack the counterpart that they should"
    ),
    "a step that was not run": Case(
        damaged(lose_step, steps=2), Verdict.INCONCLUSIVE, "2 tensor(s) lack the counterpart"
    ),
    "a step that is gone": Case(
        damaged(lambda dump: shutil.rmtree(dump / "1"), steps=2),
        Verdict.INCONCLUSIVE,
        "2 tensor(s) lack the counterpart",
    ),
    "a file that is no tensor": Case(
        damaged(lambda dump: (dump / "0" / "model.b-output.max").write_bytes(b"no")),
        Verdict.INCONCLUSIVE,
        "cut short",
    ),
    "a file that is too short": Case(damaged(shorten), Verdict.INCONCLUSIVE, "cut short"),
    "a file that is gone": Case(
        damaged(lambda dump: (dump / "0" / "model.b-output.max").unlink()),
        Verdict.INCONCLUSIVE,
        "cut short",
    ),
    "a run that was cut off": Case(damaged(cut_off), Verdict.INCONCLUSIVE, "cut short"),
    "a rank that is missing": Case(of_ranks([0, 1], [0]), Verdict.INCONCLUSIVE, "cut short"),
    "a rank that both lack": Case(of_ranks([0], [0]), Verdict.INCONCLUSIVE, "cut short"),
    "another shape": Case(
        pair(plus(numbers(4, 6)), plus(numbers(4, 7))), Verdict.DIFFER, "differ, 1 of 3 pair(s)"
    ),
    "another kind": Case(
        pair(plus(np.ones(3, np.int32)), plus(np.ones(3, np.float32))),
        Verdict.DIFFER,
        "differ, 1 of 3 pair(s)",
    ),
}
CODES = {Verdict.AGREE: 0, Verdict.MEASURED: 0, Verdict.DIFFER: 1, Verdict.INCONCLUSIVE: 2}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


@pytest.fixture
def dumps(case: Case, tmp_path: Path) -> tuple[Path, Path]:
    case.make(tmp_path / "reference", tmp_path / "candidate")
    return tmp_path / "reference", tmp_path / "candidate"


def test_comparison(case: Case, dumps: tuple[Path, Path]) -> None:
    found = compare(*dumps, CompareOptions(tolerance=LOOSE))
    assert (found.verdict, found.exit_code) == (case.verdict, CODES[case.verdict])
    strict = case.strict or case.verdict
    assert compare(*dumps, CompareOptions(tolerance=TIGHT)).verdict is strict
    assert compare(*dumps).verdict is (case.unjudged or case.verdict)
    if strict is Verdict.AGREE:
        assert_close(*dumps, rtol=1e-3)
    else:
        with pytest.raises(AssertionError):
            assert_close(*dumps, rtol=1e-3)


def test_reports_have_the_colour_of_the_verdict(case: Case, dumps: tuple[Path, Path]) -> None:
    tones = {Verdict.AGREE: Tone.GOOD, Verdict.DIFFER: Tone.BAD, Verdict.INCONCLUSIVE: Tone.UNSURE}
    report = build_report(compare(*dumps, CompareOptions(tolerance=LOOSE)))
    assert report.tone is tones[case.verdict]
    assert case.said in report.sentence
    red = "<failure" in reports_to_junit([report])
    assert red is (case.verdict is not Verdict.AGREE)
    unjudged = build_report(compare(*dumps))
    if case.unjudged is Verdict.MEASURED:
        assert " But 1 pair(s) " in unjudged.sentence
    assert "✅" not in report_to_markdown(unjudged)


def test_command(
    case: Case,
    dumps: tuple[Path, Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    result = dumps[0].parent / "result.json"
    sides = ("--reference", str(dumps[0]), "--candidate", str(dumps[1]), "--json", str(result))
    loose = ("--rtol", "1e9", "--atol", "1e9", "--equal-nan", "--equal-inf")
    code, text = run(monkeypatch, capsys, *sides, *loose)
    assert code == CODES[case.verdict]
    (verdict,) = [line for line in text.splitlines() if line.startswith("Verdict: ")]
    assert case.said in verdict
    assert verdict.startswith(f"Verdict: {case.verdict}")
    written = json.loads(result.read_text())
    assert (written["verdict"], written["exit_code"]) == (case.verdict, code)
    code, text = run(monkeypatch, capsys, *sides)
    assert code == CODES[case.unjudged or case.verdict]
    assert "Verdict: agree" not in text


def test_verdict_of_two_dumps(case: Case, dumps: tuple[Path, Path]) -> None:
    found = diff_sides(
        DumpSide(path=dumps[0]), [DumpSide(path=dumps[1])], DiffOptions(keep_going=True)
    )
    # Of tensors with elements none may be missing; those without are told by the coverage.
    agrees = case.said.endswith("have nothing to measure")
    assert (found.exit_code == 0) is agrees, found.sentence
    assert ("2 of 3 modules that were checked" in found.sentence) is agrees


@pytest.mark.parametrize("name", ["empty", "empty step", "not there"])
def test_nothing_to_read_is_bad_input(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if name != "not there":
        for side in ("a", "b"):
            write_dump(tmp_path / side, [{}]) if name == "empty step" else (tmp_path / side).mkdir()
    sides = ("--reference", str(tmp_path / "a"), "--candidate", str(tmp_path / "b"))
    code, text = run(monkeypatch, capsys, *sides, "--rtol", "1")
    assert (code, text) == (2, "")


def test_what_was_left_out_on_purpose_is_told_and_no_gap(tmp_path: Path) -> None:
    pair(GOOD, ONE)(tmp_path / "a", tmp_path / "b")
    changed_manifest(tmp_path / "b", lambda m: replace(m, options={"filter": ["*.a"]}))
    found = compare(tmp_path / "a", tmp_path / "b", CompareOptions(tolerance=TIGHT))
    assert found.verdict is Verdict.AGREE
    sentence = build_report(found).sentence
    assert "all 1 pair(s) are within" in sentence
    assert "1 tensor(s) have no counterpart" in sentence


def test_engines_need_not_have_the_same_modules_but_the_same_steps(tmp_path: Path) -> None:
    write_dump(tmp_path / "a", [GOOD, GOOD], engine="torch")
    write_dump(tmp_path / "b", [ONE, ONE], engine="max")
    write_dump(tmp_path / "c", [ONE], engine="max")
    whole = compare(tmp_path / "a", tmp_path / "b", CompareOptions(tolerance=TIGHT))
    assert (whole.verdict, len(whole.unpaired), whole.gaps) == (Verdict.AGREE, 2, 0)
    assert "2 tensor(s) have no counterpart" in build_report(whole).sentence
    less = compare(tmp_path / "a", tmp_path / "c", CompareOptions(tolerance=TIGHT))
    assert (less.verdict, len(less.unpaired), less.gaps) == (Verdict.INCONCLUSIVE, 3, 2)


def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str
) -> tuple[int, str]:
    """Run compare_tensors in this process; return its exit code and what it printed."""
    monkeypatch.setattr(sys, "argv", ["compare_tensors", *arguments])
    monkeypatch.setattr(sys, "stdout", sys.stdout)  # put back afterwards
    handler = signal.getsignal(signal.SIGINT)
    try:
        with pytest.raises(SystemExit) as exit_info:
            run_command(compare_tensors)
    finally:
        signal.signal(signal.SIGINT, handler)
    assert isinstance(exit_info.value.code, int)
    return exit_info.value.code, capsys.readouterr().out
