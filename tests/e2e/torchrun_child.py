"""One rank of a tensor-parallel model on Torch, which dumps what its modules see.

Run by torchrun: `torchrun ... torchrun_child.py MODEL OUT PLAN FAULT ROWS`. PLAN says who splits
the model: `transformers` (its own tp_plan, plain tensors), or `dtensor` (torch's
parallelize_module, whose weights are DTensors). Each rank writes OUT/rank<r>; the first one
OUT/manifest.json.
"""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from comparison.store.manifest_file import write_manifest
from tests.diagnosis.two_ranks import dump_run

BY_OUTPUTS = ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj")
BY_INPUTS = ("o_proj", "down_proj")
FAULTY_LAYER = 1
DUPLICATED, UNREDUCED, DRIFTED = "duplicated", "unreduced", "drifted"


def main() -> None:
    """Run the rank that this process is."""
    path, out, plan, fault, rows = sys.argv[1:]
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    model = split_by_transformers(path) if plan == "transformers" else split_by_torch(path, ranks)
    plant(model.model.layers[FAULTY_LAYER], fault, rank)
    manifest = dump_run(model, json.loads(rows), Path(out) / f"rank{rank}")
    if rank == 0:
        options = {"tensor_parallel_size": ranks}
        whole = replace(manifest, options=options, certificate=None, complete=True)
        write_manifest(Path(out) / "manifest.json", whole)
    dist.barrier()
    dist.destroy_process_group()


def split_by_transformers(path: str) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(
        path, dtype=torch.float32, attn_implementation="eager", tp_plan="auto"
    )


def split_by_torch(path: str, ranks: int) -> Any:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(
        path, dtype=torch.float32, attn_implementation="eager"
    )
    plan: dict[str, Any] = {}
    for name, _ in model.named_modules():
        last = name.rpartition(".")[2]
        if last in BY_OUTPUTS:
            plan[name] = ColwiseParallel()
        elif last in BY_INPUTS:
            plan[name] = RowwiseParallel()
    return parallelize_module(model, init_device_mesh("cpu", (ranks,)), plan)


def plant(layer: Any, fault: str, rank: int) -> None:
    """Make one rank go wrong in one layer."""
    with torch.no_grad():
        if fault == DUPLICATED:  # every rank holds the first rank's part
            dist.broadcast(local(layer.mlp.up_proj.weight), src=0)
        elif fault == UNREDUCED:
            layer.mlp.down_proj.forward = lambda x: torch.nn.functional.linear(
                local(x), local(layer.mlp.down_proj.weight)
            )
            layer.mlp.down_proj._forward_hooks.clear()
        elif fault == DRIFTED and rank == 1:
            local(layer.post_attention_layernorm.weight)[3] *= 1.5


def local(tensor: torch.Tensor) -> torch.Tensor:
    """Return what this rank holds of a tensor, as plain memory."""
    held = getattr(tensor, "_local_tensor", tensor).detach()
    return held


if __name__ == "__main__":
    main()
