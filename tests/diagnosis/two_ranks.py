"""A model on two ranks that sum up what they have, each a thread with a part of the weights."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import MethodType
from typing import Any

import torch
import torch.nn.functional as F

from comparison.schema.manifest import Manifest
from comparison.store.manifest_file import write_manifest
from diagnosis.module_dump import ModuleInputs, manifest_of
from test_common.dump_writer import DumpWriter
from test_common.torch_print_hook import TorchPrintHook
from test_common.torch_runner import run_torch

RANKS = 2
_BY_OUTPUTS = ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj")
_BY_INPUTS = ("o_proj", "down_proj")
Change = Callable[[Any, int], None]


class AllReduce:
    """Sums up over the ranks' threads."""

    def __init__(self) -> None:
        self._barrier = threading.Barrier(RANKS, timeout=60)
        self._held: list[Any] = [None] * RANKS

    def __call__(self, rank: int, summand: torch.Tensor) -> torch.Tensor:
        self._held[rank] = summand
        self._barrier.wait()
        total = self._held[0] + self._held[1]
        self._barrier.wait()
        return total


def rank_of_model(model: Any, rank: int, reduce: AllReduce) -> Any:
    """Copy a model with one rank's weights; what is split by inputs is summed up."""
    own = copy.deepcopy(model)
    for path, module in own.named_modules():
        last = path.rpartition(".")[2]
        if last in _BY_OUTPUTS:
            module.weight = torch.nn.Parameter(module.weight.chunk(RANKS)[rank].clone())
        elif last in _BY_INPUTS:
            module.weight = torch.nn.Parameter(module.weight.chunk(RANKS, dim=1)[rank].clone())
            module.forward = MethodType(
                lambda self, x: reduce(rank, F.linear(x, self.weight)), module
            )
    return own


def dump_two_ranks(
    model: Any, rows: Sequence[Sequence[int]], folder: Path, change: Change = lambda own, rank: None
) -> Path:
    """Run a model on two ranks, each of which writes its tensors."""
    reduce = AllReduce()
    owns = [rank_of_model(model, rank, reduce) for rank in range(RANKS)]
    with torch.no_grad():
        for rank, own in enumerate(owns):
            change(own, rank)

    def run(rank: int) -> Manifest:
        return dump_run(owns[rank], rows, folder / f"rank{rank}")

    with ThreadPoolExecutor(RANKS) as pool:
        manifest = next(iter(pool.map(run, range(RANKS))))
    options = {"tensor_parallel_size": RANKS}
    write_manifest(
        folder / "manifest.json",
        replace(manifest, options=options, certificate=None, complete=True),
    )
    return folder


def dump_run(model: Any, rows: Sequence[Sequence[int]], folder: Path) -> Manifest:
    """Run one step on rows of token ids, and dump it as one rank does."""
    draft = manifest_of(model, ModuleInputs.of(rows, num_steps=1, encoder=False))
    with closing(DumpWriter(folder)) as writer:
        writer.start(draft)
        with TorchPrintHook(sink=writer) as hook:
            hook.name_layers(model)
            run = run_torch(model, rows, num_steps=1, pad_token_id=0, hook=hook)
        found = tuple(
            replace(row, generated=tuple(tokens))
            for row, tokens in zip(draft.rows, run.generated, strict=True)
        )
        manifest = replace(draft, padding=run.padding, rows=found)
        writer.finish(manifest, hook.require_capture())
    return manifest
