"""Dumps of sketches are paired as dumps of tensors are, and estimated."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from comparison.numerics.dtypes import Array
from comparison.numerics.tensor_sketch import TensorSketch, sketch_tensor
from comparison.pipeline import CompareOptions, compare
from comparison.report.text import format_comparison
from comparison.schema.comparison import Comparison, Finding, Verdict
from comparison.schema.errors import BadInputError
from comparison.schema.estimate import Estimated
from comparison.schema.manifest import Padding
from comparison.schema.outcome import KindDiffers, NotComparable, ShapeDiffers
from comparison.schema.tolerance import Tolerance
from comparison.sketch_comparison import compare_sketches
from comparison.store.dump import open_dump
from comparison.store.manifest_file import write_manifest
from comparison.store.sketch_file import write_sketches
from tests.comparison.dumps import make_manifest, write_dump

RANDOM = np.random.default_rng(12)
LENGTHS = (9, 4)
NAME = "model.layers.0.mlp-output"
HIDDEN = RANDOM.standard_normal((2, 9, 40)).astype(np.float32)
# Ragged: the rows one after the other, without padding.
RAGGED = np.concatenate([HIDDEN[row, :n] for row, n in enumerate(LENGTHS)])
LOOSE = CompareOptions(tolerance=Tolerance(rtol=1e-3, atol=1e-3))


def write(
    path: Path,
    tensors: Mapping[str, Array],
    *,
    padding: Padding = Padding.RIGHT,
    projects: bool = True,
    complete: bool = True,
    lengths: Sequence[int] = LENGTHS,
) -> Path:
    (path / "0").mkdir(parents=True)
    rows = [list(range(n)) for n in lengths]
    manifest = make_manifest("torch", padding=padding, rows=rows, complete=complete)
    write_manifest(path / "manifest.json", manifest)
    sketches = {name: sketch_tensor(array, projects=projects) for name, array in tensors.items()}
    write_sketches(path / "0" / "sketch.safetensors", sketches)
    return path


def one(result: Comparison) -> Estimated:
    [pair] = result.pairs
    assert isinstance(pair.outcome, Estimated), pair.outcome
    return pair.outcome


def both(
    tmp_path: Path, reference: Array, candidate: Array, options: CompareOptions | None = None
) -> Comparison:
    left = write(tmp_path / "left", {NAME: reference}, padding=Padding.NONE)
    right = write(tmp_path / "right", {NAME: candidate}, padding=Padding.NONE)
    return compare(left, right, options)


def test_a_difference_is_estimated_over_the_rows_that_both_have(tmp_path: Path) -> None:
    off = RAGGED + 1e-2 * RANDOM.standard_normal(RAGGED.shape).astype(np.float32)
    left = write(tmp_path / "left", {NAME: HIDDEN})
    right = write(tmp_path / "right", {NAME: off}, padding=Padding.RAGGED)
    found = one(compare(left, right))
    true = np.linalg.norm(off - RAGGED) / np.linalg.norm(RAGGED)
    assert found.relative_l2.low < true < found.relative_l2.high
    assert found.relative_l2.high < 1.3 * true
    assert found.shape == (13, 40)
    assert compare(left, right).exit_code == 0


def test_rows_are_the_same_in_a_dump_that_is_sketched_as_it_is_read(tmp_path: Path) -> None:
    left = write(tmp_path / "left", {NAME: HIDDEN})
    full = write_dump(tmp_path / "full", [{NAME: RAGGED}], padding=Padding.RAGGED, lengths=LENGTHS)
    for result in (compare(left, full), compare(full, left)):
        assert one(result).relative_l2.value < 3e-7
        assert not one(result).identical  # padding has no fingerprint of its own


@pytest.mark.parametrize("projects", [True, False])
def test_a_dump_against_itself_is_identical(tmp_path: Path, projects: bool) -> None:
    many = RANDOM.standard_normal((2, 4, 9, 60))
    many[0, 0, 0, :3] = -np.inf
    tensors = {NAME: HIDDEN, "model.many-output": many, "model.ids": np.arange(18).reshape(2, 9)}
    left = write(tmp_path / "left", tensors, projects=projects)
    right = write(tmp_path / "right", tensors, projects=projects)
    equal_inf = CompareOptions(tolerance=Tolerance(equal_inf=True))
    result = compare(left, right, equal_inf)
    assert [pair.finding for pair in result.pairs] == [Finding.AGREES] * 3
    assert (result.verdict, result.exit_code) == (Verdict.AGREE, 0)
    assert compare(left, right).verdict is Verdict.MEASURED
    strict = compare(left, right, CompareOptions(tolerance=Tolerance()))
    assert [pair.finding for pair in strict.pairs].count(Finding.DIFFERS) == 1


def test_what_is_within_the_tolerance_for_all_that_is_known_is_undecided(tmp_path: Path) -> None:
    result = both(tmp_path, HIDDEN, HIDDEN * np.float32(1.0001), LOOSE)
    assert [pair.finding for pair in result.pairs] == [Finding.UNDECIDED]
    assert (result.verdict, result.exit_code) == (Verdict.INCONCLUSIVE, 2)
    text = format_comparison(result)
    assert "Estimated relative L2: 0.0001" in text
    assert "inconclusive, sketches cannot tell whether all are within rtol=0.001" in text


def test_what_must_break_the_tolerance_differs(tmp_path: Path) -> None:
    result = both(tmp_path, HIDDEN, HIDDEN * np.float32(1.1), LOOSE)
    assert (result.verdict, result.exit_code) == (Verdict.DIFFER, 1)
    assert "Differs for certain: the L2 distance is at least" in format_comparison(result)


def test_shapes_and_kinds_differ_as_ever(tmp_path: Path) -> None:
    tensors = {"a-output": HIDDEN, "b-output": HIDDEN}
    others = {"a-output": HIDDEN[..., :39], "b-output": np.zeros(HIDDEN.shape, np.int32)}
    left = write(tmp_path / "left", tensors, padding=Padding.NONE)
    right = write(tmp_path / "right", others, padding=Padding.NONE)
    outcomes = [pair.outcome for pair in compare(left, right).pairs]
    assert isinstance(outcomes[0], ShapeDiffers)
    assert isinstance(outcomes[1], KindDiffers)
    assert compare(left, right).exit_code == 1


def test_another_precision_differs(tmp_path: Path) -> None:
    result = both(tmp_path, HIDDEN, HIDDEN.astype(np.float16))
    assert one(result).certain == "the dtypes are float32 and float16"
    assert one(result).relative_l2.value < 1e-3
    assert result.exit_code == 1


def test_rows_cut_otherwise_are_not_compared(tmp_path: Path) -> None:
    heads = HIDDEN[:, :4].reshape(2, 4, 5, 8)  # [B, S, N, D] against [B, S, N * D]
    left = write(tmp_path / "left", {NAME: HIDDEN[:, :4]}, padding=Padding.NONE)
    right = write(tmp_path / "right", {NAME: heads}, padding=Padding.NONE)
    allowed = CompareOptions(allow_reshape=True)
    [pair] = compare(left, right, allowed).pairs
    assert isinstance(pair.outcome, NotComparable)
    assert compare(left, right, allowed).exit_code == 2


def test_statistics_bound_what_they_cannot_tell(tmp_path: Path) -> None:
    left = write(tmp_path / "left", {NAME: HIDDEN}, padding=Padding.NONE)
    swapped = write(tmp_path / "swapped", {NAME: HIDDEN[:, ::-1]}, projects=False)
    (swapped / "manifest.json").write_bytes((left / "manifest.json").read_bytes())
    result = compare(left, swapped)
    assert one(result).basis == "statistics"
    assert one(result).relative_l2.low == 0
    assert "Unequal; by statistics relative L2 is at least 0" in format_comparison(result)


def test_a_dump_that_was_cut_off_is_inconclusive(tmp_path: Path) -> None:
    left = write(tmp_path / "left", {NAME: HIDDEN}, complete=False)
    result = compare(left, write(tmp_path / "right", {NAME: HIDDEN}))
    assert result.verdict is Verdict.INCONCLUSIVE
    assert any("cut off" in note for note in result.reference.notes)


def test_tensors_outrank_sketches_beside_them(tmp_path: Path) -> None:
    full = write_dump(tmp_path / "full", [{NAME: HIDDEN}], lengths=LENGTHS)
    write_sketches(full / "0" / "sketch.safetensors", {NAME: sketch_tensor(HIDDEN * 2)})
    [pair] = compare(full, full).pairs
    assert not isinstance(pair.outcome, Estimated)


def test_problems_of_both_sides_are_told_at_once(tmp_path: Path) -> None:
    left = write(tmp_path / "left", {NAME: HIDDEN})
    (left / "0" / "sketch.safetensors").write_bytes(b"no header")
    with pytest.raises(BadInputError, match=r"reference: .*sketch\.safetensors.*; candidate: "):
        compare_sketches(left, tmp_path / "nothing")


def test_a_reader_of_tensors_names_what_it_found(tmp_path: Path) -> None:
    write(tmp_path / "sketched", {NAME: HIDDEN})
    with pytest.raises(BadInputError, match=r"expected whole tensors in .*found sketches of them"):
        open_dump(tmp_path / "sketched")
    alone = tmp_path / "renamed.safetensors"
    alone.write_bytes((tmp_path / "sketched" / "0" / "sketch.safetensors").read_bytes())
    with pytest.raises(BadInputError, match=r"renamed.*expected whole tensors, found sketches"):
        compare(alone, alone)  # projections that agree are no tensors that do


@pytest.mark.parametrize("size", [0, 4 << 20], ids=["cut", "grown"])
def test_a_tensor_whose_file_changes_while_it_is_sketched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    array = np.ones((601, 701), np.float32)
    left = write(tmp_path / "left", {NAME: array, "good": array[:5]}, padding=Padding.NONE)
    right = write_dump(tmp_path / "right", [{NAME: array, "good": array[:5]}], engine="torch")
    [path] = [entry.path for entry in open_dump(right).entries if entry.name == NAME]

    def late(array: Array) -> TensorSketch:
        if array.size > 10_000:
            os.truncate(path, size)
        return sketch_tensor(array)

    monkeypatch.setattr("comparison.sketch_comparison.sketch_tensor", late)
    result = compare(left, right)
    outcome = {pair.reference.name: pair.outcome for pair in result.pairs}
    found, what = outcome[NAME], "changed" if size else "became shorter"
    assert isinstance(found, NotComparable)
    assert found.reason.startswith(f"{path}: expected one content from begin to end, but the file")
    assert f"the file {what} while it was read" in found.reason
    assert isinstance(outcome["good"], Estimated)
    assert result.exit_code == 2


def reason(left: Path, right: Path) -> str:
    [pair] = compare(left, right).pairs
    assert isinstance(pair.outcome, NotComparable), pair.outcome
    return pair.outcome.reason


def test_numbers_that_are_none_need_all_rows(tmp_path: Path) -> None:
    broken = HIDDEN.copy()
    broken[0, 3, 7] = np.nan
    left = write(tmp_path / "left", {NAME: broken})
    right = write(tmp_path / "right", {NAME: RAGGED}, padding=Padding.RAGGED)
    assert reason(left, right) == "it holds NaN or infinities, and not all rows are compared"


def test_statistics_need_all_rows(tmp_path: Path) -> None:
    left = write(tmp_path / "left", {NAME: HIDDEN}, projects=False)
    right = write(tmp_path / "right", {NAME: RAGGED}, padding=Padding.RAGGED)
    assert reason(left, right).startswith("statistics of a whole tensor do not tell of the rows")


def test_values_whose_norm_is_no_number(tmp_path: Path) -> None:
    huge = np.full((9, 40), 1.5e308)
    left = write(tmp_path / "left", {NAME: huge}, padding=Padding.NONE)
    right = write(tmp_path / "right", {NAME: -huge}, padding=Padding.NONE)
    assert reason(left, right) == "its values are too large for a sketch"


def test_a_part_of_a_fused_tensor_needs_the_tensor(tmp_path: Path) -> None:
    parts = {f"model.layers.0.self_attn.{n}_proj-output": HIDDEN for n in "qkv"}
    fused = {"model.layers.0.self_attn.qkv_proj-output": np.concatenate([HIDDEN] * 3, axis=-1)}
    found = compare(write(tmp_path / "left", parts), write(tmp_path / "right", fused))
    assert len(found.pairs) == 3
    for pair in found.pairs:
        assert isinstance(pair.outcome, NotComparable)
        assert pair.outcome.reason.endswith("out of its sketch: compare full dumps")


def test_folded_rows_are_estimated_in_one_layout_only(tmp_path: Path) -> None:
    lengths = (190, 120)
    padded = RANDOM.standard_normal((2, 190, 24)).astype(np.float32)
    ragged = np.concatenate([padded[row, :n] for row, n in enumerate(lengths)])
    found = one(both(tmp_path, padded, padded * np.float32(1.125))).relative_l2
    assert found.low < 0.125 < found.high
    left = write(tmp_path / "padded", {NAME: padded}, lengths=lengths)
    other = write(tmp_path / "other", {NAME: ragged}, padding=Padding.RAGGED, lengths=lengths)
    assert reason(left, other).startswith("a sketch adds up so many rows")


def test_progress_is_told_pair_by_pair(tmp_path: Path) -> None:
    left = write(tmp_path / "left", {NAME: HIDDEN, "b-output": HIDDEN})
    told: list[tuple[int, int, int]] = []
    compare_sketches(left, left, progress=lambda *numbers: told.append(numbers))
    assert [(done, of) for done, of, _ in told] == [(1, 2), (2, 2)]
