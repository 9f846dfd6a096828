"""What a row says of pairs that are out of the ordinary, and how each form of a report shows it."""

import math
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import ml_dtypes
import numpy as np
import pytest

from comparison.numerics.dtypes import Array
from comparison.numerics.tensor_sketch import sketch_tensor
from comparison.pipeline import CompareOptions, compare
from comparison.report.build_report import build_report
from comparison.report.json_report import comparison_to_dict
from comparison.report.junit_report import reports_to_junit
from comparison.report.report_model import Report, RowKind
from comparison.report.table_report import report_to_table
from comparison.schema.comparison import Comparison
from comparison.schema.diagnosis import Cause, Coverage, Diagnosis, Guilty, Judgement, Spot
from comparison.schema.tolerance import Tolerance
from comparison.store.manifest_file import write_manifest
from comparison.store.sketch_file import write_sketches
from tests.comparison.dumps import make_manifest, numbers, write_dump, write_step

NAME = "model.layers.0.mlp-output"
VALUES = numbers(6, 40)
LOOSE = CompareOptions(tolerance=Tolerance(rtol=1e-3, atol=1e-3))


def sketched(path: Path, array: Array) -> Path:
    (path / "0").mkdir(parents=True)
    write_manifest(path / "manifest.json", make_manifest("torch"))
    write_sketches(path / "0" / "sketch.safetensors", {NAME: sketch_tensor(array)})
    return path


def of_sketches(
    tmp_path: Path, reference: Array, candidate: Array, options: CompareOptions | None = None
) -> Comparison:
    left, right = sketched(tmp_path / "left", reference), sketched(tmp_path / "right", candidate)
    return compare(left, right, options)


def of_arrays(tmp_path: Path, reference: Array, candidate: Array) -> Report:
    write_dump(tmp_path / "a", [{NAME: reference}])
    write_dump(tmp_path / "b", [{NAME: candidate}])
    return build_report(compare(tmp_path / "a", tmp_path / "b"))


def table_of(report: Report) -> str:
    return report_to_table(report, width=160, is_terminal=False, color=False)


def test_an_estimate_is_told_in_every_form(tmp_path: Path) -> None:
    found = of_sketches(tmp_path, VALUES, VALUES * np.float32(1.25))
    report = build_report(found)
    (row,) = report.rows
    assert row.outcome[0].startswith("Estimated relative L2: 0.25")
    assert row.severity == pytest.approx(0.25 / 2**-24, rel=0.05)
    assert row.metrics is None
    assert report.sentence.startswith(
        f"Measured without a tolerance: furthest apart is {NAME} (step 0), by 4."
    )
    assert "e+06 roundings of its dtype; sketches give no more than an estimate." in report.sentence
    told = comparison_to_dict(found)["pairs"][0]["outcome"]
    assert (told["kind"], told["basis"], told["identical"]) == ("estimated", "projections", False)
    assert 0.24 < told["relative_l2"]["value"] < 0.26
    assert "0.25" in table_of(report)


def test_sketches_of_one_tensor_are_no_distance_apart(tmp_path: Path) -> None:
    (row,) = build_report(of_sketches(tmp_path, VALUES, VALUES)).rows
    assert row.outcome == ("Identical, by the fingerprints of both",)
    assert row.severity == 0.0


def test_what_an_estimate_proves_is_infinitely_far_apart(tmp_path: Path) -> None:
    found = of_sketches(tmp_path, VALUES, VALUES * np.float32(2), LOOSE)
    (row,) = build_report(found).rows
    assert row.outcome[0].startswith("Differs for certain: the L2 distance is at least")
    assert row.severity == math.inf
    assert "<td>" in found._repr_html_()  # its distance stands there


def test_what_an_estimate_leaves_open_has_no_severity(tmp_path: Path) -> None:
    found = of_sketches(tmp_path, VALUES, VALUES * np.float32(1.0001), LOOSE)
    (row,) = build_report(found).rows
    assert (row.finding, row.severity) == ("undecided", None)


def test_integers_that_differ_have_to_be_equal(tmp_path: Path) -> None:
    ids = np.arange(12, dtype=np.int32).reshape(3, 4)
    report = of_arrays(tmp_path, ids, ids + (ids == 5))
    assert "by numbers that have to be equal; its relative L2" in report.sentence


def test_a_difference_of_precision_is_said(tmp_path: Path) -> None:
    small = VALUES.astype(ml_dtypes.bfloat16)
    (row,) = of_arrays(tmp_path, VALUES, small).rows
    assert row.outcome[0] == "dtypes differ: float32, bfloat16"
    assert row.dtypes == ("float32", "bfloat16")


def test_a_file_that_no_one_can_read_is_a_row_and_a_failure(tmp_path: Path) -> None:
    for side in ("a", "b"):
        write_step(tmp_path / side, {NAME: VALUES}, order=False)
    (tmp_path / "b" / "lone.npy").write_bytes(b"no numpy file")
    report = build_report(compare(tmp_path / "a", tmp_path / "b"))
    (row,) = [row for row in report.rows if row.kind is RowKind.UNREADABLE]
    assert (row.reference, row.candidate) == (None, "lone")
    assert "expected a .npy file" in row.reason
    suite = ElementTree.fromstring(reports_to_junit([report]))
    (failure,) = [f for f in suite.iter("failure") if f.attrib["type"] == "unreadable"]
    assert failure.attrib["message"] == row.reason
    table = table_of(report)
    assert "lone" in table  # it is folded under nothing


def test_one_name_twice_in_a_step_gets_ids_of_its_own(tmp_path: Path) -> None:
    write_dump(tmp_path / "a", [{NAME: VALUES}])
    found = compare(tmp_path / "a", tmp_path / "a")
    twice = replace(found, pairs=found.pairs * 3)
    ids = [row.id for row in build_report(twice).rows]
    assert ids == [f"0/{NAME}", f"0/{NAME}~2", f"0/{NAME}~3"]


@pytest.mark.parametrize(
    ("change", "phrases"),
    [
        (
            {"between": ("x-output", "y-output"), "cause": Cause(id="scale", evidence="twice")},
            (
                "model.layers.0.mlp is wrong by itself",
                "in its own computation, between x-output and y-output",
                "local error 0.5, rounding explains 1e-06; at the worst place 9 times that",
                "only row 3",
                "cause scale: twice",
            ),
        ),
        (
            {"bound": 0.0, "where": (), "cause": Cause()},
            ("model.layers.0.mlp is wrong by itself",),
        ),
    ],
    ids=["all", "nothing"],
)
def test_phrases_of_a_guilty_pair(
    tmp_path: Path, change: dict[str, object], phrases: tuple[str, ...]
) -> None:
    write_dump(tmp_path / "a", [{NAME: VALUES}])
    guilty = Guilty(
        module="model.layers.0.mlp",
        candidate_module=None,
        tensor=NAME,
        candidate_tensor=NAME,
        between=None,
        spot=Spot(step=0, row=0, position=None),
        local_error=0.5,
        bound=1e-6,
        excess=9,
        where=("only row 3",),
    )
    diagnosis = Diagnosis(
        verdict=Judgement.DIVERGE,
        sentence="It differs.",
        reference_engine="torch",
        candidate_engine="max",
        coverage=Coverage(paired=1, unpaired=0, replayed=1, modules=1, modules_checked=1),
        guilty=(replace(guilty, **change),),  # type: ignore[arg-type]  # of its fields
    )
    report = build_report(compare(tmp_path / "a", tmp_path / "a"), diagnosis=diagnosis)
    assert report.rows[0].guilty == phrases
