"""How fast this machine is at what a capture does: products of matrices, moving memory, writing."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from test_common.tensor_files import write_parts
from test_common.write_errors import write_errors

if TYPE_CHECKING:
    import torch

_TRIES = 3
_PROBE_BYTES = 32 << 20
_PROBE_FILES = 16
_MATRIX = 1024  # of each side; large enough for the libraries' fast ways


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineSpeed:
    """Speeds, each the best of a few tries.

    Attributes:
        flops: floating point operations a second, of one product of two square matrices.
        memory_bytes: bytes a second that are read and written again in the device's memory.
        write_bytes: bytes a second that are written into a file.
        file_seconds: what a small file takes.
    """

    flops: float
    memory_bytes: float
    write_bytes: float
    file_seconds: float


def measured_speed(folder: Path, *, dtype: torch.dtype, device: torch.device) -> MachineSpeed:
    """Measure for some tenths of a second; nothing stays behind.

    Args:
        folder: where files are to be written; it need not exist.
        dtype: what the model computes in.
        device: where it computes.

    Raises:
        UnwritableOutputError: the folder cannot be written.
    """
    import torch

    square = torch.ones(_MATRIX, _MATRIX, dtype=dtype, device=device)
    memory = torch.ones(_PROBE_BYTES, dtype=torch.uint8, device=device)
    copy = torch.empty_like(memory)
    product_seconds = _best(lambda: square @ square, device=device)
    copy_seconds = _best(lambda: copy.copy_(memory), device=device)
    write_bytes, file_seconds = _writing(folder)
    return MachineSpeed(
        flops=2 * _MATRIX**3 / product_seconds,
        memory_bytes=_PROBE_BYTES / copy_seconds,
        write_bytes=write_bytes,
        file_seconds=file_seconds,
    )


def _writing(folder: Path) -> tuple[float, float]:
    """Return bytes a second, and the seconds of a small file."""
    place = next(path for path in (folder, *folder.absolute().parents) if path.is_dir())
    content = memoryview(os.urandom(1 << 20) * (_PROBE_BYTES >> 20))
    with write_errors(place):
        probe = Path(tempfile.mkdtemp(prefix=".probe-", dir=place))
        try:
            began = time.perf_counter()
            write_parts(probe / "large", [content])
            large = time.perf_counter() - began
            began = time.perf_counter()
            for number in range(_PROBE_FILES):
                write_parts(probe / f"{number}", [b"x"])
            small = (time.perf_counter() - began) / _PROBE_FILES
        finally:
            shutil.rmtree(probe, ignore_errors=True)
    return _PROBE_BYTES / large, small


def _best(work: Callable[[], object], *, device: torch.device) -> float:
    """Return the seconds of the fastest of some tries."""
    import torch

    seconds = []
    for _ in range(_TRIES):
        began = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        seconds.append(time.perf_counter() - began)
    return max(min(seconds), 1e-9)
