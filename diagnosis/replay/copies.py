"""Copies of what a module is called with, since modules change tensors in place."""

from __future__ import annotations

from typing import Any


def copied(value: Any) -> Any:
    """Copy tensors at any depth of plain lists, tuples and dicts; all else stays as it is."""
    import torch

    if isinstance(value, torch.Tensor):
        return value.clone()
    if isinstance(value, dict):
        return {key: copied(item) for key, item in value.items()}
    if isinstance(value, list | tuple) and type(value) in (list, tuple):
        return type(value)(copied(item) for item in value)
    return value
