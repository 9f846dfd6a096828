"""Measures how fast pairs of tensors are compared, against torch and against reading alone.

Run by hand:

    python -m benchmarks.compare_pairs             all metrics, in turns with two ways of torch
    python -m benchmarks.compare_pairs --way files whole processes: many pairs, and one large pair

With `--way files --msprobe PYTHON` mindstudio-probe compares the many pairs in turns with ours, in
an environment of its own.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Each way is called again until this much time has passed: to wake a second core takes some of the
# 14 ms that one call takes, and torch's threads go on spinning for a while after their work.
_LEAST_SECONDS = 0.15
DTYPES = ("float32", "bfloat16", "float16", "float8_e4m3fn", "int32")
RTOL, ATOL = 1e-2, 1e-3
_ROWS_OF = 4096  # elements
_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Seconds of each round of one way, and what it reads.

    Attributes:
        seconds: one a round.
        size_bytes: of both sides together.
    """

    seconds: tuple[float, ...]
    size_bytes: int

    @property
    def rate(self) -> float:
        """Median of bytes a second, in GB."""
        return self.size_bytes / statistics.median(self.seconds) / 1e9


def main() -> None:
    """Print the tables of one way."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--way", choices=("memory", "files"), default="memory")
    parser.add_argument("--elements", type=int, default=1 << 25, help="Of each side, in memory.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--pairs", type=int, default=510, help="Of --pair-bytes, in files.")
    parser.add_argument("--pair-bytes", type=int, default=1_300_000_000 // 510)
    parser.add_argument("--small-pairs", type=int, default=5000)
    parser.add_argument("--large-bytes", type=int, default=1 << 30, help="Of each side.")
    parser.add_argument("--msprobe", type=Path, help="Python with mindstudio-probe and torch.")
    arguments = parser.parse_args()
    if arguments.way == "memory":
        _print_memory(arguments.elements, arguments.rounds)
    else:
        with tempfile.TemporaryDirectory() as folder:
            _print_files(Path(folder), arguments)
            if arguments.msprobe is not None:
                _print_rival(Path(folder), arguments)


def measure(dtype: str, *, elements: int, rounds: int) -> dict[str, Times]:
    """Let ours, the usual formula, assert_close and reading take turns on one pair in memory."""
    import torch

    from comparison.numerics.fused import FusedKernel

    torch.set_num_threads(len(os.sched_getaffinity(0)))  # as many as ours takes
    kernel = FusedKernel.load(_CACHE / "model_accuracy_tools" / "kernels")
    generator = torch.Generator().manual_seed(0)
    wide = torch.randn((max(1, elements // _ROWS_OF), _ROWS_OF), generator=generator)
    scale = 50 if dtype == "int32" else 1
    sides = [(side * scale).to(getattr(torch, dtype)) for side in (wide, wide * (1 + 1e-3))]
    arrays = [_as_numpy(side, dtype) for side in sides]
    size_bytes = sum(array.nbytes for array in arrays)
    ways: dict[str, Callable[[], object]] = {
        "ours": lambda: _ours(arrays, kernel),
        "formula": lambda: formula(sides[0], sides[1]),
        "assert_close": lambda: _assert_close(sides[0], sides[1]),
        "reading": lambda: _read(arrays),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for way in ways.values():  # once to warm up
        way()
    for _ in range(rounds):
        for name, way in ways.items():
            seconds[name].append(_seconds_of_a_call(way))
    return {
        name: Times(seconds=tuple(taken), size_bytes=size_bytes) for name, taken in seconds.items()
    }


def _seconds_of_a_call(way: Callable[[], object]) -> float:
    """Call at least once, and for `_LEAST_SECONDS` at least; return the mean."""
    start, calls, taken = time.perf_counter(), 0, 0.0
    while taken < _LEAST_SECONDS:
        way()
        calls, taken = calls + 1, time.perf_counter() - start
    return taken / calls


def ratio(of: Times, to: Times) -> tuple[float, float, float]:
    """Return how many times faster one way is, by round: median, least and greatest."""
    ratios = [other / own for own, other in zip(of.seconds, to.seconds, strict=True)]
    return statistics.median(ratios), min(ratios), max(ratios)


def formula(reference: Any, candidate: Any) -> dict[str, object]:
    """Compare as scripts do: widen, subtract, look for the greatest, count what is not close."""
    import torch

    wide, other = reference.float(), candidate.float()
    difference = (other - wide).abs()
    relative = difference / wide.abs().clamp(min=1e-10)
    close = torch.isclose(other, wide, rtol=RTOL, atol=ATOL)
    return {
        "greatest_absolute": (difference.max().item(), difference.argmax().item()),
        "greatest_relative": (relative.max().item(), relative.argmax().item()),
        "mean_absolute": difference.mean().item(),
        "failed": (~close).sum().item(),
    }


def _assert_close(reference: Any, candidate: Any) -> str:
    """Call torch's own check, which does not take 8-bit floats as they are."""
    import torch

    if reference.element_size() == 1:
        reference, candidate = reference.float(), candidate.float()
    try:
        torch.testing.assert_close(candidate, reference, rtol=RTOL, atol=ATOL)
    except AssertionError as error:
        return str(error)
    return ""


def _as_numpy(tensor: Any, dtype: str) -> Any:
    import torch

    from comparison.numerics.dtypes import dtype_of_name

    codes = {1: torch.uint8, 2: torch.int16, 4: torch.int32}[tensor.element_size()]
    return tensor.view(codes).numpy().view(dtype_of_name(dtype))


def _ours(arrays: Sequence[Any], kernel: Any) -> object:
    from comparison.numerics.blocks import Block
    from comparison.numerics.metrics import measure_blocks
    from comparison.schema.tolerance import Tolerance

    block = Block(reference=arrays[0], candidate=arrays[1])
    tolerance = Tolerance(rtol=RTOL, atol=ATOL)
    return measure_blocks([block], shape=arrays[0].shape, tolerance=tolerance, kernel=kernel)


def _read(arrays: Sequence[Any]) -> None:
    """Read both sides, one thread each, with the fastest pass that numpy has."""
    import numpy as np

    def read(array: Any) -> None:
        np.bitwise_or.reduce(array.reshape(-1).view(np.uint8).view(np.uint64))

    threads = [threading.Thread(target=read, args=(array,)) for array in arrays]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _print_memory(elements: int, rounds: int) -> None:
    print(
        "| dtype | ours, times the formula | ours, times assert_close | share of reading |", end=""
    )
    print(" ours, GB/s | ours, 10^9 pairs/s | formula, GB/s | assert_close, GB/s | reading, GB/s |")
    print("|---" * 9 + "|")
    for dtype in DTYPES:
        times = measure(dtype, elements=elements, rounds=rounds)
        ours = times["ours"]
        pairs = times["ours"].rate * elements / ours.size_bytes
        cells = [_shown(*ratio(ours, times[name])) for name in ("formula", "assert_close")]
        cells.append(f"{ratio(ours, times['reading'])[0]:.0%}")
        cells += [f"{ours.rate:.2f}", f"{pairs:.2f}"]
        cells += [f"{times[name].rate:.2f}" for name in ("formula", "assert_close", "reading")]
        print(f"| {dtype} | {' | '.join(cells)} |", flush=True)


def _shown(median: float, least: float, greatest: float) -> str:
    return f"{median:.1f} ({least:.1f} to {greatest:.1f})"


def _print_files(folder: Path, arguments: argparse.Namespace) -> None:
    print("| pairs | bytes of both sides | seconds, median (range) | anonymous memory, MiB |")
    print("|---|---|---|---|")
    for name, pairs, size_bytes, rounds in (
        ("many", arguments.pairs, arguments.pair_bytes, arguments.rounds),
        ("small", arguments.small_pairs, 2048, arguments.rounds),
        ("large", 1, 2 * arguments.large_bytes, 1),
    ):
        sides = write_dumps(folder / name, pairs=pairs, pair_bytes=size_bytes)
        taken = [compare_in_process(sides) for _ in range(rounds + 1)][1:]
        seconds = [each[0] for each in taken]
        memory = max(each[1] for each in taken)
        print(f"| {pairs} | {pairs * size_bytes} | {_spread(seconds)} | {memory:.0f} |", flush=True)


def _spread(seconds: Sequence[float]) -> str:
    return f"{statistics.median(seconds):.2f} ({min(seconds):.2f} to {max(seconds):.2f})"


def _print_rival(folder: Path, arguments: argparse.Namespace) -> None:
    """Let mindstudio-probe take turns with ours, over the same many pairs and the same files."""
    from benchmarks.compare_msprobe import TENSORS, compare_by_probe, write_probe_dump

    sides = folder / "many" / "reference", folder / "many" / "candidate"
    dumps = [write_probe_dump(side, folder / "probe" / side.name) for side in sides]
    files = dumps[0].parent / TENSORS, dumps[1].parent / TENSORS
    ways: dict[str, Callable[[], float]] = {
        "ours, .max": lambda: compare_in_process(sides)[0],
        "ours, the same .pt": lambda: compare_in_process(files)[0],
        "mindstudio-probe": lambda: compare_by_probe(
            arguments.msprobe, *dumps, pairs=arguments.pairs
        ),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(arguments.rounds + 1):
        for name, way in ways.items():
            taken = way()
            if number > 0:
                seconds[name].append(taken)
    print(f"\n| {arguments.pairs} pairs | seconds, median (range) | times ours, .max |")
    print("|---|---|---|")
    for name, taken_by in seconds.items():
        times = [own / other for own, other in zip(taken_by, seconds["ours, .max"], strict=True)]
        print(f"| {name} | {_spread(taken_by)} | {_spread(times)} |")


def write_dumps(folder: Path, *, pairs: int, pair_bytes: int) -> tuple[Path, Path]:
    """Write two folders of float32 tensors; beyond 64 MiB most of a file is a hole, so 0."""
    import numpy as np

    from comparison.store.max_file import write_max_file

    rows = max(1, pair_bytes // 8 // 64)
    real = min(rows, 1 << 18)
    generator = np.random.default_rng(0)
    for number in range(pairs):
        name = f"model.layers.{number // 50}.mlp.part_{number % 50}-output"
        reference = generator.standard_normal((real, 64), np.float32)
        for side, array in (
            ("reference", reference),
            ("candidate", reference * np.float32(1.0001)),
        ):
            path = folder / side / f"{name}.max"
            path.parent.mkdir(parents=True, exist_ok=True)
            write_max_file(path, array, key=name)
            if rows > real:
                _grow(path, rows=rows, name=name)
    return folder / "reference", folder / "candidate"


def _grow(path: Path, *, rows: int, name: str) -> None:
    """Make the first dimension greater, and the file sparse."""
    from comparison.store.max_file import read_max_header

    offset = read_max_header(path).offset
    with path.open("r+b") as file:
        file.seek(28 + len(name) + 2)
        file.write(rows.to_bytes(4, "little"))
        file.truncate(offset + rows * 64 * 4)


def compare_in_process(sides: tuple[Path, Path]) -> tuple[float, float]:
    """Run compare_tensors: seconds from start to end, and the greatest anonymous memory in MiB."""
    command = [sys.executable, "-m", "tools.compare_tensors"]
    command += ["--reference", str(sides[0]), "--candidate", str(sides[1])]
    start = time.perf_counter()
    process = subprocess.Popen(
        [*command, f"--rtol={RTOL}", f"--atol={ATOL}"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    peak = 0.0
    while process.poll() is None:
        peak = max(peak, _anonymous_mebibytes(process.pid))
        time.sleep(0.005)
    seconds = time.perf_counter() - start
    _, complaint = process.communicate()
    if process.returncode:
        raise RuntimeError(f"compare_tensors ended with {process.returncode}: {complaint!r:.500}")
    return seconds, peak


def _anonymous_mebibytes(process: int) -> float:
    try:
        text = Path(f"/proc/{process}/status").read_text(encoding="ascii", errors="replace")
    except OSError:  # it has just ended
        return 0.0
    lines = (line.split() for line in text.splitlines() if line.startswith("RssAnon:"))
    return max((int(words[1]) / 1024 for words in lines), default=0.0)


if __name__ == "__main__":
    main()
