"""What decides the last bits of a computation on Torch, besides model and input."""

from __future__ import annotations

import hashlib
import os
import platform
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

_PACKAGES = ("torch", "transformers", "tokenizers", "safetensors", "numpy", "accelerate")
_VARIABLES = (
    "ATEN_",
    "CUBLAS_",
    "CUDA_",
    "DNNL_",
    "GOMP_",
    "KMP_",
    "MKL_",
    "NVIDIA_TF32",
    "OMP_",
    "ONEDNN_",
    "OPENBLAS_",
    "PYTORCH_",
    "TORCH_",
    "TRANSFORMERS_",
)


def numeric_environment(device: str, *, environ: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Return versions, processor, threads, switches and variables, as JSON values.

    Args:
        device: `cpu`, `gpu` or `gpu:<index>`.
        environ: the environment's variables.
    """
    import torch

    return {
        "python": sys.version,
        "packages": {name: _version(name) for name in _PACKAGES},
        "torch": [torch.__version__, str(torch.version.git_version)],
        "machine": [platform.machine(), platform.system(), *platform.libc_ver()],
        "processor": processor_flags(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "switches": _switches(),
        "devices": [] if device == "cpu" else _gpus(),
        "variables": {
            name: value for name, value in sorted(environ.items()) if name.startswith(_VARIABLES)
        },
    }


def processor_flags() -> str:
    """Return a digest of what Linux says of the processor's model and instructions."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return platform.processor()
    told = ("model name", "flags", "Features", "CPU part")
    lines = sorted({line for line in text.splitlines() if line.startswith(told)})
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def editable_packages() -> list[str]:
    """Name the packages that are run from a folder someone edits, whose version says little."""
    found = []
    for name in _PACKAGES:
        try:
            told = metadata.distribution(name).read_text("direct_url.json")
        except metadata.PackageNotFoundError:
            continue
        if told is not None and '"editable"' in told:
            found.append(name)
    return found


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _switches() -> list[str]:
    import torch

    return [
        str(value)
        for value in (
            torch.get_default_dtype(),
            torch.get_float32_matmul_precision(),
            torch.are_deterministic_algorithms_enabled(),
            torch.backends.mkldnn.enabled,
            torch.backends.cudnn.enabled,
            torch.backends.cudnn.allow_tf32,
            torch.get_num_interop_threads(),
        )
    ]


def _gpus() -> list[str]:
    import torch

    if not torch.cuda.is_available():
        return []
    return [
        str(torch.version.cuda),
        *(torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())),
    ]
