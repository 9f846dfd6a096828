"""Measures what a verdict costs: diff_models against a plain forward and a comparison of dumps.

Run by hand: `python -m benchmarks.diff_models [--layers 12] [--tokens 256]`. The model is a Llama
with random weights, and the candidate a copy of it, with or without a fault. Each way is run in
a process of its own, which holds both. The numbers are in benchmarks/README.md.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

_FRACTION = 8  # of a full dump, for the way in two passes


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """Sizes of the model and its input.

    Attributes:
        layers: number of decoder layers.
        hidden: size of the residual stream, a multiple of 64.
        tokens: length of the prompt.
    """

    layers: int
    hidden: int
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What one way costs.

    Attributes:
        seconds: without loading libraries and making the models.
        peak_bytes: greatest resident size of the process.
        outcome: what it said.
    """

    seconds: float
    peak_bytes: int
    outcome: str


def main() -> None:
    """Print one row a way."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--hidden", type=int, default=768, help="Multiple of 64.")
    parser.add_argument("--tokens", type=int, default=256, help="Length of the prompt.")
    parser.add_argument("--way", choices=WAYS, nargs="*", default=list(WAYS), help="Only these.")
    parser.add_argument("--child", choices=WAYS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    size = Size(layers=given.layers, hidden=given.hidden, tokens=given.tokens)
    if given.child:
        cost = measure(given.child, size)
        print(cost.seconds, cost.peak_bytes, cost.outcome)
        return
    print("| way | seconds | forwards | peak memory, MiB | outcome |\n|---|---|---|---|---|")
    forward = 0.0
    for way in given.way:
        cost = _in_child(way, size)
        forward = forward or cost.seconds
        print(
            f"| {way} | {cost.seconds:.2f} | {cost.seconds / forward:.1f} "
            f"| {cost.peak_bytes / 2**20:.0f} | {cost.outcome} |",
            flush=True,
        )


def measure(way: str, size: Size) -> Cost:
    """Run one way in this process.

    Args:
        way: one of those in the table.
        size: of the model.
    """
    run = WAYS[way]
    reference, candidate, row = _models(size, faulty="fault" in way)
    start = time.perf_counter()
    outcome = run(reference, candidate, row)
    return Cost(
        seconds=time.perf_counter() - start,
        peak_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        outcome=outcome,
    )


def _in_child(way: str, size: Size) -> Cost:
    sizes = ["--layers", size.layers, "--hidden", size.hidden, "--tokens", size.tokens]
    command = [sys.executable, "-m", "benchmarks.diff_models", "--child", way, *map(str, sizes)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    seconds, peak, outcome = done.stdout.strip().split(maxsplit=2)
    return Cost(seconds=float(seconds), peak_bytes=int(peak), outcome=outcome)


def _models(size: Size, *, faulty: bool) -> tuple[Any, Any, list[int]]:
    """Make the reference, its copy, and a row of token ids."""
    import copy

    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=size.hidden,
        intermediate_size=size.hidden * 8 // 3,
        num_hidden_layers=size.layers,
        num_attention_heads=size.hidden // 64,
        num_key_value_heads=max(size.hidden // 192, 1),
        vocab_size=8000,
        pad_token_id=0,
        eos_token_id=None,
    )
    reference = LlamaForCausalLM._from_config(config, attn_implementation="eager").eval()
    candidate = copy.deepcopy(reference)
    if faulty:
        candidate.model.layers[size.layers // 2].self_attn.scaling *= 1.01
    row = torch.randint(1, 8000, (size.tokens,)).tolist()
    return reference, candidate, row


def _forward(reference: Any, candidate: Any, row: list[int]) -> str:
    import torch

    del reference
    with torch.no_grad():
        candidate(torch.tensor([row]))
    return "logits"


def _compare_dumps(reference: Any, candidate: Any, row: list[int]) -> str:
    from comparison.pipeline import compare
    from diagnosis.module_dump import ModuleInputs, dump_module

    given = ModuleInputs.of([row], num_steps=1, encoder=False)
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / name for name in ("reference", "candidate")]
        for module, path in zip((reference, candidate), paths, strict=True):
            dump_module(module, given, path)
        return f"{len(compare(paths[0], paths[1]).pairs)} pairs"


def _diff(reference: Any, candidate: Any, row: list[int], *, max_bytes: int | None = None) -> str:
    from diagnosis.diff_models import DiffOptions, diff_models

    options = DiffOptions() if max_bytes is None else DiffOptions(max_bytes=max_bytes)
    found = diff_models(reference, candidate, [row], num_steps=1, options=options)
    return f"{found.verdict}" + (f", {found.culprit.module}" if found.culprit else "")


def _diff_in_two_passes(reference: Any, candidate: Any, row: list[int]) -> str:
    from diagnosis.module_dump import ModuleInputs, measure_module

    given = ModuleInputs.of([row], num_steps=1, encoder=False)
    with tempfile.TemporaryDirectory() as folder:
        _, sizes = measure_module(candidate, given, Path(folder) / "size", max_bytes=0)
    return _diff(reference, candidate, row, max_bytes=sum(sizes.values()) // _FRACTION)


_Way = Callable[[Any, Any, list[int]], str]
WAYS: Mapping[str, _Way] = {
    "forward": _forward,
    "dumps of both, compared": _compare_dumps,
    "diff_models, a copy": partial(_diff),
    "diff_models, a fault": partial(_diff),
    "diff_models in two passes, a fault": _diff_in_two_passes,
}


if __name__ == "__main__":
    main()
