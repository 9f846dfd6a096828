"""A dump of several ranks against one of a single process."""

import itertools
import shutil
import time
import tracemalloc
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from comparison.numerics.dtypes import Array
from comparison.pipeline import CompareOptions, compare
from comparison.rank_parts import RankParts
from comparison.report.json_report import comparison_to_dict
from comparison.schema.comparison import Comparison, Verdict
from comparison.schema.errors import BadInputError
from comparison.schema.manifest import Padding
from comparison.schema.outcome import Compared, Judged, Metrics, NotComparable, ShapeDiffers
from comparison.schema.tensor_entry import TensorEntry
from comparison.schema.tolerance import Tolerance
from comparison.store.dump import Dump
from comparison.store.manifest_file import write_manifest
from comparison.store.safetensors_file import write_safetensors
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


@pytest.mark.parametrize(
    ("step", "heads"),
    [(0, 6), (1, 4), pytest.param(0, 10, id="rank of 5 heads"), pytest.param(1, 6, id="6 tokens")],
)
@pytest.mark.parametrize("fault", [0, 1])
def test_attention_weights_of_a_padded_batch_are_joined(
    tmp_path: Path, step: int, heads: int, fault: int
) -> None:
    weights = numbers(2, heads, 1 if step else 5, 5 + step, seed=3)  # [B, N, S, keys]
    own = weights.copy()
    own[0, -1, -1, 4] += fault  # in the second rank's last head
    rows = [range(5), range(3)]
    padded = make_manifest("torch", padding=Padding.LEFT, rows=rows, steps=step + 1)
    for folder, held in (("one", weights), ("all/rank0", own), ("all/rank1", own)):
        rank = int(folder[-1]) if held is own else None
        part = held if rank is None else np.split(held, 2, axis=1)[rank]
        write_step(tmp_path / folder / str(step), {f"{ATTENTION}-output_1": part})
    write_manifest(tmp_path / "one" / "manifest.json", padded)
    ranks = replace(padded, options={"tensor_parallel_size": 2})
    write_manifest(tmp_path / "all" / "manifest.json", ranks)
    (pair,) = judged(tmp_path / "one", tmp_path / "all").pairs
    assert isinstance(pair.outcome, Compared)
    assert isinstance(pair.outcome.judgement, Judged)
    assert isinstance(pair.outcome.metrics, Metrics)
    assert pair.outcome.judgement.failed == fault
    # Pads of 2 tokens are left out of the prefill.
    assert pair.outcome.metrics.elements == (2 if step else 8) * heads * (5 + step)
    if fault and (step, heads) == (0, 6):
        assert pair.outcome.metrics.greatest_absolute.index == (4, 5, 4)


def test_a_fault_in_a_further_ranks_part_is_found(torch_dump: Path, tmp_path: Path) -> None:
    second = of_rank(1)
    second[f"{ATTENTION}.qkv_proj-output_0"][0, 4] += 1  # its first column of k
    comparison = judged(torch_dump, write_ranks(tmp_path / "ranks", [of_rank(0), second]))
    assert comparison.verdict is Verdict.DIFFER
    wrong = [pair for pair in comparison.pairs if pair.finding == "differs"]
    assert [pair.reference.name for pair in wrong] == [f"{ATTENTION}.k_proj-output"]


@pytest.mark.parametrize("wrong", [NORM + 1, np.full_like(NORM, np.nan), NORM[:3], np.float32(1)])
def test_copies_that_went_apart_are_found(torch_dump: Path, tmp_path: Path, wrong: Array) -> None:
    second = of_rank(1)
    second["model.model.norm-output"] = np.asarray(wrong)
    comparison = judged(torch_dump, write_ranks(tmp_path / "ranks", [of_rank(0), second]))
    assert comparison.verdict is Verdict.DIFFER
    found = list(comparison.differing)
    assert [(p.candidate.name, p.candidate.rank) for p in found] == [("model.model.norm-output", 1)]
    assert "1 tensor(s) of the candidate's further ranks should be copies" in comparison.notes[1]
    written = comparison_to_dict(comparison)
    assert (written["verdict"], written["exit_code"]) == ("differ", 1)


FUSED, CORE_NAME = f"{ATTENTION}.qkv_proj-output_0", f"{ATTENTION}.o_proj-input_0"


@pytest.mark.parametrize(
    ("change", "kind", "told"),
    [
        (lambda a: a[:3], ShapeDiffers, "rank 1 of [3, "),
        (lambda a: np.float32(3), ShapeDiffers, "rank 1 of []"),
        (lambda a: a.astype(ml_dtypes.bfloat16), NotComparable, "rank 1 of bfloat16"),
        (lambda a: a.astype(np.int64), NotComparable, "rank 1 of int64"),
        (lambda a: a.astype(ml_dtypes.float8_e4m3fn), NotComparable, "rank 1 of float8_e4m3fn"),
    ],
)
@pytest.mark.parametrize("name", [FUSED, CORE_NAME])
@pytest.mark.parametrize("step", [0, 1])
def test_parts_that_do_not_fit_are_outcomes_of_their_pairs(
    tmp_path: Path, name: str, step: int, change: Any, kind: type, told: str
) -> None:
    torch = write_dump(tmp_path / "torch", [of_one_process()] * 2, engine="torch")
    ranks = write_steps(tmp_path / "ranks")
    part = np.asarray(change(of_rank(1)[name]))
    write_step(ranks / "rank1" / str(step), {name: part}, order=False)
    comparison = judged(torch, ranks)
    wrong = [p for p in comparison.pairs if p.finding != "agrees"]
    assert {(p.candidate.name, p.reference.step) for p in wrong} == {(name, step)}
    assert len(wrong) == (3 if name == FUSED else 1)
    for pair in wrong:
        assert isinstance(pair.outcome, kind)
        assert told in str(pair.outcome)
        assert not any("joined" in text for text in pair.adjustments)


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("name", [FUSED, CORE_NAME, "model.model.norm-output"])
def test_a_tensor_that_a_rank_lacks_cuts_the_result_short(
    torch_dump: Path, tmp_path: Path, name: str, rank: int
) -> None:
    tensors = [of_rank(0), of_rank(1)]
    del tensors[rank][name]
    comparison = judged(torch_dump, write_ranks(tmp_path / "ranks", tensors))
    assert comparison.verdict is Verdict.INCONCLUSIVE
    assert f"rank {rank} lacks {name} of step 0" in comparison.candidate.notes
    if rank == 0:
        assert "rank 0 lacks" in reasons(comparison)[name]


def _ranks_of(path: Path, held: dict[int, list[str]]) -> Dump:
    """Make a dump of names only."""
    entries = tuple(
        TensorEntry(name=name, step=0, order=order, path=path / f"rank{rank}" / name, rank=rank)
        for rank, names in held.items()
        for order, name in enumerate(names)
    )
    return Dump(path=path, manifest=None, entries=entries, rank_folders=tuple(held))


def _refuse(entry: TensorEntry) -> Array:
    raise AssertionError(entry)


def test_what_many_ranks_lack_is_counted_not_listed(tmp_path: Path) -> None:
    names = [f"b{number}" for number in range(3000)]
    ranks = _ranks_of(tmp_path, {0: names, **{rank: [names[1]] for rank in range(1, 300)}})
    alone = _ranks_of(tmp_path, {0: ["b1"]})
    alone = replace(alone, entries=tuple(replace(e, rank=None) for e in alone.entries))
    parts = RankParts(ranks, other=alone, read=_refuse)
    tracemalloc.start()
    told = parts.lacks()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert told[0] == "rank 1 lacks b0 of step 0, b2 of step 0, b3 of step 0 and 2996 more"
    assert told[19].startswith("rank 20 lacks b0 of step 0")
    assert told[20:] == ["279 further ranks lack some"]
    assert peak < 1_000_000


def test_many_unpaired_tensors_of_ranks_take_time_in_proportion(tmp_path: Path) -> None:
    few = numbers(2, 2)
    for path, prefix in (("one", "a"), ("all/rank0", "b"), ("all/rank1", "b")):
        tensors = {f"{prefix}{number}-output": few for number in range(3000)}
        (tmp_path / path / "0").mkdir(parents=True)
        file = tmp_path / path / "0" / "tensors.safetensors"
        write_safetensors(file, tensors | {"y-output": few}, metadata={})
    begin = time.process_time()
    comparison = judged(tmp_path / "one", tmp_path / "all")
    assert time.process_time() - begin < 4
    assert len(comparison.unpaired) == 9001


def test_a_step_that_a_rank_lacks_is_no_difference(tmp_path: Path) -> None:
    torch = write_dump(tmp_path / "torch", [of_one_process()] * 2, engine="torch")
    ranks = write_steps(tmp_path / "ranks")
    shutil.rmtree(ranks / "rank1" / "1")
    comparison = judged(torch, ranks)
    assert comparison.verdict is Verdict.INCONCLUSIVE
    assert any("rank 1 lacks" in note for note in comparison.candidate.notes)


def write_steps(path: Path) -> Path:
    for rank, step in itertools.product((0, 1), (0, 1)):
        write_step(path / f"rank{rank}" / str(step), of_rank(rank))
    write_manifest(path / "manifest.json", make_manifest("vllm", steps=2))
    return path


def promise(path: Path, **changes: Any) -> None:
    write_manifest(path / "manifest.json", replace(make_manifest("vllm"), **changes))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"complete": False}, "rank1: the run was cut off"),
        ({"steps": 3}, "rank1: no tensors of step 1, 2"),
        ({"engine": "max"}, "rank1: its manifest is of another run"),
    ],
)
def test_the_manifest_of_a_rank_counts(
    torch_dump: Path, tmp_path: Path, changes: dict[str, Any], told: str
) -> None:
    ranks = write_ranks(tmp_path / "ranks", [of_rank(0), of_rank(1)])
    promise(ranks / "rank1", **changes)
    comparison = judged(torch_dump, ranks)
    assert comparison.verdict is Verdict.INCONCLUSIVE
    assert any(note.startswith(told) for note in comparison.candidate.notes)


def test_a_broken_manifest_of_a_rank_is_refused(torch_dump: Path, tmp_path: Path) -> None:
    ranks = write_ranks(tmp_path / "ranks", [of_rank(0), of_rank(1)])
    (ranks / "rank1" / "manifest.json").write_text("{")
    with pytest.raises(BadInputError, match=r"rank1/manifest\.json"):
        judged(torch_dump, ranks)


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_a_rank_that_is_gone_cuts_the_result_short(
    torch_dump: Path, tmp_path: Path, rank: int
) -> None:
    ranks = write_ranks(tmp_path / "ranks", [of_rank(0), of_rank(1)])
    promise(ranks, options={"tensor_parallel_size": 3 if rank == 2 else 2})
    shutil.rmtree(ranks / f"rank{rank}", ignore_errors=True)
    comparison = judged(torch_dump, ranks)
    assert comparison.verdict is Verdict.INCONCLUSIVE
    assert any(f"no folder of rank {rank}" in note for note in comparison.candidate.notes)
    assert not any("joined" in text for pair in comparison.pairs for text in pair.adjustments)


def test_an_empty_folder_of_a_rank_cuts_the_result_short(torch_dump: Path, tmp_path: Path) -> None:
    ranks = write_ranks(tmp_path / "ranks", [of_rank(0)])
    (ranks / "manifest.json").unlink()
    (ranks / "rank1").mkdir()
    comparison = judged(torch_dump, ranks)
    assert comparison.verdict is Verdict.INCONCLUSIVE
    assert f"no tensors in {ranks}/rank1" in comparison.candidate.notes


def test_want_of_memory_ends_one_pair_only(
    torch_dump: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranks = write_ranks(tmp_path / "ranks", [of_rank(0), of_rank(1)])
    monkeypatch.setattr("comparison.dump_run.join_aligned", lambda *_, **__: _out_of_memory())
    comparison = judged(torch_dump, ranks)
    findings = Counter(pair.finding for pair in comparison.pairs)
    assert findings == {"agrees": 2, "not compared": 4}


def _out_of_memory() -> None:
    raise MemoryError


def test_joining_keeps_the_parts_in_their_files(tmp_path: Path) -> None:
    whole = numbers(1500, 2048)
    one = write_dump(tmp_path / "one", [{"x-output": whole}], engine="torch")
    halves = [{"x-output": half(whole, rank)} for rank in (0, 1)]
    ranks = write_ranks(tmp_path / "ranks", halves)
    tracemalloc.start()
    comparison = judged(one, ranks)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert comparison.verdict is Verdict.AGREE
    assert peak < whole.nbytes / 2


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
    assert len(comparison.unpaired) <= comparison.reference.tensors + comparison.candidate.tensors


def test_equal_ranks_are_compared_one_by_one(torch_dump: Path, tmp_path: Path) -> None:
    ranks = write_ranks(tmp_path / "ranks", [of_rank(0), of_rank(1)])
    comparison = judged(ranks, ranks)
    assert comparison.verdict is Verdict.AGREE
    assert len(comparison.pairs) == 8
    assert comparison.notes == ()


def test_an_input_whose_output_cannot_be_read_is_joined_by_its_name(
    torch_dump: Path, tmp_path: Path
) -> None:
    name = f"{ATTENTION}.o_proj-input_0"
    ranks = [of_rank(rank) | {f"{ATTENTION}.o_proj-output": CORE} for rank in (0, 1)]
    path = write_ranks(tmp_path / "ranks", ranks)
    (path / "rank0" / "0" / f"{ATTENTION}.o_proj-output.max").write_bytes(b"no such format")
    found = {pair.reference.name: pair for pair in judged(torch_dump, path).pairs}
    assert "the parts of 2 ranks were joined along axis -1" in found[name].adjustments
    assert found[name].finding == "agrees"


def test_a_copy_that_cannot_be_read_or_is_of_another_dtype_is_compared_too(
    torch_dump: Path, tmp_path: Path
) -> None:
    second = of_rank(1)
    second[f"{MLP}.down_proj-output_0"] = DOWN.astype(np.float64)
    path = write_ranks(tmp_path / "ranks", [of_rank(0), second])
    (path / "rank1" / "0" / "model.model.norm-output.max").write_bytes(b"no such format")
    found = judged(torch_dump, path)
    further = {pair.candidate.name: pair for pair in found.pairs if pair.candidate.rank == 1}
    assert set(further) == {"model.model.norm-output", f"{MLP}.down_proj-output_0"}
    assert isinstance(further["model.model.norm-output"].outcome, NotComparable)
    assert further[f"{MLP}.down_proj-output_0"].finding == "differs"  # by its dtype
    assert "2 tensor(s) of the candidate's further ranks should be copies" in found.notes[1]


def test_two_folders_of_one_rank_hold_no_parts(torch_dump: Path, tmp_path: Path) -> None:
    path = write_ranks(tmp_path / "ranks", [of_rank(0), of_rank(1)])
    write_step(path / "rank01" / "0", of_rank(1))
    found = {pair.reference.name: pair.outcome for pair in judged(torch_dump, path).pairs}
    part = found[f"{ATTENTION}.o_proj-input_0"]
    assert part == NotComparable(
        reason=f"several folders hold {ATTENTION}.o_proj-input_0 of one rank"
    )


def test_a_scalar_in_the_place_of_a_fused_tensor(torch_dump: Path, tmp_path: Path) -> None:
    fused = {f"{ATTENTION}.qkv_proj-output_0": np.float32(1)}
    other = write_dump(tmp_path / "other", [fused], engine="vllm")  # type: ignore[list-item]  # 0-d
    outcomes = [pair.outcome for pair in judged(torch_dump, other).pairs]
    assert outcomes == [ShapeDiffers(reason="the fused tensor is a scalar")] * 3


def test_parts_of_unknown_size_are_placed_by_the_others(torch_dump: Path, tmp_path: Path) -> None:
    fused = np.concatenate(list(PARTS.values()), axis=-1)
    other = write_dump(
        tmp_path / "other", [{f"{ATTENTION}.qkv_proj-output_0": fused}], engine="vllm"
    )
    broken = torch_dump / "0" / f"{ATTENTION}.k_proj-output.max"
    broken.write_bytes(b"no such format")
    found = {pair.reference.name: pair for pair in judged(torch_dump, other).pairs}
    for name in ("q_proj", "v_proj"):  # the first and the last
        assert found[f"{ATTENTION}.{name}-output"].finding == "agrees"
    assert isinstance(found[f"{ATTENTION}.k_proj-output"].outcome, NotComparable)
