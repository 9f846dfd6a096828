"""Measures what the core array type of comparison/ costs: numpy with ml_dtypes, or torch.

Run by hand: `python -m benchmarks.array_type [--mebibytes 256]`. The numbers are in
docs/adr/0001-core-array-type.md.
"""

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

_REPEATS = 3
_IMPORTS = ("numpy", "numpy, ml_dtypes", "comparison.pipeline", "torch")
_WAYS = ("numpy chunked", "torch whole", "torch chunked")


def main() -> None:
    """Print one table of import times and one of comparing a pair of files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mebibytes", type=int, default=256, help="Size of each file.")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        way, dtype, folder = arguments.child
        _child(way, dtype, Path(folder))
        return
    print("| import | seconds |\n|---|---|")
    for modules in _IMPORTS:
        print(f"| {modules} | {min(_import_seconds(modules) for _ in range(_REPEATS)):.2f} |")
    print("\n| way | dtype | seconds | anonymous memory, MiB |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        _write_files(Path(folder), arguments.mebibytes << 20)
        for dtype in ("float32", "bfloat16"):
            for way in _WAYS:
                seconds, mebibytes = _compare_in_child(way, dtype, folder)
                print(f"| {way} | {dtype} | {seconds:.2f} | {mebibytes:.1f} |")


def _import_seconds(modules: str) -> float:
    code = f"import time; t = time.perf_counter(); import {modules}; print(time.perf_counter() - t)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return float(done.stdout)


def _write_files(folder: Path, size_bytes: int) -> None:
    """Write one pair a dtype, in both forms, without ever holding a file in memory twice."""
    import numpy as np
    import torch

    from comparison.store.max_file import write_max_file
    from comparison.store.pt_file import read_pt_tensor

    for dtype in (torch.float32, torch.bfloat16):
        name = str(dtype).removeprefix("torch.")
        generator = torch.Generator().manual_seed(0)
        columns = 4096
        rows = size_bytes // dtype.itemsize // columns
        reference = torch.randn((rows, columns), generator=generator).to(dtype)
        candidate = reference + reference * 1e-2
        for side, tensor in (("reference", reference), ("candidate", candidate)):
            torch.save(tensor, folder / f"{name}.{side}.pt")
            array = np.asarray(read_pt_tensor(folder / f"{name}.{side}.pt"))
            write_max_file(folder / f"{name}.{side}.max", array, key="x")


def _compare_in_child(way: str, dtype: str, folder: str) -> tuple[float, float]:
    """Give the least time and the greatest memory of a few fresh processes."""
    command = [sys.executable, "-m", "benchmarks.array_type", "--child", way, dtype, folder]
    results = []
    for _ in range(_REPEATS):
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        results.append(tuple(map(float, done.stdout.split())))
    return min(seconds for seconds, _ in results), max(memory for _, memory in results)


def _child(way: str, dtype: str, folder: Path) -> None:
    compare: Callable[[], object]
    if way == "numpy chunked":
        compare = _numpy_chunked(dtype, folder)
    else:
        compare = _torch(dtype, folder, chunked=way == "torch chunked")
    idle = _anonymous_mebibytes()
    peak = [idle]
    stop = threading.Event()
    watcher = threading.Thread(target=_watch, args=(peak, stop))
    watcher.start()
    start = time.perf_counter()
    compare()
    seconds = time.perf_counter() - start
    stop.set()
    watcher.join()
    print(seconds, peak[0] - idle)


def _watch(peak: list[float], stop: threading.Event) -> None:
    while not stop.wait(0.002):
        peak[0] = max(peak[0], _anonymous_mebibytes())


def _anonymous_mebibytes() -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("expected RssAnon in /proc/self/status; this benchmark needs Linux")


def _numpy_chunked(dtype: str, folder: Path) -> Callable[[], object]:
    from comparison.numerics.metrics import measure
    from comparison.schema.tolerance import Tolerance
    from comparison.store.max_file import read_max_file

    def compare() -> object:
        reference = read_max_file(folder / f"{dtype}.reference.max")
        candidate = read_max_file(folder / f"{dtype}.candidate.max")
        return measure(reference, candidate, tolerance=Tolerance(rtol=1e-3))

    return compare


def _torch(dtype: str, folder: Path, *, chunked: bool) -> Callable[[], object]:
    """Return the same metrics in torch: extremes with index, failures, classes, sums."""
    import torch

    def measure(reference: torch.Tensor, candidate: torch.Tensor) -> list[float]:
        reference, candidate = reference.double(), candidate.double()
        difference = (candidate - reference).abs()
        magnitude = reference.abs()
        relative = difference / magnitude.clamp(min=1e-10)
        finite = reference.isfinite() & candidate.isfinite()
        return [
            *map(float, difference.max(dim=0)),
            *map(float, relative.max(dim=0)),
            float((difference > magnitude * 1e-3).sum()),
            float(finite.sum()),
            float(difference.sum()),
            float(difference @ difference),
            float(reference @ reference),
            float(candidate @ candidate),
            float(reference @ candidate),
        ]

    def compare() -> object:
        sides = (
            torch.load(folder / f"{dtype}.{side}.pt", mmap=True).reshape(-1)
            for side in ("reference", "candidate")
        )
        reference, candidate = sides
        step = 1 << 16 if chunked else reference.numel()
        if chunked:  # threads cost more than they save on so little work
            torch.set_num_threads(1)
        return [
            measure(reference[start : start + step], candidate[start : start + step])
            for start in range(0, reference.numel(), step)
        ]

    return compare


if __name__ == "__main__":
    main()
