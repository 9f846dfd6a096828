"""Writes one torch tensor to one file, in any of the styles."""

from __future__ import annotations

import filecmp
import os
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from comparison.numerics.dtypes import dtype_of_name
from comparison.schema.manifest import RawTensor
from comparison.store.atomic_file import atomic_file
from comparison.store.max_file import write_max_file
from comparison.store.regular_file import open_regular
from test_common.print_style import PrintStyle
from test_common.pt_frame import pt_frame
from test_common.torch_tensors import as_array, as_bytes

if TYPE_CHECKING:
    import torch

_BLOCK_BYTES = 1 << 20  # compared at a time

SUFFIXES = {
    PrintStyle.NATIVE: ".pt",
    PrintStyle.BINARY: "",
    PrintStyle.BINARY_MAX_CHECKPOINT: ".max",
    PrintStyle.SAFETENSORS: ".safetensors",
}


def write_tensor_file(
    tensor: torch.Tensor, path: Path, *, style: PrintStyle, name: str
) -> RawTensor | None:
    """Write a file, whole or not at all.

    Args:
        tensor: a contiguous tensor in main memory.
        path: the file, with the suffix of the style.
        style: one that writes files.
        name: full tensor name, the label in a `.max` file.

    Returns:
        Dtype and shape where the file does not hold them, else None.

    Raises:
        UnsupportedFormatError: the style has no such dtype.
        OSError: the file cannot be written.
    """
    if style is PrintStyle.BINARY_MAX_CHECKPOINT:
        write_max_file(path, as_array(tensor), key=name)
        return None
    parts = _parts(tensor, style)
    if parts is not None:
        write_parts(path, parts)
        return raw_tensor(tensor) if style is PrintStyle.BINARY else None
    import torch

    with atomic_file(path) as file:
        torch.save(tensor, file)
    return None


def holds_tensor(path: Path, tensor: torch.Tensor, *, style: PrintStyle, name: str) -> bool:
    """Tell whether a file has just the bytes that `write_tensor_file` would write.

    Args:
        path: a file.
        tensor: a contiguous tensor in main memory.
        style: one that writes files.
        name: full tensor name.

    Raises:
        OSError: the file cannot be read, or one beside it not written.
    """
    parts = None if style is PrintStyle.BINARY_MAX_CHECKPOINT else _parts(tensor, style)
    if parts is not None:
        return _holds_parts(path, parts)
    ours = path.with_name(f".{uuid.uuid4().hex}.tmp")
    try:
        write_tensor_file(tensor, ours, style=style, name=name)
        return filecmp.cmp(ours, path, shallow=False)
    finally:
        ours.unlink(missing_ok=True)


def _holds_parts(path: Path, parts: Sequence[bytes | memoryview]) -> bool:
    if path.stat().st_size != sum(map(len, parts)):
        return False
    with open_regular(path) as file:
        return all(
            file.read(len(block)) == block
            for part in parts
            for begin in range(0, len(part), _BLOCK_BYTES)
            for block in [bytes(part[begin : begin + _BLOCK_BYTES])]
        )


def _parts(tensor: torch.Tensor, style: PrintStyle) -> list[bytes | memoryview] | None:
    """Return what a file consists of, None where a library writes it."""
    if style is PrintStyle.BINARY:
        return [as_array(tensor).reshape(-1).view("uint8").data]
    frame = pt_frame(tensor)
    return None if frame is None else [frame[0], as_bytes(tensor), frame[1]]


def raw_tensor(tensor: torch.Tensor) -> RawTensor:
    """Describe a tensor for a file that does not."""
    return RawTensor(dtype=_dtype_name(tensor), shape=tuple(tensor.shape))


def check_dtype(tensor: torch.Tensor, style: PrintStyle) -> None:
    """Check early that a style has a tensor's dtype.

    Raises:
        UnsupportedFormatError: the style has no such dtype.
    """
    if style in (PrintStyle.BINARY, PrintStyle.BINARY_MAX_CHECKPOINT):
        dtype_of_name(_dtype_name(tensor))


def _dtype_name(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def write_parts(path: Path, parts: Sequence[bytes | memoryview]) -> None:
    """Write a file of several parts, whole or not at all.

    Args:
        path: the file, in a folder that is the writer's own.
        parts: what stands in it, one after the other.

    Raises:
        OSError: the file cannot be written.
    """
    temporary = path.with_name(f".{uuid.uuid4().hex}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        try:
            write_all(descriptor, parts)
        finally:
            os.close(descriptor)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_all(descriptor: int, parts: Sequence[bytes | memoryview]) -> None:
    """Write parts one after the other: the system may take less than it is given, 2 GB at most."""
    left = [memoryview(part) for part in parts if len(part)]
    while left:
        written = os.writev(descriptor, left)
        while left and written >= len(left[0]):
            written -= len(left.pop(0))
        if left:
            left[0] = left[0][written:]
