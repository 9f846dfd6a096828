"""Checks that pass or fail, on real runs of a tiny model."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from comparison.schema.diagnosis import InputDifference, Judgement
from comparison.schema.errors import BadInputError, EngineError
from comparison.schema.tolerance import Tolerance
from comparison.store.dump import open_dump
from diagnosis.accuracy import AccuracyCheck, AccuracyResult, check_accuracy, write_reports
from diagnosis.side_runs import RunOptions, run_side
from diagnosis.sides import DumpSide, EngineSide
from tests.diagnosis.accuracy_oracles import FAULT, ORACLES

WIDE = Tolerance(rtol=0.5, atol=0.5)
PROMPTS = ("A first prompt of some words.", "Another one")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checks")
    (folder / "my_oracles.py").write_text(ORACLES)
    return folder


@pytest.fixture(scope="module")
def golden(folder: Path) -> Path:
    side = run_side(EngineSide(engine="torch"), folder / "golden", run_options(folder, "RIGHT"))
    return side.dump.path


@pytest.fixture(scope="module")
def diverging(folder: Path) -> AccuracyResult:
    """Two engines that differ, with a tolerance that is too narrow for it."""
    return check(folder, "diverging", candidate="WRONG", tolerance=Tolerance(rtol=1e-6))


def run_options(folder: Path, pipeline: str, **more: object) -> RunOptions:
    options = {"num_hidden_layers": 1, "num_steps": 2, "prompts": PROMPTS} | more
    return RunOptions(pipeline=f"{folder}/my_oracles.py:{pipeline}", **options)


def check(
    folder: Path,
    name: str,
    *,
    candidate: str,
    reference: Path | None = None,
    pipeline: str = "RIGHT",
    tolerance: Tolerance | None = None,
    **more: object,
) -> AccuracyResult:
    asked = AccuracyCheck(
        reference=EngineSide(engine="torch") if reference is None else DumpSide(path=reference),
        candidate=EngineSide(engine="torch", oracle=f"{folder}/my_oracles.py:{candidate}"),
        run=run_options(folder, pipeline, **more),
        tolerance=tolerance,
    )
    return check_accuracy(asked, folder / name)


def test_what_is_the_same_agrees(folder: Path) -> None:
    result = check(folder, "same", candidate="RIGHT", tolerance=WIDE)
    assert (result.exit_code, result.diagnosis.verdict) == (0, Judgement.AGREE)
    assert result.comparison is None  # there was nothing to accept
    assert not result.is_tolerated


def test_a_fault_fails_and_is_named(diverging: AccuracyResult) -> None:
    assert (diverging.exit_code, diverging.is_tolerated) == (1, False)
    assert FAULT in diverging.sentence
    lines = list(diverging.lines())
    assert any(FAULT in line for line in lines)
    told = lines[lines.index("By the tolerance (comparison.txt has all pairs):") :]
    assert any(line.startswith("  Verdict: differ, ") for line in told)
    assert diverging.comparison is not None
    assert diverging.comparison.exit_code == 1


def test_a_fault_within_the_tolerance_passes_and_is_told(folder: Path) -> None:
    result = check(folder, "wide", candidate="WRONG", tolerance=WIDE)
    assert (result.exit_code, result.is_tolerated) == (0, True)
    assert result.diagnosis.verdict is Judgement.DIVERGE
    assert result.sentence.startswith("Accepted, since every pair is within the tolerance: ")
    assert (
        next(result.lines()) == "Every pair is within the tolerance, so this verdict is accepted:"
    )
    assert FAULT in result.sentence


def test_no_tolerance_accepts_unlike_inputs(folder: Path) -> None:
    result = check(folder, "unlike", candidate="WRONG", tolerance=WIDE)
    tokens = InputDifference(
        kind="tokens", what="row 0", reference="1", candidate="2", decisive=True
    )
    result = replace(result, diagnosis=replace(result.diagnosis, inputs=(tokens,)))
    assert (result.exit_code, result.is_tolerated) == (1, False)


def test_reports_hold_verdict_and_pairs(diverging: AccuracyResult, tmp_path: Path) -> None:
    write_reports(diverging, tmp_path / "a" / "b")
    texts = {file.name: file.read_text() for file in (tmp_path / "a" / "b").iterdir()}
    assert set(texts) == {"verdict.txt", "verdict.json", "comparison.txt", "report.html"}
    assert FAULT in texts["report.html"]
    assert texts["verdict.txt"].startswith("Verdict: diverge\n")
    assert json.loads(texts["verdict.json"])["culprit"]["module"] == FAULT
    assert "Verdict: differ" in texts["comparison.txt"]


def test_against_a_kept_dump_no_reference_is_built(folder: Path, golden: Path) -> None:
    with pytest.raises(EngineError, match="no weights here"):
        check(folder, "not kept", candidate="RIGHT", pipeline="GONE")
    result = check(folder, "kept", candidate="RIGHT", pipeline="GONE", reference=golden)
    assert (result.exit_code, result.diagnosis.verdict) == (0, Judgement.AGREE)
    assert sorted(path.name for path in (folder / "kept").iterdir()) == ["candidate"]


def test_a_fault_is_found_against_a_kept_dump(folder: Path, golden: Path) -> None:
    result = check(folder, "kept wrong", candidate="WRONG", pipeline="GONE", reference=golden)
    assert result.exit_code == 1
    assert FAULT in result.sentence
    assert "give the test an engine as its reference" in result.diagnosis.notes[-1]


def test_a_candidate_runs_on_what_a_kept_dump_was_made_of(folder: Path, golden: Path) -> None:
    other = {"prompts": ("Not what the dump was made of",), "num_steps": 3, "num_hidden_layers": 4}
    result = check(folder, "kept other", candidate="RIGHT", reference=golden, **other)
    assert result.exit_code == 0
    kept, made = open_dump(golden).manifest, open_dump(folder / "kept other/candidate").manifest
    assert kept is not None
    assert made is not None
    assert [row.token_ids for row in made.rows] == [row.token_ids for row in kept.rows]
    assert len(kept.rows) == len(PROMPTS)
    assert (made.steps, made.config["num_hidden_layers"]) == (2, 1)


def test_a_kept_dump_without_manifest_is_refused(folder: Path, golden: Path) -> None:
    bare = folder / "bare"
    shutil.copytree(golden, bare)
    (bare / "manifest.json").unlink()
    with pytest.raises(BadInputError, match=r"bare: no manifest\.json, so it does not say what"):
        check(folder, "from bare", candidate="RIGHT", reference=bare)
    assert not (folder / "from bare").exists()


def test_a_kept_dump_that_does_not_exist_is_refused(folder: Path) -> None:
    with pytest.raises(BadInputError, match="nowhere"):
        check(folder, "from nowhere", candidate="RIGHT", reference=folder / "nowhere")
