import math
from pathlib import Path

import numpy as np
import pytest

from comparison.details import compare_with_details
from comparison.pipeline import CompareOptions, compare
from comparison.report.build_report import build_report
from comparison.report.report_model import Report, RowKind, Tone
from comparison.report.report_places import place_of
from comparison.schema.diagnosis import Coverage, Diagnosis, Growth, Guilty, Judgement, Spot
from comparison.schema.tolerance import Tolerance
from tests.comparison.dumps import numbers, write_dump
from tests.comparison.report.html.hostile_pair import FAULTY, report_of, write_pair

QKV = ("q_proj", "k_proj", "v_proj")


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    return report_of(tmp_path_factory.mktemp("pair"))


def test_every_tensor_of_either_side_has_a_row(report: Report) -> None:
    reference = sum(row.reference is not None for row in report.rows)
    candidate = sum(row.candidate is not None for row in report.rows)
    assert (reference, candidate) == (report.reference.tensors, report.candidate.tensors)
    assert len({row.id for row in report.rows}) == len(report.rows)


def test_the_verdict_is_the_diagnosis(report: Report) -> None:
    assert (report.verdict, report.tone) == ("diverge", Tone.BAD)
    assert "model.model.layers.2.mlp" in report.sentence
    assert not report.is_replayed
    guilty = [row for row in report.rows if row.guilty]
    assert [(row.reference, row.step) for row in guilty] == [(FAULTY, 0)]
    assert guilty[0].detail is not None


def test_a_lone_tensor_of_the_candidate_stands_in_the_references_tree(report: Report) -> None:
    row = next(row for row in report.rows if row.id.endswith("layers.3.mlp.fused_only-output"))
    assert row.kind is RowKind.CANDIDATE_ONLY
    assert (row.module, row.leaf) == ("model.model.layers.3.mlp.fused_only", "output")
    assert row.reason


def test_what_cannot_be_allowed_is_infinitely_far_apart(report: Report) -> None:
    by_name = {row.reference: row for row in report.rows}
    for name in ("with_nan", "of_a_shape"):
        assert by_name[name].severity == math.inf
        assert by_name[name].outcome
    assert by_name["only_here"].severity is None


def test_figures_of_a_pair(tmp_path: Path) -> None:
    right = numbers(6, 7)
    wrong = right.copy()
    wrong[2, 3] *= 1.5
    write_dump(tmp_path / "a", [{"x": right}])
    write_dump(tmp_path / "b", [{"x": wrong}])
    options = CompareOptions(tolerance=Tolerance(rtol=0.125, atol=0.0))
    compared, details = compare_with_details(tmp_path / "a", tmp_path / "b", options)
    report = build_report(compared, details=details)
    (row,) = report.rows
    assert (report.verdict, row.finding, report.detailed) == ("differ", "differs", 1)
    assert row.severity == pytest.approx(4.0)
    assert row.metrics is not None
    assert row.metrics.mismatched == "1 / 42 (2.4%)"
    assert row.metrics.relative_allowed == pytest.approx(0.125)
    assert row.metrics.snr_db == pytest.approx(-20 * math.log10(row.metrics.relative_l2))
    assert report.sentence.startswith("The dumps differ, 1 of 1 pair(s) with rtol=0.125")
    assert [point.row for point in report.depth] == [0]


def test_equal_dumps(tmp_path: Path) -> None:
    write_dump(tmp_path / "a", [{"x": numbers(6, 7)}])
    report = build_report(compare(tmp_path / "a", tmp_path / "a"))
    assert (report.verdict, report.tone, report.differing) == ("measured", Tone.NEUTRAL, 0)
    assert report.sentence == "Every pair is equal in value, in all that was compared."
    assert report.rows[0].metrics is not None
    assert report.rows[0].metrics.snr_db == math.inf


def test_measured_without_a_tolerance(tmp_path: Path) -> None:
    report = build_report(compare(*write_pair(tmp_path)))
    assert report.verdict == "differ"  # in shape and NaN
    assert report.tone is Tone.BAD


def test_local_errors_of_a_replay_reach_rows_and_plot(tmp_path: Path) -> None:
    write_dump(tmp_path / "a", [{"m-output": numbers(6, 7)}, {"m-output": numbers(2, 7)}])
    found = Diagnosis(
        verdict=Judgement.DIVERGE,
        sentence="It is wrong.",
        reference_engine="torch",
        candidate_engine="max",
        coverage=Coverage(paired=1, unpaired=0, replayed=1, modules=1, modules_checked=1),
        growth=(
            Growth(tensor="m-output", inherited=2e-3, local=1e-3, excess=50.0),
            Growth(tensor="elsewhere", inherited=math.nan, local=0.0, excess=0.0),
        ),
        guilty=(
            Guilty(
                module="m",
                candidate_module="m",
                tensor="m-output",
                candidate_tensor="m-output",
                between=None,
                spot=Spot(step=1, row=0, position=7),
                local_error=1e-3,
                bound=2e-5,
                excess=60.0,
            ),
        ),
    )
    report = build_report(compare(tmp_path / "a", tmp_path / "a"), diagnosis=found)
    assert report.is_replayed
    assert (report.reference.name, report.candidate.name) == ("torch", "max")
    assert [bool(row.guilty) for row in report.rows] == [False, True]  # in the step it begins
    error = report.rows[0].error
    assert error is not None
    assert error.rounding == pytest.approx(2e-5)
    assert [(point.name, point.row) for point in report.depth] == [
        ("m-output", 0),
        ("elsewhere", None),
    ]
    assert math.isnan(report.depth[1].error.rounding)


@pytest.mark.parametrize(
    ("name", "module", "leaf"),
    [
        ("model.layers.0.mlp-output_0", "model.layers.0.mlp", "output_0"),
        ("model.layers.0.mlp(2)-input_0", "model.layers.0.mlp", "(2)-input_0"),
        ("model.mlp@003.aten.mm", "model.mlp", "@003.aten.mm"),
        ("mlp_gate", "", "mlp_gate"),
        ("a.b", "a", "b"),
    ],
)
def test_names_are_taken_apart(name: str, module: str, leaf: str) -> None:
    place = place_of(name)
    assert (place.module, place.leaf) == (module, leaf)


def test_only_the_guilty_part_of_a_fused_tensor_is_marked(tmp_path: Path) -> None:
    layer = "model.model.layers.0.self_attn"
    parts = {f"{layer}.{name}-output": numbers(9, 8, seed=i) for i, name in enumerate(QKV)}
    fused = {"model.layers.layers.0.self_attn.qkv_proj-output": np.hstack(list(parts.values()))}
    write_dump(tmp_path / "a", [parts], engine="torch", lengths=(9,))
    write_dump(tmp_path / "b", [fused], engine="max", lengths=(9,))
    guilty = Guilty(
        module=f"{layer}.k_proj",
        candidate_module="model.layers.layers.0.self_attn.qkv_proj",
        tensor=f"{layer}.k_proj-output",
        candidate_tensor="model.layers.layers.0.self_attn.qkv_proj-output",
        between=None,
        spot=Spot(step=0, row=0, position=0),
        local_error=0.1,
        bound=1e-7,
        excess=1e6,
    )
    found = Diagnosis(
        verdict=Judgement.DIVERGE,
        sentence="It is wrong.",
        reference_engine="torch",
        candidate_engine="max",
        coverage=Coverage(paired=1, unpaired=0, replayed=1, modules=1, modules_checked=1),
        guilty=(guilty,),
    )
    report = build_report(compare(tmp_path / "a", tmp_path / "b"), diagnosis=found)
    assert len(report.rows) == 3
    assert [row.reference for row in report.rows if row.guilty] == [guilty.tensor]


def test_what_is_furthest_apart_is_told_in_its_own_unit(tmp_path: Path) -> None:
    fine, coarse = np.ones(5, dtype="float32"), np.ones(3, dtype="float16")
    write_dump(tmp_path / "a", [{"x-output": fine, "y-output": coarse}])
    away = {"x-output": fine * np.float32(1.001), "y-output": coarse * np.float16(1.004)}
    write_dump(tmp_path / "b", [away])
    found = compare(tmp_path / "a", tmp_path / "b")
    sentence = build_report(found).sentence
    assert "greatest relative L2" not in sentence  # that of y-output is greater
    assert "furthest apart is x-output (step 0), by 1.68e+04 roundings of its dtype" in sentence
    assert sentence.endswith("its relative L2 distance is 0.001.")


def test_zeros_of_both_signs_are_not_called_the_same_bits(tmp_path: Path) -> None:
    write_dump(tmp_path / "a", [{"x-output": np.zeros(3, dtype="float32")}])
    write_dump(tmp_path / "b", [{"x-output": -np.zeros(3, dtype="float32")}])
    sentence = build_report(compare(tmp_path / "a", tmp_path / "b")).sentence
    assert sentence == "Every pair is equal in value, in all that was compared."


def test_what_is_cut_short_and_not_judged_is_not_called_free_of_differences(tmp_path: Path) -> None:
    for side, factor in (("a", 1.0), ("b", 1.5)):
        (tmp_path / side).mkdir()
        np.save(tmp_path / side / "x-output.npy", np.full(3, factor, dtype="float32"))
        (tmp_path / side / "y-output.npy").write_bytes(b"no array")
    sentence = build_report(compare(tmp_path / "a", tmp_path / "b")).sentence
    assert sentence == "inconclusive, no tolerance was given, and the result is cut short."
