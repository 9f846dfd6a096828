"""A plan is what the run then writes; limits are kept, and the exit says so."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from comparison.schema.errors import BadInputError, BudgetError, EngineError
from comparison.store.dump import open_dump
from oracles.generic_oracle import GenericOracle
from oracles.registry import find_oracle
from test_common.capture_plan import PlannedRun, plan_capture
from test_common.debug_options import DebugOptions
from test_common.debug_plan import check_budget, check_memory, plan_debug_run
from test_common.debug_run import run_debug_model
from test_common.print_style import PrintStyle
from test_common.write_budget import held_memory

LLAMA = "tiny-random/llama"


def options(out: Path, **given: Any) -> DebugOptions:
    kept: dict[str, Any] = {"pipeline": LLAMA, "framework": "torch", "device": "cpu", "output": out}
    return DebugOptions(**kept | given)


@pytest.mark.parametrize(
    "given",
    [
        {"num_hidden_layers": "all", "num_steps": 5},
        {"num_hidden_layers": 2, "num_steps": 4, "style": PrintStyle.SAFETENSORS},
        {"num_steps": 5, "steps": frozenset({1, 4}), "filter": ("*mlp*",)},
        {"num_hidden_layers": 2, "ops": ("*.layers.1.mlp",), "encoding": "bfloat16"},
        {"style": PrintStyle.BINARY, "prompts": ([1, 2, 3, 4, 5], [6, 7, 8, 9, 10])},
        {"pipeline": "tiny-random/bert"},
    ],
    ids=["all", "safetensors", "steps", "operations", "binary", "encoder"],
)
def test_a_plan_is_what_the_run_writes(tmp_path: Path, given: dict[str, Any]) -> None:
    asked = options(tmp_path / "dump", **given)
    oracle = find_oracle(asked.pipeline)
    plan = plan_debug_run(oracle, asked, measures=False)
    assert not (tmp_path / "dump").exists()
    run = run_debug_model(oracle, asked)
    assert run.manifest.certificate is not None
    assert (plan.capture.tensors, plan.capture.size_bytes) == (
        run.manifest.certificate.saved,
        run.size_bytes,
    )


def test_memory_and_time_are_told_by_their_parts(tmp_path: Path) -> None:
    asked = options(tmp_path / "no" / "dump", num_hidden_layers="all", max_memory=400_000_000)
    plan = plan_debug_run(find_oracle(LLAMA), asked)
    model = find_oracle(LLAMA).create_torch_pipeline(encoding="float32", device="cpu").model
    weights = {p.data_ptr(): p.nbytes for p in (*model.parameters(), *model.buffers())}
    assert plan.capture.weight_bytes == sum(weights.values())
    # The buffers of positions are in no file.
    assert plan.mapped_bytes == sum({p.data_ptr(): p.nbytes for p in model.parameters()}.values())
    # The logits alone, and as much again for what they are made of.
    assert plan.capture.live_bytes > plan.capture.size_bytes / 10
    assert plan.queue_bytes == plan.capture.size_bytes  # no more can wait
    small = plan_debug_run(find_oracle(LLAMA), replace(asked, max_memory=80_000_000))
    assert small.queue_bytes == 10_000_000
    parts = (plan.weight_bytes, plan.capture.live_bytes, plan.queue_bytes)
    assert plan.memory_bytes == plan.held_bytes + sum(parts)
    assert plan.speed is not None
    assert plan.hook_seconds > plan.capture.tensors * plan.speed.tensor_seconds > 0
    assert plan.write_seconds > 0
    assert plan.seconds >= max(plan.forward_seconds + plan.hook_seconds, plan.write_seconds)
    assert list(tmp_path.iterdir()) == []
    on_gpu = replace(plan, on_gpu=True)
    assert on_gpu.memory_bytes == plan.held_bytes + plan.queue_bytes
    streamed = plan_debug_run(find_oracle(LLAMA), replace(asked, stream=True), measures=False)
    largest = max(p.nbytes for p in model.parameters())
    assert streamed.weight_bytes == largest < plan.capture.weight_bytes
    converted = plan_debug_run(
        find_oracle(LLAMA), replace(asked, encoding="bfloat16"), measures=False
    )
    assert converted.mapped_bytes == 0
    assert converted.weight_bytes == converted.capture.weight_bytes
    without = streamed.held_bytes + streamed.capture.live_bytes + streamed.queue_bytes
    assert streamed.memory_bytes == without + largest


@pytest.mark.parametrize(
    ("engine", "given", "least"),
    [
        ("max", {}, 600_000_000),
        ("vllm", {}, 400_000_000 + (1 << 30)),
        ("vllm", {"tensor_parallel_size": 2}, 2 * (400_000_000 + (1 << 30))),
        ("vllm", {"pipeline": "tiny-random/bert"}, 400_000_000),
    ],
)
def test_other_engines_take_memory_of_their_own(
    tmp_path: Path, engine: str, given: dict[str, Any], least: int
) -> None:
    asked = options(tmp_path / "dump", framework=engine, **given)
    plan = plan_debug_run(find_oracle(asked.pipeline), asked, measures=False)
    assert least < plan.held_bytes < least * 1.2
    assert plan.mapped_bytes == 0


def test_space_for_keys_and_values_is_that_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = options(tmp_path / "dump", framework="vllm")
    usual, larger = (
        (
            monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", space),
            plan_debug_run(find_oracle(LLAMA), asked, measures=False).held_bytes,
        )[1]
        for space in ("1", "3")
    )
    assert larger - usual == 2 << 30


def test_a_run_that_will_come_to_a_limit_is_refused(tmp_path: Path) -> None:
    asked = options(tmp_path / "dump", max_bytes=1000, max_memory=2000)
    plan = plan_debug_run(find_oracle(LLAMA), asked, measures=False)
    expected = (
        r"the dump will take .* more than --max-bytes 1\.0 kB.*; the run will hold .* 2\.0 kB"
    )
    with pytest.raises(BudgetError, match=expected):
        check_budget(plan, asked)
    with pytest.raises(BudgetError, match=r"^the run will hold"):
        check_memory(plan, asked)
    check_budget(plan, replace(asked, max_bytes=10**9, max_memory=10**12))


@pytest.mark.parametrize("style", [PrintStyle.NATIVE, PrintStyle.SAFETENSORS])
def test_a_run_is_cut_at_its_limit_and_leaves_a_marked_dump(
    tmp_path: Path, style: PrintStyle
) -> None:
    out = tmp_path / "dump"
    asked = options(out, num_hidden_layers="all", max_bytes=4_000_000, style=style)
    with pytest.raises(BudgetError, match=r"the dump was cut at model\.model\."):
        run_debug_model(find_oracle(LLAMA), asked)
    dump = open_dump(out)
    assert not dump.complete
    assert len(dump.entries) > 5
    assert all(dump.read(entry).size for entry in dump.entries)
    size = sum(path.stat().st_size for path in out.glob("0/*.*") if path.stat().st_nlink == 1)
    assert size <= 4_000_000 + (out / "0" / "tensor_names.txt").stat().st_size
    (note,) = json.loads((out / "manifest.json").read_text())["options"]["notes"]
    assert note.startswith("the dump was cut at model.model.")


def test_a_run_that_holds_too_much_is_ended_with_a_marked_dump(tmp_path: Path) -> None:
    asked = options(tmp_path / "dump", max_memory=held_memory() // 2)
    with pytest.raises(BudgetError, match=r"the run was ended at model-input.*--max-memory"):
        run_debug_model(find_oracle(LLAMA), asked)
    assert json.loads((tmp_path / "dump" / "manifest.json").read_text())["complete"] is False


def test_a_model_whose_code_looks_at_values_is_told(tmp_path: Path) -> None:
    class Looking(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(3, device="meta"))

        def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
            return self.weight if input_ids.sum().item() > 3 else input_ids

    with pytest.raises(EngineError, match=r"Looking cannot be planned: its code looks at values"):
        plan_capture(Looking(), PlannedRun(rows=[[1, 2]], num_steps=1))


def test_a_model_of_pictures_cannot_be_planned(tmp_path: Path) -> None:
    name = "tiny-random/internvl"
    with pytest.raises(BadInputError, match="takes pictures"):
        plan_debug_run(find_oracle(name), options(tmp_path / "dump", pipeline=name))


def test_no_weights_are_read_for_a_plan(tmp_path: Path) -> None:
    oracle: Any = find_oracle(LLAMA)
    folder = tmp_path / "model"
    folder.mkdir()
    for file in Path(oracle.model_path).iterdir():
        if file.suffix != ".safetensors":
            (folder / file.name).write_bytes(file.read_bytes())
    other: Any = GenericOracle(str(folder), device_encoding_map={"cpu": ["float32"]})
    asked = options(tmp_path / "dump")
    plan = plan_debug_run(other, asked, measures=False)
    expected = plan_debug_run(oracle, asked, measures=False).capture.weight_bytes
    assert plan.capture.weight_bytes == expected
