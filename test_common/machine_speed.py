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
from test_common.torch_print_hook import TorchPrintHook
from test_common.write_errors import write_errors

if TYPE_CHECKING:
    import torch

_TRIES = 3
_PROBE_BYTES = 32 << 20
_PROBE_LAYERS = 48
_MATRIX = 1024  # of each side; large enough for the libraries' fast ways


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineSpeed:
    """Speeds, each the best of a few tries.

    Attributes:
        flops: floating point operations a second, of one linear layer with square matrices.
        memory_bytes: bytes a second that are read and written again in the device's memory.
        write_bytes: bytes a second that are written into a file.
        tensor_seconds: what a small tensor takes to be computed, seen by a hook, and written.
    """

    flops: float
    memory_bytes: float
    write_bytes: float
    tensor_seconds: float


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
    # As models multiply: in half precision a product without the transposition takes ten times as
    # long on some processors.
    product_seconds = _best(lambda: torch.nn.functional.linear(square, square), device=device)
    copy_seconds = _best(lambda: copy.copy_(memory), device=device)
    write_bytes, tensor_seconds = _writing(folder)
    return MachineSpeed(
        flops=2 * _MATRIX**3 / product_seconds,
        memory_bytes=_PROBE_BYTES / copy_seconds,
        write_bytes=write_bytes,
        tensor_seconds=tensor_seconds,
    )


def _writing(folder: Path) -> tuple[float, float]:
    """Return bytes a second, and the seconds of a small tensor."""
    place = next(path for path in (folder, *folder.absolute().parents) if path.is_dir())
    content = memoryview(os.urandom(1 << 20) * (_PROBE_BYTES >> 20))
    with write_errors(place):
        probe = Path(tempfile.mkdtemp(prefix=".probe-", dir=place))
        try:
            large = _best(lambda: write_parts(probe / "large", [content]))
            tensor = min(_capturing(probe / f"{number}") for number in range(_TRIES))
        finally:
            shutil.rmtree(probe, ignore_errors=True)
    return _PROBE_BYTES / large, tensor


def _capturing(folder: Path) -> float:
    """Capture a stack of small layers, and return the seconds of each tensor."""
    import torch

    stack = torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(_PROBE_LAYERS)))
    with TorchPrintHook(export_path=folder) as hook, torch.no_grad():
        hook.name_layers(stack)
        began = time.perf_counter()
        stack(torch.ones(1, 8))
    seconds = time.perf_counter() - began  # the last file is there
    names = (folder / "0" / "tensor_names.txt").read_text(encoding="utf-8")
    return seconds / len(names.splitlines())


def _best(work: Callable[[], object], *, device: torch.device | None = None) -> float:
    """Return the seconds of the fastest of some tries."""
    import torch

    seconds = []
    for _ in range(_TRIES):
        began = time.perf_counter()
        work()
        if device is not None and device.type == "cuda":
            torch.cuda.synchronize(device)
        seconds.append(time.perf_counter() - began)
    return max(min(seconds), 1e-9)
