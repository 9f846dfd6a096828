"""Whether several sides find room in memory at once."""

from __future__ import annotations

from pathlib import Path

from oracles.oracle import PipelineOracle
from test_common.hub_snapshot import size_of_weights

# A side holds its weights, and while it loads them part of a copy in another dtype or layout.
_COPIES = 2
_ENGINE_BYTES = 2_000_000_000  # what an engine takes by itself
_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")


def memory_problem(oracle: PipelineOracle, *, sides: int) -> str | None:
    """Say why sides do not fit into memory at once, None where they do.

    Args:
        oracle: says which files each loads.
        sides: how many there are.
    """
    place = oracle.model_path
    revision = oracle.config_params.get("huggingface_model_revision")
    size = None if place is None else size_of_weights(str(place), revision=revision)
    if size is None:
        return "how large the model is is not known before it is downloaded or built"
    needed, free = sides * (_COPIES * size + _ENGINE_BYTES), available_bytes()
    if free is None or needed <= free:
        return None
    return (
        f"at once they may need {needed / 1e9:.1f} GB of memory (weights of {size / 1e9:.1f} GB "
        f"each), and {free / 1e9:.1f} GB are free"
    )


def available_bytes(*, meminfo: Path = _MEMINFO, cgroup: Path = _CGROUP) -> int | None:
    """Return the memory that can still be had, None where the system does not say.

    Args:
        meminfo: Linux's file of that name.
        cgroup: folder of the control group, whose limit may be lower.
    """
    try:
        lines = meminfo.read_text(encoding="ascii").splitlines()
        free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvail"))
    except (OSError, StopIteration, ValueError):
        return None
    try:
        limit = int((cgroup / "memory.max").read_text(encoding="ascii"))
        used = int((cgroup / "memory.current").read_text(encoding="ascii"))
    except (OSError, ValueError):  # there is none, or it is `max`
        return free
    return min(free, max(0, limit - used))
