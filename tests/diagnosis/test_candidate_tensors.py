"""The candidate's values of the reference's tensors: fused, summed, cut into rows, or none."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from comparison.numerics.dtypes import Array
from comparison.schema.manifest import Padding
from comparison.store.dump import open_dump
from comparison.store.manifest_file import write_manifest
from diagnosis.candidate_tensors import CandidateTensors
from diagnosis.replay.reference_trace import TracedTensor
from tests.comparison.dumps import make_manifest, numbers, write_dump, write_step

LENGTHS = (4, 3)  # ragged: seven tokens, one behind the other
ATTENTION, LAYER = "model.model.layers.0.self_attn", "model.model.layers.0"
SIZES = {"q": 8, "k": 4, "v": 4}
PARTS = {name: numbers(7, size, seed=size) for name, size in SIZES.items()}
FUSED = f"{ATTENTION}.qkv_proj-output_0"


def traced(
    shapes: Mapping[str, tuple[int, ...]], *, axis: int | None = 1
) -> dict[str, TracedTensor]:
    """Trace tensors whose token axis is the second one, [1, T, ...]."""
    return {
        name: TracedTensor(
            name=name, owner=name.rpartition("-")[0], dtype="float32", token_axis=axis,
            shapes={
                row: tuple(n if at == axis else size for at, size in enumerate(shape))
                for row, n in enumerate(LENGTHS)
            },
        )
        for name, shape in shapes.items()
    }  # fmt: skip


def candidate(
    tmp_path: Path,
    steps: Sequence[Mapping[str, Array]],
    reference: Mapping[str, TracedTensor],
    *,
    lengths: Sequence[int] = LENGTHS,
) -> CandidateTensors:
    path = write_dump(tmp_path, steps, engine="vllm", padding=Padding.RAGGED, lengths=lengths)
    return CandidateTensors(open_dump(path), reference, engine="torch", place=lambda: [])


def values(found: CandidateTensors, name: str) -> list[Array]:
    pin = found.pinned(name)
    assert pin is not None, found.unusable
    return [np.asarray(pin.rows[row].values) for row in sorted(pin.rows)]


def test_parts_are_cut_out_of_a_fused_tensor(tmp_path: Path) -> None:
    reference = traced({f"{ATTENTION}.{n}_proj-output": (1, 0, size) for n, size in SIZES.items()})
    whole = np.concatenate([*PARTS.values()], axis=1)
    found = candidate(tmp_path, [{FUSED: whole}], reference)
    for name, part in PARTS.items():
        first, second = values(found, f"{ATTENTION}.{name}_proj-output")
        np.testing.assert_array_equal(first, part[:4])
        np.testing.assert_array_equal(second, part[4:])
    assert found.candidate_names(f"{ATTENTION}.k_proj-output") == (FUSED,)
    narrow = candidate(tmp_path / "b", [{FUSED: whole[:, :15]}], reference)
    assert narrow.pinned(f"{ATTENTION}.k_proj-output") is None
    assert "the fused tensor 15" in narrow.unusable[f"{ATTENTION}.k_proj-output"]


def test_parts_are_joined_for_a_fused_tensor(tmp_path: Path) -> None:
    reference = traced({f"{ATTENTION}.qkv_proj-output": (1, 0, 16)})
    parts = {f"{ATTENTION}.{name}_proj-output_0": part for name, part in PARTS.items()}
    found = candidate(tmp_path, [parts], reference)
    first, _ = values(found, f"{ATTENTION}.qkv_proj-output")
    np.testing.assert_array_equal(first, np.concatenate([*PARTS.values()], axis=1)[:4])
    del parts[f"{ATTENTION}.k_proj-output_0"]
    lacking = candidate(tmp_path / "b", [parts], reference)
    assert lacking.pinned(f"{ATTENTION}.qkv_proj-output") is None
    assert "not all parts of the fused" in lacking.unusable[f"{ATTENTION}.qkv_proj-output"]


def test_hidden_states_and_residual_are_summed(tmp_path: Path) -> None:
    reference = traced({f"{LAYER}-output": (1, 0, 8), f"{LAYER}.mlp-output": (1, 0, 8)})
    left, right = numbers(7, 8), numbers(7, 8, seed=1)
    tensors = {f"{LAYER}.mlp-output": left, f"{LAYER}-output_0": left, f"{LAYER}-output_1": right}
    found = candidate(tmp_path, [tensors], reference)
    np.testing.assert_array_equal(values(found, f"{LAYER}-output")[1], (left + right)[4:])
    tensors[f"{LAYER}-output_1"] = right[:5]
    unlike = candidate(tmp_path / "b", [tensors], reference)
    assert unlike.pinned(f"{LAYER}-output") is None
    assert unlike.unusable[f"{LAYER}-output"] == "[7, 8] and [5, 8] cannot be added"


@pytest.mark.parametrize(
    ("array", "why"),
    [(numbers(2, 5), None), (numbers(1, 5), None), (numbers(3, 5), "[3, 5] holds no value a row")],
)
def test_one_value_a_row(tmp_path: Path, array: Array, why: str | None) -> None:
    reference = traced({"model.dense-output": (1, 5)}, axis=None)
    found = candidate(tmp_path, [{"model.dense-output": array}], reference)
    if why is None:
        rows = values(found, "model.dense-output")
        np.testing.assert_array_equal(np.concatenate(rows), np.broadcast_to(array, (2, 5)))
    else:
        assert found.pinned("model.dense-output") is None
        assert found.unusable == {"model.dense-output": why}


def test_tensors_of_another_size_are_told_apart_from_masks(tmp_path: Path) -> None:
    reference = traced({"model.norm-output": (1, 0, 8), "model.norm-input_scale": (1, 0, 8)})
    found = candidate(
        tmp_path,
        [{"model.norm-output": numbers(7, 5), "model.norm-input_scale": numbers(7, 5)}],
        reference,
    )
    for name in reference:
        assert found.pinned(name) is None
        assert found.unusable[name].startswith("[7, 5] cannot be cut into rows of [8] a token")
    assert set(found.misshapen) == {"model.norm-output"}  # what goes in may be another tensor


def test_decode_steps_go_behind_the_prefill(tmp_path: Path) -> None:
    reference = traced({"model.norm-output": (1, 0, 8)})
    steps = [{"model.norm-output": numbers(7, 8)}, {"model.norm-output": numbers(2, 8, seed=1)}]
    first, second = values(candidate(tmp_path, steps, reference), "model.norm-output")
    np.testing.assert_array_equal(
        first, np.concatenate([numbers(7, 8)[:4], numbers(2, 8, seed=1)[:1]])
    )
    assert len(second) == 4


def test_damaged_files_and_what_has_no_counterpart(tmp_path: Path) -> None:
    reference = traced({"model.norm-output": (1, 0, 8), "model.other-output": (1, 0, 8)})
    write_step(tmp_path / "0", {"model.norm-output": numbers(7, 8)})
    write_manifest(tmp_path / "manifest.json", make_manifest("torch", rows=[range(4), range(3)]))
    dump = open_dump(tmp_path)
    found = CandidateTensors(dump, reference, engine="torch", place=lambda: [])
    assert found.pinned("model.other-output") is None
    assert found.unusable == {}
    path = tmp_path / "0" / "model.norm-output.max"
    path.write_bytes(path.read_bytes()[:-3])
    assert found.pinned("model.norm-output") is None
    assert found.unreadable["model.norm-output"].startswith(f"{path}: expected")
    gone = CandidateTensors(dump, reference, engine="torch", place=lambda: [])
    path.unlink()
    assert gone.pinned("model.norm-output") is None
    assert "found nothing" in gone.unreadable["model.norm-output"]


def test_inputs_without_tokens_are_held_as_a_whole(tmp_path: Path) -> None:
    reference = traced({"model.norm-output": (2, 6)}, axis=None)
    whole = candidate(tmp_path, [{"model.norm-output": numbers(3, 4)}], reference, lengths=())
    (row,) = values(whole, "model.norm-output")
    np.testing.assert_array_equal(row, numbers(3, 4).reshape(1, 2, 6))
    other = candidate(tmp_path / "b", [{"model.norm-output": numbers(3, 5)}], reference, lengths=())
    assert other.pinned("model.norm-output") is None
    assert other.misshapen == {
        "model.norm-output": "model.norm-output: [2, 6] in the reference, [3, 5] here"
    }
