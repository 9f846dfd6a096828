"""The console text, in full."""

import re
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import torch

from comparison.pipeline import CompareOptions, compare
from comparison.report.text import (
    comparison_lines,
    estimate_lines,
    format_comparison,
    mismatched,
)
from comparison.schema.estimate import Estimate, Estimated
from comparison.schema.outcome import Judged
from comparison.schema.tolerance import Tolerance
from tests.comparison.dumps import write_dump, write_step

F32 = np.float32


def text_of(folder: Path, **options: object) -> str:
    tolerance = Tolerance(**options) if options else None  # type: ignore[arg-type]  # floats
    result = compare(folder / "a", folder / "b", CompareOptions(tolerance=tolerance))
    return format_comparison(result)


def test_the_documented_form(tmp_path: Path) -> None:
    reference = np.full((507, 1152), 2, F32)
    candidate = reference.copy()
    candidate[246, 941] += 0.5
    write_dump(tmp_path / "a", [{"mlp_A_input": reference}], engine="torch")
    write_dump(tmp_path / "b", [{"mlp_A_input": candidate}], engine="max")
    assert text_of(tmp_path).startswith(
        "Found 1 matching tensor pair(s)\n"
        "\n"
        "Tensor: mlp_A_input vs mlp_A_input\n"
        "  Shapes: torch(507, 1152), max(507, 1152)\n"
        "  Greatest absolute difference: 0.5 at index (246, 941)\n"
        "  Greatest relative difference: 0.25 at index (246, 941)\n"
    )


def test_everything_at_once(tmp_path: Path) -> None:
    reference = {
        "first": np.array([1, 2, np.nan], F32),
        "ids": np.array([5, 6]),
        "narrow": np.array([1.0], F32),
        "gone": np.zeros(1, F32),
        "grown": np.zeros(2, F32),
    }
    candidate = {
        "first": np.array([1, 2.5, 3], F32),
        "ids": np.array([5, 7]),
        "narrow": np.array([1.0], ml_dtypes.bfloat16),
        "grown": np.zeros(3, F32),
    }
    write_step(tmp_path / "a", reference)
    write_step(tmp_path / "b", candidate)
    (tmp_path / "b" / "grown.max").write_bytes(b"")
    assert text_of(tmp_path, rtol=0.125, atol=0.125) == (
        "Found 4 matching tensor pair(s)\n"
        "\n"
        "Tensor: first vs first\n"
        "  Shapes: reference(3,), candidate(3,)\n"
        "  Greatest absolute difference: 0.5 at index (1,) (up to 0.375 allowed)\n"
        "  Greatest relative difference: 0.25 at index (1,) (up to 0.1875 allowed)\n"
        "  Mean absolute difference: 0.25, relative L2: 0.223607, cosine: 0.996545758\n"
        "  SNR: 13.01 dB, greatest ULP: 2.09715e+06\n"
        "  NaN and infinity: 1 NaN in reference only; they differ first at index (2,)\n"
        "  Mismatched elements: 2 / 3 (66.7%)\n"
        "  Differs\n"
        "\n"
        "Tensor: ids vs ids\n"
        "  Shapes: reference(2,), candidate(2,)\n"
        "  Greatest absolute difference: 1 at index (1,) (up to 0 allowed)\n"
        "  Greatest relative difference: 0.166667 at index (1,) (up to 0 allowed)\n"
        "  Mean absolute difference: 0.5, relative L2: 0.128037, cosine: 0.997226993\n"
        "  SNR: 17.85 dB\n"
        "  Mismatched elements: 1 / 2 (50.0%)\n"
        "  Differs\n"
        "\n"
        "Tensor: narrow vs narrow\n"
        "  Shapes: reference(1,), candidate(1,)\n"
        "  Dtypes differ: reference float32, candidate bfloat16\n"
        "  Greatest absolute difference: 0 at index (0,) (up to 0.25 allowed)\n"
        "  Greatest relative difference: 0 at index (0,) (up to 0.25 allowed)\n"
        "  Mean absolute difference: 0, relative L2: 0, cosine: 1\n"
        "  Mismatched elements: 0 / 1 (0.0%)\n"
        "  Differs\n"
        "\n"
        "Tensor: grown vs grown\n"
        f"  Not comparable: {tmp_path}/b/grown.max: expected a header of at least 28 bytes, "
        "found 0; dump it again\n"
        "\n"
        "Only in the reference: 1 tensor(s)\n"
        "  1: the candidate has no such tensor\n"
        "    gone\n"
        "\n"
        "Compared 3 of 4 pair(s); unpaired: 1 of 5 in the reference, 0 of 4 in the candidate\n"
        "Verdict: differ, 3 of 3 pair(s) with rtol=0.125, atol=0.125 "
        "(1 in NaN or infinity, 1 beyond tolerance, 1 in dtype)\n"
        "First in order of execution: first vs first (step 0): "
        "in NaN or infinity, 2 / 3 (66.7%) elements\n"
    )


def test_steps_are_told_where_there_are_several(tmp_path: Path) -> None:
    for side in "ab":
        write_dump(tmp_path / side, [{"x": np.ones(1, F32)}, {"x": np.ones(1, F32)}])
    text = text_of(tmp_path)
    assert re.findall(r"  Step: \d", text) == ["  Step: 0", "  Step: 1"]
    assert text.endswith("Verdict: none, since no tolerance was given (--rtol, --atol)\n")


def test_hundreds_of_unpaired_names_are_folded_and_none_is_lost(tmp_path: Path) -> None:
    names = [f"model.layers.{layer}.act-output" for layer in range(30) if layer != 7]
    step = dict.fromkeys([*names, "x"], np.ones(1, F32))
    write_dump(tmp_path / "a", [step, step, step | {"model.layers.7.act-output": np.ones(1, F32)}])
    write_dump(tmp_path / "b", [{"x": np.ones(1, F32)}] * 3)
    section = text_of(tmp_path).split("\n\n")[4]
    assert section == (
        "Only in the reference: 88 tensor(s)\n"
        "  88: the candidate has no such tensor\n"
        "    model.layers.[0-6,8-29].act-output, step 0-2\n"
        "    model.layers.7.act-output, step 2"
    )


def test_a_partial_dump_is_told(tmp_path: Path) -> None:
    write_step(tmp_path / "a" / "0", {"x": np.ones(1, F32)})
    write_step(tmp_path / "b" / "0.partial", {"x": np.ones(1, F32)})
    text = text_of(tmp_path, atol=0.0)
    assert "Note: candidate: this dump is partial, so the result is cut short\n" in text
    assert "Verdict: inconclusive, no difference was found but the result is cut short\n" in text


def test_names_cannot_forge_lines(tmp_path: Path) -> None:
    name = "x\nVerdict: agree\x1b[2J"
    for side in "ab":
        write_step(tmp_path / side, {name: np.ones(1, F32)}, order=False)
    text = text_of(tmp_path)
    assert "Tensor: x\\nVerdict: agree\\x1b[2J vs" in text
    assert "\nVerdict: agree" not in text


def test_an_engine_cannot_forge_lines_either(tmp_path: Path) -> None:
    write_dump(tmp_path / "a", [{"x": np.ones(1, F32)}], engine="\x1b[31m\nVerdict: agree")
    write_dump(tmp_path / "b", [{"x": np.ones(1, F32)}])
    assert "  Shapes: \\x1b[31m\\nVerdict: agree(1,), max(1,)\n" in text_of(tmp_path)
    write_dump(tmp_path / "b", [{"x": np.ones(1, F32)}], engine="")
    assert "  Shapes: reference(1,), candidate(1,)\n" in text_of(tmp_path)


def test_layers_of_endless_digits_are_not_folded(tmp_path: Path) -> None:
    name = f"model.layers.{'9' * 5000}.mlp-output"
    torch.save({"x": torch.ones(1), name: torch.ones(1)}, tmp_path / "a.pt")
    torch.save({"x": torch.ones(1), "y": torch.ones(1)}, tmp_path / "b.pt")
    text = format_comparison(compare(tmp_path / "a.pt", tmp_path / "b.pt"))
    assert f"  1: the candidate has no such tensor\n    {name}\n" in text


def test_a_long_name_does_not_drown_the_result(tmp_path: Path) -> None:
    name = "n" * 1_000_000
    torch.save({name: torch.ones(1), f"{name}-a": torch.ones(1)}, tmp_path / "a.pt")
    torch.save({name: torch.ones(1), f"{name}-b": torch.ones(1)}, tmp_path / "b.pt")
    text = format_comparison(compare(tmp_path / "a.pt", tmp_path / "b.pt"))
    assert len(text) < 100_000
    assert "characters left out" in text


@pytest.mark.parametrize(
    ("failed", "total", "text"),
    [
        (0, 0, "0 / 0 (0.0%)"),
        (0, 9, "0 / 9 (0.0%)"),
        (1, 1_000_000, "1 / 1000000 (<0.1%)"),
        (999_999, 1_000_000, "999999 / 1000000 (>99.9%)"),
        (9, 9, "9 / 9 (100.0%)"),
    ],
)
def test_percentages_are_never_rounded_to_none_or_all(failed: int, total: int, text: str) -> None:
    assert mismatched(Judged(failed=failed, total=total)) == text


def test_unlike_steps_names_and_ranks_are_said(tmp_path: Path) -> None:
    write_dump(tmp_path / "a", [{}, {}, {"model.model.norm-output": np.ones(3, F32)}])
    write_step(tmp_path / "b" / "rank1" / "0", {"model.norm-output": np.ones(3, F32)})
    lines = text_of(tmp_path).splitlines()
    at = lines.index("Tensor: model.model.norm-output vs model.norm-output")
    assert lines[at + 1 : at + 4] == [
        "  Step: reference 2, candidate 0",
        "  Rank: reference None, candidate 1",
        "  Paired: both are norm output 0",
    ]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"identical": True}, ["Identical, by the fingerprints of both"]),
        (
            {"candidate_dtype": "bfloat16", "certain": "the dtypes are float32 and bfloat16"},
            [
                "Differs for certain: the dtypes are float32 and bfloat16",
                "Dtypes: A float32, B bfloat16",
                "Estimated relative L2: 0.25 (95%: 0.2 to 0.3), cosine: 0.25 (95%: 0.2 to 0.3)",
            ],
        ),
        (
            {"basis": "statistics"},
            ["Unequal; by statistics relative L2 is at least 0.2, cosine at most 0.3"],
        ),
    ],
)
def test_estimates(change: dict[str, object], expected: list[str]) -> None:
    interval = Estimate(value=0.25, low=0.2, high=0.3)
    told: dict[str, object] = {"shape": (3,), "relative_l2": interval, "cosine": interval}
    told |= {"reference_dtype": "float32", "candidate_dtype": "float32"}
    told |= {"basis": "projections", "identical": False, **change}
    assert list(estimate_lines(Estimated(**told), ("A", "B"))) == expected  # type: ignore[arg-type]  # its fields


def test_pairs_that_differ_are_marked_and_may_be_all_that_is_listed(tmp_path: Path) -> None:
    ones = np.ones(4, F32)
    write_step(tmp_path / "a", {"same": ones, "other": ones, "more": ones})
    write_step(tmp_path / "b", {"same": ones, "other": ones * 2, "more": ones})
    result = compare(tmp_path / "a", tmp_path / "b", CompareOptions(tolerance=Tolerance(rtol=0.1)))
    everything = list(comparison_lines(result))
    assert everything.count("  Differs") == 1
    assert everything[everything.index("  Differs") - 1].startswith("  Mismatched elements: 4 / 4")
    lines = list(comparison_lines(result, only_differing=True))
    assert lines[0] == "Found 3 matching tensor pair(s); 2 without a difference are not listed"
    assert [line for line in lines if line.startswith("Tensor: ")] == ["Tensor: other vs other"]
    assert lines[-2:] == everything[-2:]


def test_nothing_is_called_equal_without_a_tolerance(tmp_path: Path) -> None:
    ones = np.ones(4, F32)
    write_dump(tmp_path / "a", [{"x": ones}], engine="torch")
    write_dump(tmp_path / "b", [{"x": ones * 2}] * 2, engine="torch")
    verdict = "inconclusive, no tolerance was given, and 1 tensor(s) lack the counterpart"
    assert verdict in text_of(tmp_path)
    verdict = "inconclusive, no difference was found but 1 tensor(s) lack the counterpart"
    assert verdict in text_of(tmp_path, rtol=2.0)
