"""Measures what a full capture to disk adds to a plain forward, ours and that of others.

Run by hand: `python -m benchmarks.capture [--layers 12] [--tokens 256] [--rounds 7]`. The model is
a Llama with random weights, on the CPU. All ways take turns in one process, so that what else runs
on the machine meets them alike; each ends when its last byte is written, none waits for the disk
itself (no fsync). With `--msprobe PYTHON` mindstudio-probe runs too, in an environment of its own
and beside plain forwards of its own. The numbers are in benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.call_tree import make_model

FORWARD, RAW, RAW_FILES = "plain forward", "raw write, one file", "raw write, a file a tensor"
BARE = "hooks that only write, one file"
OURS = {"ours, a .pt a tensor": "native", "ours, safetensors a step": "safetensors"}
SAVE_HOOKS, DEBUGGER = "torch.save in hooks", "transformers' debugger"
PROBE_MODES = (("statistics", "L0"), ("tensor", "L0"), ("statistics", "mix"), ("tensor", "L1"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds:
    """Seconds of each way, one a round.

    Attributes:
        seconds: by way.
        size_bytes: of the unique bytes that a raw write writes.
        tensors: number of those.
    """

    seconds: dict[str, list[float]] = field(default_factory=dict)
    size_bytes: int = 0
    tensors: int = 0

    def forwards(self, way: str) -> list[float]:
        """Return how many plain forwards a way takes, of each round."""
        return [a / b for a, b in zip(self.seconds[way], self.seconds[FORWARD], strict=True)]

    def raw_writes(self, way: str, raw: str = RAW) -> list[float]:
        """Return what a way adds to a plain forward, in raw writes of a kind, of each round."""
        columns = (self.seconds[way], self.seconds[FORWARD], self.seconds[raw])
        return [(a - b) / c for a, b, c in zip(*columns, strict=True)]


def main() -> None:
    """Print one row a way."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--hidden", type=int, default=768, help="Multiple of 64.")
    parser.add_argument("--tokens", type=int, default=256, help="Length of the prompt.")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--folder", type=Path, help="Where to write; a folder of the system's.")
    parser.add_argument("--msprobe", type=Path, help="Python with mindstudio-probe and torch.")
    given = parser.parse_args()
    model, inputs = make_model(layers=given.layers, hidden=given.hidden, tokens=given.tokens)
    rounds = measure(model, inputs, rounds=given.rounds, folder=given.folder)
    print(f"{rounds.tensors} unique tensors, {rounds.size_bytes / 1e6:.0f} MB\n")
    print("| way | forwards | spread | raw writes added | spread | of a file a tensor | seconds |")
    print("|---" * 7 + "|")
    for way in rounds.seconds:
        print(row(rounds, way))
    if given.msprobe is not None:
        sizes = {name: getattr(given, name) for name in ("layers", "hidden", "tokens", "rounds")}
        print("\n| mindstudio-probe | forwards | spread | seconds |\n|---|---|---|---|")
        for task, level in PROBE_MODES:
            print(probe_row(given.msprobe, task=task, level=level, sizes=sizes))


def measure(model: Any, inputs: Any, *, rounds: int, folder: Path | None = None) -> Rounds:
    """Let all ways take turns.

    Args:
        model: the model.
        inputs: keyword arguments of its forward.
        rounds: how often each runs, after once that does not count.
        folder: where to write, None for the system's temporary folder.
    """
    parts = unique_tensors(model, inputs)
    ways = _ways(model, inputs, parts)
    result = Rounds(
        seconds={way: [] for way in ways},
        size_bytes=sum(map(len, parts.values())),
        tensors=len(parts),
    )
    for number in range(rounds + 1):
        for way, run in ways.items():
            with tempfile.TemporaryDirectory(dir=folder) as place:
                began = time.perf_counter()
                run(Path(place))
                seconds = time.perf_counter() - began
            if number > 0:
                result.seconds[way].append(seconds)
    return result


def unique_tensors(model: Any, inputs: Any) -> dict[str, memoryview]:
    """Return name and bytes of every tensor that a capture writes, each once, in order.

    Args:
        model: the model.
        inputs: keyword arguments of its forward.
    """
    from test_common.torch_print_hook import TorchPrintHook
    from test_common.torch_tensors import as_bytes, plain_copy

    class Unique:
        """Keeps every tensor, so that no place in memory is used twice."""

        def __init__(self) -> None:
            self.kept: dict[Any, tuple[str, Any]] = {}

        def save(self, name: str, tensor: Any) -> None:
            """Keep a tensor."""
            place = (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor._version)
            self.kept.setdefault(place, (name, tensor))

        def step(self) -> None:
            """There is one step."""

    sink = Unique()
    with TorchPrintHook(sink=sink) as hook:
        hook.name_layers(model)
        _forward(model, inputs)
    return {name: as_bytes(plain_copy(tensor)) for name, tensor in sink.kept.values()}


def _ways(
    model: Any, inputs: Any, parts: dict[str, memoryview]
) -> dict[str, Callable[[Path], None]]:
    ours = {
        way: (lambda place, style=style: _ours(model, inputs, place, style=style))
        for way, style in OURS.items()
    }
    return {
        FORWARD: lambda place: _forward(model, inputs),
        RAW: lambda place: _raw_write(place, parts.values()),
        RAW_FILES: lambda place: _raw_files(place, parts.values()),
        BARE: lambda place: _bare_hooks(model, inputs, place, set(parts)),
        **ours,
        SAVE_HOOKS: lambda place: _save_hooks(model, inputs, place),
        DEBUGGER: lambda place: _debugger(model, inputs, place),
    }


def _forward(model: Any, inputs: Any) -> None:
    import torch

    with torch.no_grad():
        model(**inputs)


def _raw_write(place: Path, parts: Iterable[memoryview], name: str = "raw") -> None:
    descriptor = os.open(place / name, os.O_WRONLY | os.O_CREAT)
    for part in parts:
        os.write(descriptor, part)
    os.close(descriptor)


def _raw_files(place: Path, parts: Iterable[memoryview]) -> None:
    for number, part in enumerate(parts):
        _raw_write(place, [part], f"raw-{number}")


def _bare_hooks(model: Any, inputs: Any, place: Path, names: Set[str]) -> None:
    """Write each tensor the first time it comes: the least that any capture with hooks can do."""
    from test_common.torch_print_hook import TorchPrintHook
    from test_common.torch_tensors import as_bytes, in_memory

    descriptor = os.open(place / "raw", os.O_WRONLY | os.O_CREAT)

    class Bare:
        """Writes bytes, and neither names nor shapes."""

        def save(self, name: str, tensor: Any) -> None:
            """Write a tensor that is known to be new."""
            if name in names:
                os.write(descriptor, as_bytes(in_memory(tensor)))

        def step(self) -> None:
            """There is one step."""

    with TorchPrintHook(sink=Bare()) as hook:
        hook.name_layers(model)
        _forward(model, inputs)
    os.close(descriptor)


def _ours(model: Any, inputs: Any, place: Path, *, style: str) -> None:
    """Capture and wait for the last byte; the hook's folder is made and locked in it too."""
    from test_common.dump_writer import DumpWriter
    from test_common.print_style import PrintStyle
    from test_common.torch_print_hook import TorchPrintHook
    from test_common.write_queue import useful_queue_bytes

    writer = DumpWriter(place / "out", style=PrintStyle(style), queue_bytes=useful_queue_bytes())
    with TorchPrintHook(sink=writer) as hook:
        hook.name_layers(model)
        _forward(model, inputs)
    writer.close()


def _save_hooks(model: Any, inputs: Any, place: Path) -> None:
    """Write each module's first input and its output, as people do by hand."""
    import torch

    def hook_of(name: str) -> Callable[..., None]:
        def hook(module: Any, args: Any, output: Any) -> None:
            for kind, value in (("input", args), ("output", output)):
                tensor = value[0] if isinstance(value, tuple) and value else value
                if isinstance(tensor, torch.Tensor):
                    torch.save(tensor.detach().clone(), place / f"{name}-{kind}.pt")

        return hook

    handles = [
        module.register_forward_hook(hook_of(name or "model"))
        for name, module in model.named_modules()
    ]
    try:
        _forward(model, inputs)
    finally:
        for handle in handles:
            handle.remove()


def _debugger(model: Any, inputs: Any, place: Path) -> None:
    import torch
    from transformers.model_debugging_utils import model_addition_debugger_context

    options = {"debug_path": str(place), "do_prune_layers": False, "use_repr": False}
    with torch.no_grad(), model_addition_debugger_context(model, **options):
        model.forward(**inputs)


def row(rounds: Rounds, way: str) -> str:
    """Return a way's line of the table.

    Args:
        rounds: what was measured.
        way: one of its ways.
    """
    seconds = median(rounds.seconds[way])
    plain = way in (FORWARD, RAW, RAW_FILES)
    added = _with_spread([] if plain else rounds.raw_writes(way))
    in_files = "-" if plain else f"{median(rounds.raw_writes(way, RAW_FILES)):.2f}"
    forwards = _with_spread(rounds.forwards(way))
    return f"| {way} | {forwards} | {added} | {in_files} | {seconds:.3f} |"


def _with_spread(values: list[float]) -> str:
    if not values:
        return "- | -"
    return f"{median(values):.2f} | {min(values):.2f} to {max(values):.2f}"


def probe_row(python: Path, *, task: str, level: str, sizes: dict[str, int]) -> str:
    """Run mindstudio-probe in turns with plain forwards, in its own environment.

    Args:
        python: the Python of that environment.
        task: `statistics` or `tensor`.
        level: `L0` (modules), `L1` (operations) or `mix`.
        sizes: of the model, and the number of rounds.
    """
    command = [str(python), str(Path(__file__).with_name("capture_msprobe.py"))]
    done = subprocess.run(
        [*command, json.dumps({"task": task, "level": level, **sizes})],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        reason = (done.stderr.strip() or "no message").splitlines()[-1]
        return f"| {level} {task} | failed: {reason} | - | - |"
    pairs = json.loads(done.stdout.splitlines()[-1])
    ratios = [traced / plain for plain, traced in pairs]
    seconds = median(traced for _, traced in pairs)
    return f"| {level} {task} | {_with_spread(ratios)} | {seconds:.3f} |"


if __name__ == "__main__":
    main()
