"""Two dumps compared from end to end."""

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import torch

from comparison.pipeline import CompareOptions, compare
from comparison.schema.comparison import Comparison, Finding, Verdict
from comparison.schema.errors import BadInputError, MissingPathError
from comparison.schema.manifest import Padding
from comparison.schema.outcome import Compared, KindDiffers, Metrics, NotComparable, ShapeDiffers
from comparison.schema.tolerance import Tolerance
from comparison.store.manifest_file import read_manifest, write_manifest
from tests.comparison.dumps import numbers, write_dump, write_step

TIGHT = CompareOptions(tolerance=Tolerance())


def greatest(comparison: Comparison) -> dict[str, float]:
    found = {}
    for pair in comparison.pairs:
        assert isinstance(pair.outcome, Compared), pair
        assert isinstance(pair.outcome.metrics, Metrics)
        found[pair.reference.name] = pair.outcome.metrics.greatest_absolute.value
    return found


def test_a_dump_agrees_with_itself(tmp_path: Path) -> None:
    write_dump(tmp_path, [{"b": numbers(3, 4), "a": numbers(5)}, {"b": numbers(1, 4)}])
    result = compare(tmp_path, tmp_path, TIGHT)
    assert (result.verdict, result.exit_code) == (Verdict.AGREE, 0)
    assert [pair.finding for pair in result.pairs] == [Finding.AGREES] * 3
    assert result.unpaired == ()


def test_torch_against_max_with_two_prompts_of_unlike_length(tmp_path: Path) -> None:
    """Prefill and a decode step; the planted error is in the last row's last token."""
    hidden, fused = numbers(21, 16, seed=1), numbers(21, 32, seed=2)
    bad = hidden.copy()
    bad[20, 3] += 0.5
    padded = np.full((2, 12, 16), 7, np.float32)
    padded[0], padded[1, 3:] = hidden[:12], hidden[12:]
    padded_fused = np.full((2, 12, 32), 7, np.float32)
    padded_fused[0], padded_fused[1, 3:] = fused[:12], fused[12:]
    reference = write_dump(
        tmp_path / "torch",
        [
            {
                "model.model.layers.0.self_attn.q_proj-output": padded_fused[..., :16],
                "model.model.layers.0.self_attn.k_proj-output": padded_fused[..., 16:24],
                "model.model.layers.0.self_attn.v_proj-output": padded_fused[..., 24:],
                "model.model.layers.0-output": padded,
                "model.lm_head-output": padded,
            },
            {"model.model.layers.0-output": hidden[:2].reshape(2, 1, 16)},
        ],
        engine="torch",
        padding=Padding.LEFT,
        lengths=(12, 9),
    )
    candidate = write_dump(
        tmp_path / "max",
        [
            {
                "model.layers.layers.0.self_attn.qkv_proj-output": fused,
                "model.layers.layers.0-output": bad,
                "model.lm_head-output": hidden[[11, 20]],
            },
            {"model.layers.layers.0-output": hidden[:2]},
        ],
        padding=Padding.RAGGED,
        lengths=(12, 9),
    )
    result = compare(reference, candidate, CompareOptions(tolerance=Tolerance(atol=1e-6)))
    assert result.unpaired == ()
    assert [pair.finding for pair in result.pairs] == [
        Finding.AGREES,
        Finding.AGREES,
        Finding.AGREES,
        Finding.DIFFERS,
        Finding.AGREES,
        Finding.AGREES,
    ]
    (pair,) = result.differing
    assert isinstance(pair.outcome, Compared)
    assert isinstance(pair.outcome.metrics, Metrics)
    assert pair.outcome.metrics.greatest_absolute.index == (20, 3)
    assert pair.outcome.metrics.greatest_absolute.value == pytest.approx(0.5)
    assert result.pairs[1].candidate_shape == (21, 8)
    assert result.pairs[4].adjustments == (
        "last token of each of 2 sequences taken from reference [2, 12, 16]",
    )


def test_fused_sizes_that_do_not_add_up(tmp_path: Path) -> None:
    parts = {f"model.model.a.{part}_proj-output": numbers(3, 4) for part in "qkv"}
    write_dump(tmp_path / "torch", [parts], engine="torch")
    write_dump(tmp_path / "max", [{"model.a.qkv_proj-output": numbers(3, 13)}])
    result = compare(tmp_path / "torch", tmp_path / "max")
    expected = "the parts have 4 + 4 + 4 = 12 columns, the fused tensor 13"
    assert [pair.outcome for pair in result.pairs] == [ShapeDiffers(reason=expected)] * 3
    assert result.exit_code == 1


@pytest.mark.parametrize("names", [("x.pt", "y.pt"), ("x.pt", "x.npy")])
def test_two_files_whatever_their_names(tmp_path: Path, names: tuple[str, str]) -> None:
    torch.save(torch.zeros(2, 3), tmp_path / names[0])
    if names[1].endswith(".pt"):
        torch.save(torch.ones(1, 2, 3), tmp_path / names[1])
    else:
        np.save(tmp_path / names[1], np.ones((1, 2, 3), np.float32))
    result = compare(tmp_path / names[0], tmp_path / names[1])
    assert list(greatest(result).values()) == [1.0]
    assert result.pairs[0].reason == "two files given alone"


def test_a_dictionary_against_a_folder(tmp_path: Path) -> None:
    torch.save({"a": torch.zeros(3), "b": torch.ones(3)}, tmp_path / "all.pt")
    write_step(tmp_path / "folder", {"a": np.ones(3, np.float32), "b": np.ones(3, np.float32)})
    result = compare(tmp_path / "all.pt", tmp_path / "folder")
    assert greatest(result) == {"a": 1.0, "b": 0.0}


def test_exit_1_for_each_kind_of_difference(tmp_path: Path) -> None:
    one = np.ones(3, np.float32)
    others = {
        "value": one * 2,
        "shape": np.ones(4, np.float32),
        "dtype": one.astype(ml_dtypes.bfloat16),
        "kind": np.ones(3, np.int32),
        "nan": np.array([1, np.nan, 1], np.float32),
    }
    for name, other in others.items():
        write_step(tmp_path / "right" / name, {name: one})
        write_step(tmp_path / name, {name: other})
        result = compare(tmp_path / "right" / name, tmp_path / name, TIGHT)
        assert (name, result.exit_code) == (name, 1)
        measured = compare(tmp_path / "right" / name, tmp_path / name)
        assert (name, measured.exit_code) == (name, 0 if name == "value" else 1)
        assert isinstance(measured.pairs[0].outcome, KindDiffers) is (name == "kind")


def test_integer_widths_are_equalised(tmp_path: Path) -> None:
    write_step(tmp_path / "a", {"ids": np.array([1, 2], np.int64)})
    write_step(tmp_path / "b", {"ids": np.array([1, 2], np.uint32)})
    assert compare(tmp_path / "a", tmp_path / "b", TIGHT).verdict is Verdict.AGREE


def test_an_unreadable_file_does_not_stop_the_others(tmp_path: Path) -> None:
    for side in "ab":
        write_step(tmp_path / side, {"bad": numbers(3), "good": numbers(3)}, order=False)
    (tmp_path / "b" / "bad.max").write_bytes(b"PK")
    result = compare(tmp_path / "a", tmp_path / "b", TIGHT)
    assert [pair.finding for pair in result.pairs] == [Finding.NOT_COMPARED, Finding.AGREES]
    outcome = result.pairs[0].outcome
    assert isinstance(outcome, NotComparable)
    assert "bad.max: expected a header of at least 28 bytes, found 2" in outcome.reason
    assert (result.verdict, result.exit_code) == (Verdict.INCONCLUSIVE, 2)


def test_no_kind_of_damage_stops_the_others(tmp_path: Path) -> None:
    for side in "ab":
        write_step(tmp_path / side, {"good": numbers(3)}, order=False)
    bad = tmp_path / "b"
    (bad / "code.npy").write_bytes(b"\x93NUMPY\x01\x00\x03\x00'''")
    (bad / "digits.safetensors").write_bytes((5000).to_bytes(8, "little") + b"9" * 5000)
    circle: dict[str, object] = {"t": torch.ones(1)}
    circle["again"] = circle
    torch.save(circle, bad / "circle.pt")
    os.mkfifo(bad / "pipe.max")
    (bad / "link.npy").symlink_to("nowhere")
    result = compare(tmp_path / "a", bad, TIGHT)
    assert [pair.finding for pair in result.pairs] == [Finding.AGREES]
    assert [item.entry.name for item in result.unreadable] == [
        "circle",
        "code",
        "digits",
        "link",
        "pipe",
    ]
    assert (result.verdict, result.exit_code) == (Verdict.INCONCLUSIVE, 2)


def test_a_deleted_step_cuts_the_result_short(tmp_path: Path) -> None:
    for side in "ab":
        write_dump(tmp_path / side, [{"a": numbers(3)}, {"a": numbers(3)}])
    (tmp_path / "b" / "1" / "a.max").unlink()
    result = compare(tmp_path / "a", tmp_path / "b", TIGHT)
    assert [pair.finding for pair in result.pairs] == [Finding.AGREES, Finding.NOT_COMPARED]
    assert (result.verdict, result.exit_code) == (Verdict.INCONCLUSIVE, 2)
    shutil.rmtree(tmp_path / "b" / "1")
    result = compare(tmp_path / "b", tmp_path / "b", TIGHT)
    assert [pair.finding for pair in result.pairs] == [Finding.AGREES]
    assert (result.verdict, result.exit_code) == (Verdict.INCONCLUSIVE, 2)


def test_a_difference_among_names_of_one_meaning_is_found(tmp_path: Path) -> None:
    names = ("model.norm-output", "model.model.norm-output", "model.language_model.norm-output")
    write_dump(tmp_path / "a", [{name: numbers(3) for name in names}])
    for name in names:
        changed = {other: numbers(3, seed=int(other == name)) for other in names}
        write_dump(tmp_path / "b", [changed])
        (differing,) = compare(tmp_path / "a", tmp_path / "b", TIGHT).differing
        assert (differing.reference.name, differing.candidate.name) == (name, name)


def test_an_unreadable_file_without_counterpart_is_told_too(tmp_path: Path) -> None:
    for side in "ab":
        write_step(tmp_path / side, {"good": numbers(3)}, order=False)
    (tmp_path / "b" / "bad.max").write_bytes(b"PK")
    result = compare(tmp_path / "a", tmp_path / "b", TIGHT)
    assert [item.entry.name for item in result.unreadable] == ["bad"]
    assert result.unpaired == ()
    assert result.exit_code == 2


def test_a_difference_outranks_a_result_that_was_cut_short(tmp_path: Path) -> None:
    write_step(tmp_path / "a" / "0", {"x": numbers(3), "y": numbers(3)})
    write_step(tmp_path / "b" / "0.partial", {"x": numbers(3), "y": numbers(3)})
    assert compare(tmp_path / "a", tmp_path / "b", TIGHT).verdict is Verdict.INCONCLUSIVE
    write_step(tmp_path / "b" / "0.partial", {"x": numbers(3), "y": numbers(3, seed=1)})
    result = compare(tmp_path / "a", tmp_path / "b", TIGHT)
    assert result.cut_short
    assert (result.verdict, result.exit_code) == (Verdict.DIFFER, 1)


def test_nothing_in_common(tmp_path: Path) -> None:
    write_step(tmp_path / "a", {"x": numbers(3)})
    write_step(tmp_path / "b", {"y": numbers(3)})
    result = compare(tmp_path / "a", tmp_path / "b")
    assert (result.verdict, result.exit_code, len(result.unpaired)) == (Verdict.INCONCLUSIVE, 2, 2)


def test_problems_of_both_sides_come_together(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"reference: .*no_a.*; candidate: .*no_b"):
        compare(tmp_path / "no_a", tmp_path / "no_b")
    write_step(tmp_path / "a", {"x": numbers(3)})
    with pytest.raises(MissingPathError, match="no_b"):
        compare(tmp_path / "a", tmp_path / "no_b")


def test_other_token_ids_are_noted(tmp_path: Path) -> None:
    for side, length in (("a", 3), ("b", 4)):
        write_dump(tmp_path / side, [{"x": numbers(3)}], lengths=(length,))
    notes = compare(tmp_path / "a", tmp_path / "b").notes
    assert notes == ("the two runs got different token ids: compare what they were given first",)


def _noted(tmp_path: Path, **sides: dict[str, object]) -> tuple[str, ...]:
    for side, changes in sides.items():
        path = write_dump(tmp_path / side, [{"x": numbers(3)}]) / "manifest.json"
        write_manifest(path, replace(read_manifest(path), **changes))
    return compare(*(tmp_path / side for side in sides)).notes


def test_layers_that_both_runs_left_out_are_noted_once(tmp_path: Path) -> None:
    part = {
        "config": {"num_hidden_layers": 1},
        "options": {"num_hidden_layers": 1, "model_layers": 4},
    }
    whole = {"options": {"num_hidden_layers": "all", "model_layers": 4}}
    odd = {"options": {"num_hidden_layers": True, "model_layers": "4"}}
    said = "1 of the model's 4 layers were run; --num-hidden-layers all runs them"
    assert _noted(tmp_path / "part", a=part, b=part) == (said,)
    assert _noted(tmp_path / "whole", a=whole, b=odd) == ()


def test_fields_of_the_configurations_that_differ_are_noted(tmp_path: Path) -> None:
    left = {"rope": {"theta": 1e4}, "a": 1, "b": 2, "c": 3, "dtype": "float32", "only": 1}
    right = {"rope": {"theta": 5e4}, "a": 2, "b": 3, "c": 4, "dtype": "bfloat16"}
    (said,) = _noted(tmp_path, a={"config": left}, b={"config": right})
    assert said == (
        "the configurations differ: a is 1 for the reference and 2 for the candidate; b is 2 for "
        "the reference and 3 for the candidate; c is 3 for the reference and 4 for the candidate, "
        "and 1 more"
    )


def test_other_numbers_of_layers_are_noted(tmp_path: Path) -> None:
    for side, layers in (("a", 1), ("b", 4), ("c", "many")):
        path = write_dump(tmp_path / side, [{"x": numbers(3)}]) / "manifest.json"
        write_manifest(path, replace(read_manifest(path), config={"num_hidden_layers": layers}))
    assert compare(tmp_path / "a", tmp_path / "b").notes == (
        "the reference ran 1 layer(s), the candidate 4: dump both with the same "
        "--num-hidden-layers",
    )
    assert compare(tmp_path / "a", tmp_path / "a").notes == ()
    assert compare(tmp_path / "a", tmp_path / "c").notes == ()


def test_progress(tmp_path: Path) -> None:
    write_step(tmp_path, {"x": numbers(3), "y": numbers(3)})
    seen: list[tuple[int, ...]] = []
    compare(tmp_path, tmp_path, progress=lambda *told: seen.append(told))
    size = 2 * numbers(3).nbytes
    assert seen == [(1, 2, size), (2, 2, 2 * size)]


def test_torch_is_imported_for_pt_files_only(tmp_path: Path) -> None:
    write_step(tmp_path, {"x": numbers(3)})
    np.save(tmp_path / "y.npy", numbers(3))
    header = b'{"z": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}'
    (tmp_path / "z.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + b"1")
    code = (
        "import sys, pathlib; from comparison.pipeline import compare; "
        "from comparison.report.text import format_comparison; "
        "result = compare(*[pathlib.Path(sys.argv[1])] * 2); format_comparison(result); "
        "print(result.compared, sorted({'torch', 'max', 'transformers'} & set(sys.modules)))"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    assert done.stdout == "3 []\n"
