"""Writes tensors to a folder, one .safetensors file each."""

from __future__ import annotations

import json
import os
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from comparison.schema.tensor_names import file_stem
from comparison.store.atomic_file import atomic_file
from test_common.tensor_text import is_plain
from test_common.torch_tensors import reason_unreadable

if TYPE_CHECKING:
    import torch

_SUFFIX = ".safetensors"
_KEY = "data"
_ALIGNMENT = 8  # bytes
_MOST_BYTES = 240  # of a name, below what file systems take
_DTYPE_CODES = {
    "torch.bool": "BOOL",
    "torch.float8_e4m3fn": "F8_E4M3",
    "torch.float8_e4m3fnuz": "F8_E4M3FNUZ",
    "torch.float8_e5m2": "F8_E5M2",
    "torch.float8_e5m2fnuz": "F8_E5M2FNUZ",
    "torch.float8_e8m0fnu": "F8_E8M0",
    "torch.float16": "F16",
    "torch.bfloat16": "BF16",
    "torch.float32": "F32",
    "torch.float64": "F64",
    "torch.uint8": "U8",
    "torch.int8": "I8",
    "torch.uint16": "U16",
    "torch.int16": "I16",
    "torch.uint32": "U32",
    "torch.int32": "I32",
    "torch.uint64": "U64",
    "torch.int64": "I64",
    "torch.complex64": "C64",
}


def reason_unstorable(tensor: torch.Tensor) -> str | None:
    """Say why a tensor cannot be a .safetensors file; None where it can.

    Args:
        tensor: a tensor of any kind.
    """
    if is_plain(tensor):
        return None
    reason = reason_unreadable(tensor)
    if reason is None and str(tensor.dtype) not in _DTYPE_CODES:
        reason = f"the format has no {str(tensor.dtype).removeprefix('torch.')}"
    return reason


class SafetensorsFolder:
    """Writes tensors below one folder, each to a file of its own."""

    def __init__(self, folder: Path) -> None:
        """Make it.

        Args:
            folder: an existing folder.
        """
        self._folder = folder
        self._written: set[str] = set()
        self._replaced: set[str] = set()

    def save(self, name: str, tensor: torch.Tensor) -> str:
        """Write a tensor under the key `data`, whole or not at all; one of that name is replaced.

        Args:
            name: what the file is called, without suffix. What is no file name, or too long, is
                encoded as in a dump, so that nothing is written elsewhere.
            tensor: one for which `reason_unstorable` has no reason.

        Returns:
            The file's path, relative to the folder: `./<name>.safetensors`.

        Raises:
            UnwritableOutputError: the folder cannot be written, or the disk is full.
        """
        file_name = f"{plain_file_name(name)}{_SUFFIX}"
        if file_name in self._written:
            self._replaced.add(f"./{file_name}")
        self._written.add(file_name)
        data = _bytes_of(tensor)
        with atomic_file(self._folder / file_name) as file:
            file.write(_header(tensor, data.numel()))
            file.write(data.numpy().data)
        return f"./{file_name}"

    def repeat(self, earlier: str, name: str, tensor: torch.Tensor) -> str:
        """Write a tensor that a file holds already: as a hard link to that, where that can be.

        Args:
            earlier: what `save` returned for it.
            name: as for `save`.
            tensor: as for `save`.

        Returns:
            As `save`.

        Raises:
            UnwritableOutputError: as `save`.
        """
        file_name = f"{plain_file_name(name)}{_SUFFIX}"
        if earlier in self._replaced:
            return self.save(name, tensor)
        try:
            os.link(self._folder / earlier, self._folder / file_name)
        except OSError:  # a name that is taken, or a file system without links
            return self.save(name, tensor)
        self._written.add(file_name)
        return f"./{file_name}"


class LaterFile:
    """A tensor that may turn out not to be wanted: copied now, and written when asked for."""

    def __init__(self, folder: SafetensorsFolder, name: str, tensor: torch.Tensor) -> None:
        """Copy a tensor.

        Args:
            folder: where it may go.
            name: as for `SafetensorsFolder.save`.
            tensor: as for `SafetensorsFolder.save`.
        """
        self._folder, self._name = folder, name
        self._copy = _Copy(tensor.detach().clone())

    def under(self, name: str) -> LaterFile:
        """Return the same tensor for another file, without another copy."""
        other = copy(self)
        other._name = name
        return other

    def save(self) -> str:
        """Write the file, or link to that of the same copy; see `SafetensorsFolder.save`."""
        if self._copy.path is None:
            self._copy.path = self._folder.save(self._name, self._copy.tensor)
            return self._copy.path
        return self._folder.repeat(self._copy.path, self._name, self._copy.tensor)


@dataclass(slots=True)
class _Copy:
    """A copy of a tensor, and the first file that it was written to."""

    tensor: torch.Tensor
    path: str | None = None


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    """Return the elements in row-major order, as bytes in main memory."""
    import torch

    plain = tensor.detach().as_subclass(torch.Tensor).resolve_conj().resolve_neg()
    return plain.to("cpu").contiguous().reshape(-1).view(torch.uint8)


def _header(tensor: torch.Tensor, size_bytes: int) -> bytes:
    entry = {
        "dtype": _DTYPE_CODES[str(tensor.dtype)],
        "shape": list(tensor.shape),
        "data_offsets": [0, size_bytes],
    }
    header = json.dumps({_KEY: entry}, separators=(",", ":")).encode()
    header += b" " * (-len(header) % _ALIGNMENT)  # data begin there, as the format asks for
    return len(header).to_bytes(8, "little") + header


def plain_file_name(name: str, *, most_bytes: int = _MOST_BYTES) -> str:
    """Return a name itself wherever it is one file's name on any system we run on.

    Args:
        name: any text; what is no file name, or too long, is encoded as in a dump.
        most_bytes: of a name that stays as it is.
    """
    try:
        size = len(name.encode())
    except UnicodeEncodeError:  # lone surrogates
        return file_stem(name)
    plain = size <= most_bytes and not any(character in name for character in "/\\\0")
    return name if plain else file_stem(name)
