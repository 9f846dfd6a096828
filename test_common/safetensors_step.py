"""The folder of one step with all tensors in one file."""

from __future__ import annotations

import json
import os
from collections.abc import Hashable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from comparison.store.partial_file import PARTIAL_SUFFIX, index_of
from comparison.store.safetensors_file import padding_key, safetensors_code
from test_common.print_style import PrintStyle
from test_common.step_header import name_whole_file, reserve, write_header
from test_common.tensor_files import SUFFIXES, write_all, write_tensor_file
from test_common.tensor_folder import NameList, StoredBytes, one_line
from test_common.torch_tensors import as_bytes

if TYPE_CHECKING:
    import torch

    from test_common.write_budget import WriteBudget

FILE_STEM = "tensors"
# Room for the table of some 5000 tensors, which stands before them and is known after them.
_HEADER_BYTES = (1 << 20) - 8
_LEAST_HEADER_BYTES = (1 << 12) - 8
_DATA_ALIGNMENT = 64
# More than the table takes of any tensor, without its name.
_ENTRY_BYTES = 256


class SafetensorsStep:
    """A step of one file; the table becomes its header when the step ends.

    Until then the file is `tensors.partial`, with a list beside it to which a tensor is added once
    its bytes are written (`comparison.store.partial_file`): a killed run loses what was not added.
    A step whose table outgrows the room for it goes on in `tensors-2.safetensors`. Tensors of
    dtypes that the format does not have get a .pt file each.
    """

    def __init__(
        self,
        folder: Path,
        *,
        previous: SafetensorsStep | None = None,
        names: NameList | None = None,
    ) -> None:
        """Take over a folder.

        Args:
            folder: the step's folder, empty but for whole files of an earlier run.
            previous: the step before, which is likely to have had a table of the same size.
            names: the folder's list, None for a new one.
        """
        self._previous = previous
        self._header_bytes = _HEADER_BYTES
        self._folder = folder
        self._names = names or NameList(folder)
        self._file: _OpenFile | None = None
        self._count = len(whole_files(folder))

    def find(self, tensor: torch.Tensor, place: Hashable) -> str | None:
        """Return an earlier tensor of this file with the same bytes; see `StepStore`."""
        file = self._file
        return None if file is None else file.find(tensor, place)

    def write(
        self, name: str, tensor: torch.Tensor, *, path: Path, place: Hashable, budget: WriteBudget
    ) -> None:
        """Append a tensor, or refer to an earlier one; see `StepStore`."""
        earlier = self.find(tensor, place)
        if earlier is not None:
            self.repeat(name, earlier, path=path)
            return
        code = safetensors_code(str(tensor.dtype).removeprefix("torch."))
        budget.check(tensor.nbytes, name)
        if code is None:
            path = path.with_suffix(SUFFIXES[PrintStyle.NATIVE])
            write_tensor_file(tensor, path, style=PrintStyle.NATIVE, name=name)
            budget.spend(path.stat().st_size)
        else:
            file = self._open(name, budget)
            budget.spend(file.add(one_line(name), tensor, code=code, place=place))
        self._names.append(name)

    def repeat(self, name: str, earlier: str, *, path: Path) -> None:
        """Refer to an earlier tensor; see `StepStore`."""
        del path
        if self._file is None:
            raise LookupError(f"{earlier} is in a file that is complete")
        self._file.repeat(one_line(name), earlier)
        self._names.append(name)

    def end(self) -> None:
        """Complete the file."""
        self._names.close()
        self._end_file()

    def _end_file(self) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            self._header_bytes = _rounded(file.used_header_bytes * 5 // 4)
            file.end()

    def _open(self, name: str, budget: WriteBudget) -> _OpenFile:
        """Return the file that has room for one more name."""
        if self._file is not None and not self._file.has_room_for(name):
            self._end_file()
            self._header_bytes = _HEADER_BYTES
        if self._file is None:
            if self._previous is not None:
                self._header_bytes, self._previous = self._previous._header_bytes, None
            room = max(self._header_bytes, _rounded(2 * _space(name)))
            budget.check(8 + room, name)
            self._count += 1
            stem = FILE_STEM if self._count == 1 else f"{FILE_STEM}-{self._count}"
            self._file = _OpenFile(self._folder / f"{stem}{PARTIAL_SUFFIX}", header_bytes=room)
            budget.spend(8 + room)
        return self._file


def whole_files(folder: Path) -> list[Path]:
    """List a step's files that are not being written any more."""
    return sorted(folder.glob(f"{FILE_STEM}*.safetensors"))


def header_bytes_of_step(earlier_names: Iterable[str] | None) -> int:
    """Return the size of what stands before the tensors of a step that needs one file.

    Args:
        earlier_names: the tensors of the step before, None for the first step.
    """
    if earlier_names is None:
        return 8 + _HEADER_BYTES
    used = _ENTRY_BYTES + sum(_space(one_line(name)) for name in earlier_names)
    return 8 + _rounded(used * 5 // 4)


def _rounded(size_bytes: int) -> int:
    """Return a size of the header after which data begin at a multiple of 64 bytes."""
    size_bytes = max(size_bytes, _LEAST_HEADER_BYTES)
    return size_bytes + -(size_bytes + 8) % _DATA_ALIGNMENT


class _OpenFile:
    """One file while it is written."""

    def __init__(self, path: Path, *, header_bytes: int) -> None:
        self._path = path
        self._header_bytes = header_bytes
        flags = os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._end = 8 + header_bytes
        self._data = os.open(path, os.O_RDWR | flags, 0o666)
        try:
            reserve(self._data, self._end)
            self._index = os.open(index_of(path), os.O_WRONLY | os.O_APPEND | flags, 0o666)
        except OSError:
            os.close(self._data)
            path.unlink()
            raise
        os.lseek(self._data, self._end, os.SEEK_SET)
        self._table: dict[str, Any] = {}
        self._same_as: dict[str, str] = {}
        self._places: dict[Hashable, tuple[str, StoredBytes]] = {}
        self._room = header_bytes - _ENTRY_BYTES

    @property
    def used_header_bytes(self) -> int:
        """What the table may take at most, as far as it is known."""
        return self._header_bytes - self._room

    def has_room_for(self, name: str) -> bool:
        """Tell whether the header has room for one more name, and the filling before it."""
        return self._room >= _space(name)

    def add(self, name: str, tensor: torch.Tensor, *, code: str, place: Hashable) -> int:
        """Append a tensor, and return by how much the file has grown."""
        self._room -= _space(name)
        gap = -self._end % tensor.element_size()
        if gap:
            self._append(padding_key(len(self._table)), [bytes(gap)], code="U8", shape=[gap])
        stored = StoredBytes.of(tensor, self._path, self._end)
        size = self._append(name, [as_bytes(tensor)], code=code, shape=list(tensor.shape))
        self._places[place] = name, stored
        return gap + size

    def find(self, tensor: torch.Tensor, place: Hashable) -> str | None:
        """Return the name of a tensor with the same bytes, if there is room for another name."""
        name, stored = self._places.get(place, ("", None))
        return name if stored is not None and stored.equal(tensor) else None

    def repeat(self, name: str, earlier: str) -> None:
        """Note that a tensor is the same as an earlier one."""
        self._room -= _space(name)
        self._same_as[name] = earlier
        self._note({"name": name, "same_as": earlier})

    def _append(
        self, name: str, parts: list[bytes | memoryview], *, code: str, shape: list[int]
    ) -> int:
        begin = self._end
        try:
            write_all(self._data, parts)
        except OSError:
            os.ftruncate(self._data, begin)
            os.lseek(self._data, begin, os.SEEK_SET)
            raise
        self._end += sum(map(len, parts))
        entry = {"dtype": code, "shape": shape, "data_offsets": [begin, self._end]}
        self._table[name] = entry
        self._note({"name": name, **entry})
        return self._end - begin

    def _note(self, entry: dict[str, Any]) -> None:
        write_all(self._index, [f"{json.dumps(entry)}\n".encode()])

    def end(self) -> None:
        """Write the header, and give the file its name."""
        try:
            write_header(self._data, self._table, self._same_as, header_bytes=self._header_bytes)
        finally:
            os.close(self._data)
            os.close(self._index)
        name_whole_file(self._path)


def _space(name: str) -> int:
    """Return what a name takes of the header at most: its JSON is ASCII, and an alias has two."""
    return 4 * len(json.dumps(name)) + 2 * _ENTRY_BYTES
