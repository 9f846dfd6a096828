"""Writes one torch tensor to one file, in any of the styles."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from comparison.schema.manifest import RawTensor
from comparison.store.atomic_file import atomic_file
from comparison.store.max_file import write_max_file
from test_common.print_style import PrintStyle
from test_common.torch_tensors import as_array

if TYPE_CHECKING:
    import torch

SUFFIXES = {
    PrintStyle.NATIVE: ".pt",
    PrintStyle.BINARY: "",
    PrintStyle.BINARY_MAX_CHECKPOINT: ".max",
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
    with atomic_file(path) as file:
        if style is not PrintStyle.BINARY:
            import torch

            torch.save(tensor, file)
            return None
        file.write(as_array(tensor).reshape(-1).view("uint8").data)
    return RawTensor(dtype=str(tensor.dtype).removeprefix("torch."), shape=tuple(tensor.shape))
