"""Leaves modules that a user gave as they were."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def kept_as_they_are(*values: Any) -> Iterator[None]:
    """Restore training mode, buffers and Torch's random state at the end of the block.

    Args:
        values: modules; what is none is left alone.
    """
    import torch

    modules = [value for value in values if isinstance(value, torch.nn.Module)]
    modes = [(part, part.training) for module in modules for part in module.modules()]
    buffers = [
        (part, name, buffer, buffer.detach().clone())
        for module in modules
        for part in module.modules()
        for name, buffer in part.named_buffers(recurse=False)
    ]
    try:
        with torch.random.fork_rng():
            yield
    finally:
        for part, mode in modes:
            part.training = mode
        with torch.no_grad():
            for part, name, buffer, value in buffers:
                part._buffers[name] = buffer.copy_(value)
