"""The folder of one step with a file a tensor, and the list of their names."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Container, Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, Self
from urllib.parse import quote

from comparison.store.step_folder import ORDER_FILE_NAME
from test_common.print_style import PrintStyle
from test_common.pt_frame import pt_frame
from test_common.tensor_files import write_all, write_parts, write_tensor_file
from test_common.torch_tensors import as_bytes

if TYPE_CHECKING:
    import torch

    from test_common.write_budget import WriteBudget


_HEAD_BYTES = 64


class StepStore(Protocol):
    """Where the tensors of a step go; they come one after the other, from one thread.

    Only `find` may be called from another thread at the same time.
    """

    def find(self, tensor: torch.Tensor, place: Hashable) -> str | None:
        """Return the name of a tensor that was at the same place and whose file holds the same.

        The place alone proves nothing: memory is reused, and changed in place.

        Args:
            tensor: a contiguous tensor in main memory.
            place: what aliases of the same elements have in common.
        """

    def repeat(self, name: str, earlier: str, *, path: Path) -> None:
        """Give a tensor that is in a file already another name.

        Args:
            name: full tensor name, new in this step.
            earlier: the name that `find` has returned.
            path: a file of its own.
        """

    def write(
        self, name: str, tensor: torch.Tensor, *, path: Path, place: Hashable, budget: WriteBudget
    ) -> None:
        """Write a tensor, or repeat one that `find` finds.

        Args:
            name: full tensor name, new in this step.
            tensor: a contiguous tensor in main memory, which is not kept.
            path: a file of its own.
            place: what aliases of the same elements have in common.
            budget: is asked before anything is written.
        """

    def end(self) -> None:
        """Complete the step's files."""


class NameList:
    """`tensor_names.txt` of a step, to which a name is added once its tensor is written."""

    def __init__(self, folder: Path, *, listed: Container[str] = ()) -> None:
        """Name the folder; nothing is written yet.

        Args:
            folder: the step's folder.
            listed: lines that the file has already.
        """
        self._path = folder / ORDER_FILE_NAME
        self._listed = listed
        self._descriptor: int | None = None
        self._end = 0

    def append(self, *names: str) -> None:
        """Add a line for each, unless an earlier run has."""
        lines = [line for line in map(one_line, names) if line not in self._listed]
        if not lines:
            return
        if self._descriptor is None:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            self._descriptor = os.open(self._path, flags, 0o666)
            self._end = os.lseek(self._descriptor, 0, os.SEEK_END)
        added = "".join(f"{line}\n" for line in lines).encode()
        try:
            write_all(self._descriptor, [added])
        except OSError:
            os.ftruncate(self._descriptor, self._end)  # a full disk takes a part of it
            raise
        self._end += len(added)

    def close(self) -> None:
        """Close the file; another name opens it again."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class TensorFolder:
    """A step of one file a tensor; aliases of unchanged memory are hard links."""

    def __init__(self, folder: Path, style: PrintStyle, *, names: NameList | None = None) -> None:
        """Take over a folder.

        Args:
            folder: the step's folder, empty but for what an earlier run is known to have left.
            style: one of a file a tensor.
            names: the folder's list, None for a new one.
        """
        self._style = style
        self._names = names or NameList(folder)
        self._paths: dict[str, Path] = {}
        self._written: dict[Hashable, tuple[str, StoredBytes]] = {}

    def find(self, tensor: torch.Tensor, place: Hashable) -> str | None:
        """Return an earlier tensor with the same bytes; see `StepStore`."""
        name, stored = self._written.get(place, ("", None))
        return name if stored is not None and stored.equal(tensor) else None

    def write(
        self, name: str, tensor: torch.Tensor, *, path: Path, place: Hashable, budget: WriteBudget
    ) -> None:
        """Write a file, or link to the one that holds the same; see `StepStore`."""
        earlier = self.find(tensor, place)
        if earlier is not None:
            self.repeat(name, earlier, path=path)
            return
        frame = pt_frame(tensor) if self._style is PrintStyle.NATIVE else None
        around = 0 if frame is None else len(frame[0]) + len(frame[1])
        budget.check(tensor.nbytes + around, name)
        write_tensor_file(tensor, path, style=self._style, name=name)
        budget.spend(path.stat().st_size if frame is None else tensor.nbytes + around)
        if frame is not None:
            self._paths[name] = path
            self._written[place] = name, StoredBytes.of(tensor, path, len(frame[0]))
        self._names.append(name)

    def repeat(self, name: str, earlier: str, *, path: Path) -> None:
        """Link to an earlier tensor's file; see `StepStore`."""
        try:
            os.link(self._paths[earlier], path)
        except OSError:  # a file system without links, or too many of them
            write_parts(path, [self._paths[earlier].read_bytes()])
        self._names.append(name)

    def end(self) -> None:
        """Close the list of names."""
        self._names.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredBytes:
    """Where a tensor's bytes lie in a file.

    Attributes:
        path: the file.
        begin: the first byte.
        size: number of bytes.
        head: the first of them, which tell most other tensors without a look at the file.
    """

    path: Path
    begin: int
    size: int
    head: bytes

    @classmethod
    def of(cls, tensor: torch.Tensor, path: Path, begin: int) -> Self:
        """Note where a contiguous tensor in main memory was written."""
        data = as_bytes(tensor)
        return cls(path=path, begin=begin, size=len(data), head=bytes(data[:_HEAD_BYTES]))

    @classmethod
    def at(cls, path: Path, begin: int, size: int) -> Self:
        """Note where an earlier run has written a tensor.

        Raises:
            OSError: the file cannot be read.
        """
        with path.open("rb") as file:
            file.seek(begin)
            head = file.read(min(size, _HEAD_BYTES))
        return cls(path=path, begin=begin, size=size, head=head)

    def equal(self, tensor: torch.Tensor) -> bool:
        """Tell whether a contiguous tensor in main memory has the same bytes."""
        address = tensor.data_ptr()
        if tensor.nbytes != self.size or not _same_memory(self.head, address, len(self.head)):
            return False
        return self.size <= _HEAD_BYTES or self._equal(address)

    def _equal(self, address: int) -> bool:
        start = self.begin - self.begin % mmap.ALLOCATIONGRANULARITY
        skipped = self.begin - start
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                length = skipped + self.size
                mapped = mmap.mmap(descriptor, length, offset=start, access=mmap.ACCESS_READ)
            finally:
                os.close(descriptor)
        except (OSError, ValueError):  # it is gone, or shorter by now
            return False
        with mapped:
            return _same_memory(_address_of(mapped) + skipped, address, self.size)


def _address_of(mapped: mmap.mmap) -> int:
    import numpy as np

    address: int = np.frombuffer(mapped, np.uint8).__array_interface__["data"][0]
    return address


def _same_memory(first: int | bytes, second: int, size_bytes: int) -> bool:
    """Compare two stretches as C does: Python takes them byte by byte, and torch makes copies."""
    return size_bytes == 0 or _MEMCMP(first, second, size_bytes) == 0


_MEMCMP = ctypes.CDLL(None).memcmp  # releases Python's lock meanwhile
_MEMCMP.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]


def one_line(name: str) -> str:
    """Spell a name without line breaks and what else does not print, percent-encoded."""
    if name.isprintable():
        return name
    return "".join(
        c if c.isprintable() else quote(c, safe="", errors="surrogatepass") for c in name
    )
