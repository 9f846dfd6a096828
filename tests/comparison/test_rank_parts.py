"""A dump of several ranks against one of a single process."""

from pathlib import Path

import numpy as np
import pytest

from comparison.numerics.dtypes import Array
from comparison.pipeline import CompareOptions, compare
from comparison.schema.comparison import Comparison, Verdict
from comparison.schema.outcome import Compared
from comparison.schema.tolerance import Tolerance
from comparison.store.manifest_file import write_manifest
from tests.comparison.dumps import make_manifest, numbers, write_dump, write_step

ATTENTION = "model.model.layers.0.self_attn"
MLP = "model.model.layers.0.mlp"
SIZES = {"q_proj": 8, "k_proj": 4, "v_proj": 4}
PARTS = {name: numbers(5, size, seed=seed) for seed, (name, size) in enumerate(SIZES.items(), 1)}
DOWN = numbers(5, 6, seed=7)
NORM = numbers(5, 8, seed=8)
CORE = numbers(5, 8, seed=9)


def half(array: Array, rank: int) -> Array:
    return np.split(array, 2, axis=-1)[rank]


def of_rank(rank: int) -> dict[str, Array]:
    fused = np.concatenate([half(part, rank) for part in PARTS.values()], axis=-1)
    return {
        "model.model.norm-output": NORM,
        f"{ATTENTION}.qkv_proj-output_0": fused,
        f"{ATTENTION}.o_proj-input_0": half(CORE, rank),
        f"{MLP}.down_proj-output_0": DOWN,
    }


def of_one_process() -> dict[str, Array]:
    separate = {f"{ATTENTION}.{name}-output": part for name, part in PARTS.items()}
    return separate | {
        "model.model.norm-output": NORM,
        f"{ATTENTION}.o_proj-input_0": CORE,
        f"{MLP}.down_proj-output": DOWN,
    }


def write_ranks(path: Path, ranks: list[dict[str, Array]]) -> Path:
    for rank, tensors in enumerate(ranks):
        write_step(path / f"rank{rank}" / "0", tensors)
    write_manifest(path / "manifest.json", make_manifest("vllm"))
    return path


def judged(reference: Path, candidate: Path) -> Comparison:
    return compare(reference, candidate, CompareOptions(tolerance=Tolerance(rtol=0, atol=0)))


@pytest.fixture
def torch_dump(tmp_path: Path) -> Path:
    return write_dump(tmp_path / "torch", [of_one_process()], engine="torch")


def reasons(comparison: Comparison) -> dict[str, str]:
    return {item.entry.name: item.reason for item in comparison.unpaired}


@pytest.mark.parametrize("swapped", [False, True])
def test_parts_are_joined_and_copies_checked(
    torch_dump: Path, tmp_path: Path, swapped: bool
) -> None:
    ranks = write_ranks(tmp_path / "ranks", [of_rank(0), of_rank(1)])
    sides = (ranks, torch_dump) if swapped else (torch_dump, ranks)
    comparison = judged(*sides)
    assert comparison.verdict is Verdict.AGREE
    assert len(comparison.pairs) == 6
    assert all(isinstance(pair.outcome, Compared) for pair in comparison.pairs)
    joined = "the parts of 2 ranks were joined along axis -1"
    assert sum(joined in pair.adjustments for pair in comparison.pairs) == 4
    assert reasons(comparison) == {
        "model.model.norm-output": "a copy of rank 0's, the same bit for bit",
        f"{MLP}.down_proj-output_0": "a copy of rank 0's, the same bit for bit",
        f"{ATTENTION}.qkv_proj-output_0": "a part; it was compared together with that of rank 0",
        f"{ATTENTION}.o_proj-input_0": "a part; it was compared together with that of rank 0",
    }
    side = "reference" if swapped else "candidate"
    assert f"the {side} has 2 ranks: parts were joined" in comparison.notes[0]


def test_a_fault_in_a_further_ranks_part_is_found(torch_dump: Path, tmp_path: Path) -> None:
    second = of_rank(1)
    second[f"{ATTENTION}.qkv_proj-output_0"][0, 4] += 1  # its first column of k
    comparison = judged(torch_dump, write_ranks(tmp_path / "ranks", [of_rank(0), second]))
    assert comparison.verdict is Verdict.DIFFER
    wrong = [pair for pair in comparison.pairs if pair.finding == "differs"]
    assert [pair.reference.name for pair in wrong] == [f"{ATTENTION}.k_proj-output"]


def test_copies_that_went_apart_are_told(torch_dump: Path, tmp_path: Path) -> None:
    second = of_rank(1)
    second["model.model.norm-output"] = NORM + 1
    comparison = judged(torch_dump, write_ranks(tmp_path / "ranks", [of_rank(0), second]))
    assert reasons(comparison)["model.model.norm-output"].startswith("no copy")
    assert comparison.notes[1].startswith("1 tensor(s) of the candidate's further ranks should be")


def test_fused_parts_of_one_engine_are_listed(tmp_path: Path) -> None:
    whole = np.concatenate(list(PARTS.values()), axis=-1)
    name = f"{ATTENTION}.qkv_proj-output_0"
    one = write_dump(
        tmp_path / "one", [{name: whole, "model.model.norm-output": NORM}], engine="vllm"
    )
    comparison = judged(one, write_ranks(tmp_path / "ranks", [of_rank(0), of_rank(1)]))
    assert [pair.reference.name for pair in comparison.pairs] == ["model.model.norm-output"]
    listed = [item for item in comparison.unpaired if item.entry.name == name]
    assert len(listed) == 3
    assert sum("the parts do not tell how they join" in item.reason for item in listed) == 2


def test_equal_ranks_are_compared_one_by_one(torch_dump: Path, tmp_path: Path) -> None:
    ranks = write_ranks(tmp_path / "ranks", [of_rank(0), of_rank(1)])
    comparison = judged(ranks, ranks)
    assert comparison.verdict is Verdict.AGREE
    assert len(comparison.pairs) == 8
    assert comparison.notes == ()
