"""The result as strict JSON."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from comparison.pipeline import CompareOptions, compare
from comparison.report.json_report import comparison_to_json
from comparison.schema.tolerance import Tolerance
from tests.comparison.dumps import write_step


def refuse(literal: str) -> None:
    raise AssertionError(f"{literal} is not JSON")


def report(folder: Path, tolerance: Tolerance | None = None) -> dict[str, Any]:
    result = compare(folder / "a", folder / "b", CompareOptions(tolerance=tolerance))
    value: dict[str, Any] = json.loads(comparison_to_json(result), parse_constant=refuse)
    return value


def test_the_whole_schema(tmp_path: Path) -> None:
    one = np.array([1.0, 2.0], np.float32)
    write_step(tmp_path / "a", {"x": one, "only": one})
    write_step(tmp_path / "b", {"x": one + np.float32(0.5)})
    value = report(tmp_path, Tolerance(rtol=0.25))
    assert value == {
        "schema_version": 1,
        "verdict": "differ",
        "exit_code": 1,
        "cut_short": True,  # `only` has no counterpart in a dump of the same engine
        "order_known": True,
        "reference": {
            "path": str(tmp_path / "a"),
            "engine": "max",
            "tensors": 2,
            "complete": True,
            "notes": [],
        },
        "candidate": {
            "path": str(tmp_path / "b"),
            "engine": "max",
            "tensors": 1,
            "complete": True,
            "notes": [],
        },
        "tolerance": {"rtol": 0.25, "atol": 0.0, "equal_nan": False, "equal_inf": False},
        "counts": {"pairs": 1, "compared": 1, "differing": 1, "unpaired": 1, "unreadable": 0},
        "first_differing": {"reference": "x", "candidate": "x", "step": 0, "rank": None},
        "pairs": [
            {
                "reference": {
                    "name": "x",
                    "step": 0,
                    "order": 0,
                    "rank": None,
                    "path": str(tmp_path / "a" / "x.max"),
                    "key": None,
                    "shape": [2],
                },
                "candidate": {
                    "name": "x",
                    "step": 0,
                    "order": 0,
                    "rank": None,
                    "path": str(tmp_path / "b" / "x.max"),
                    "key": None,
                    "shape": [2],
                },
                "reason": "same name",
                "adjustments": [],
                "finding": "differs",
                "outcome": {
                    "kind": "compared",
                    "shape": [2],
                    "reference_dtype": "float32",
                    "candidate_dtype": "float32",
                    "dtype_differs": False,
                    "metrics": {
                        "kind": "measured",
                        "elements": 2,
                        "greatest_absolute": {
                            "value": 0.5,
                            "index": [0],
                            "reference": 1.0,
                            "candidate": 1.5,
                        },
                        "greatest_relative": {
                            "value": 0.5,
                            "index": [0],
                            "reference": 1.0,
                            "candidate": 1.5,
                        },
                        "mean_absolute": 0.5,
                        "relative_l2": value["pairs"][0]["outcome"]["metrics"]["relative_l2"],
                        "cosine": value["pairs"][0]["outcome"]["metrics"]["cosine"],
                        "snr_db": value["pairs"][0]["outcome"]["metrics"]["snr_db"],
                        "greatest_ulp": 0.5 * 2**23,
                        "worst_row": {
                            "index": [],
                            "relative_l2": value["pairs"][0]["outcome"]["metrics"]["relative_l2"],
                        },
                    },
                    "non_finite": {
                        "nan_both": 0,
                        "nan_reference_only": 0,
                        "nan_candidate_only": 0,
                        "inf_same_sign": 0,
                        "inf_opposite_sign": 0,
                        "inf_reference_only": 0,
                        "inf_candidate_only": 0,
                        "first_difference": None,
                    },
                    "judgement": {"kind": "judged", "failed": 1, "total": 2},
                },
            }
        ],
        "unpaired": [
            {
                "side": "reference",
                "name": "only",
                "step": 0,
                "order": 1,
                "rank": None,
                "path": str(tmp_path / "a" / "only.max"),
                "key": None,
                "reason": "the candidate has no such tensor",
            }
        ],
        "unreadable": [],
        "notes": [],
    }


def test_what_json_has_no_number_for(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    np.save(tmp_path / "a" / "big.npy", np.array([1e308]))
    np.save(tmp_path / "b" / "big.npy", np.array([-1e308]))
    np.save(tmp_path / "a" / "c.npy", np.array([1 + 2j]))
    np.save(tmp_path / "b" / "c.npy", np.array([1 - 2j]))
    np.save(tmp_path / "a" / "ids.npy", np.array([0], np.uint64))
    np.save(tmp_path / "b" / "ids.npy", np.array([2**64 - 1], np.uint64))
    metrics = [pair["outcome"]["metrics"] for pair in report(tmp_path)["pairs"]]
    assert metrics[0]["greatest_absolute"]["value"] == "Infinity"
    assert metrics[1]["greatest_absolute"]["reference"] == {"real": 1.0, "imag": 2.0}
    assert metrics[2]["greatest_absolute"]["value"] == 2**64 - 1


def test_other_outcomes(tmp_path: Path) -> None:
    write_step(tmp_path / "a", {n: np.ones(2, np.float32) for n in ("broken", "kind", "shape")})
    write_step(tmp_path / "b", {"kind": np.ones(2, bool), "shape": np.ones(3, np.float32)})
    (tmp_path / "b" / "broken.max").write_bytes(b"")
    kinds = [pair["outcome"]["kind"] for pair in report(tmp_path)["pairs"]]
    assert kinds == ["not_comparable", "dtype_kind_differs", "shape_differs"]
