"""Measures what each capture mode adds to a plain forward, and how large its dump is.

Run by hand: `python -m benchmarks.sketches [--layers 12] [--tokens 256] [--rounds 7]`. The model
is a Llama with random weights on Torch. All ways take turns in one process, so that what else
runs on the machine meets them alike; beside them hooks that keep nothing, and a copy of each
tensor, which is the least that keeping all of it can take. The numbers are in
benchmarks/README.md.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.call_tree import make_model
from test_common.capture_mode import CaptureMode
from test_common.dump_writer import DumpWriter
from test_common.kernels_folder import kernels_folder
from test_common.sketch_writer import SketchWriter
from test_common.torch_print_hook import TorchPrintHook

_HEADING = "| way | times a forward: median | least | greatest | seconds | dump, kB |"


class KeepsNothing:
    """Takes tensors and lets them go."""

    def save(self, name: str, tensor: Any) -> None:
        """Do nothing."""

    def step(self) -> None:
        """Do nothing."""


class Copies:
    """Copies each tensor into memory, and lets the copy go."""

    def save(self, name: str, tensor: Any) -> None:
        """Copy a tensor."""
        tensor.clone()

    def step(self) -> None:
        """Do nothing."""


@dataclass(slots=True, kw_only=True)
class Taken:
    """What one way took.

    Attributes:
        seconds: each a round.
        shares: the same as a multiple of the round's plain forward.
        size_bytes: of its dump; 0 for none.
    """

    seconds: list[float] = field(default_factory=list)
    shares: list[float] = field(default_factory=list)
    size_bytes: int = 0


Sink = Callable[[Path], Any]
Clock = Callable[[], float]
WAYS: dict[str, Sink] = {
    "hooks that keep nothing": lambda out: KeepsNothing(),
    "a copy of each tensor": lambda out: Copies(),
    "stats": lambda out: SketchWriter(out, mode=CaptureMode.STATS, kernels=kernels_folder()),
    "sketch": lambda out: SketchWriter(out, mode=CaptureMode.SKETCH),
    "full": DumpWriter,
}


def main() -> None:
    """Print one row a way."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--hidden", type=int, default=768, help="Multiple of 64.")
    parser.add_argument("--tokens", type=int, default=256, help="Length of the prompt.")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument(
        "--processor-time",
        action="store_true",
        help="Count the seconds of the processor: for a busy machine, with one thread.",
    )
    given = parser.parse_args()
    model, inputs = make_model(layers=given.layers, hidden=given.hidden, tokens=given.tokens)
    print(_HEADING)
    print("|---" * 6 + "|")
    clock = time.process_time if given.processor_time else time.perf_counter
    ways = {way: WAYS[way] for way in given.ways}
    for way, taken in measure(model, inputs, rounds=given.rounds, ways=ways, clock=clock).items():
        print(_row(way, taken))


def measure(
    model: Any,
    inputs: Any,
    *,
    rounds: int,
    ways: Mapping[str, Sink] = WAYS,
    clock: Clock = time.perf_counter,
) -> dict[str, Taken]:
    """Run a plain forward and each way in turn.

    Args:
        model: the model.
        inputs: keyword arguments of its forward.
        rounds: how often each runs, after once that does not count.
        ways: what to measure beside the forward.
        clock: tells the seconds.
    """
    found = {"plain forward": Taken()} | {way: Taken() for way in ways}
    for number in range(rounds + 1):
        plain = _seconds(model, inputs, clock)
        taken = {"plain forward": (plain, 0)}
        taken |= {way: _captured(model, inputs, sink, clock) for way, sink in ways.items()}
        for way, (seconds, size_bytes) in taken.items():
            if number > 0:
                found[way].seconds.append(seconds)
                found[way].shares.append(seconds / plain)
                found[way].size_bytes = size_bytes
    return found


def _captured(model: Any, inputs: Any, make: Sink, clock: Clock) -> tuple[float, int]:
    """Return the seconds of a forward with its dump written, and the bytes of that."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        sink = make(out)
        with TorchPrintHook(sink=sink) as hook:
            hook.name_layers(model)
            began = clock()
            _seconds(model, inputs, clock)
            hook.step()
            if isinstance(sink, DumpWriter):
                sink.close()
            seconds = clock() - began
        files = {file.stat().st_ino: file.stat().st_size for file in out.rglob("*.*")}
        return seconds, sum(files.values())


def _seconds(model: Any, inputs: Any, clock: Clock) -> float:
    import torch

    began = clock()
    with torch.no_grad():
        model(**inputs)
    return clock() - began


def _row(way: str, taken: Taken) -> str:
    shares = taken.shares
    size = f"{taken.size_bytes / 1e3:.0f}" if taken.size_bytes else ""
    return (
        f"| {way} | {median(shares):.2f} | {min(shares):.2f} | {max(shares):.2f} "
        f"| {median(taken.seconds):.2f} | {size} |"
    )


if __name__ == "__main__":
    main()
