"""A step of which an earlier run has written a part: that is compared, kept, and gone on with."""

from __future__ import annotations

import filecmp
import os
from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from comparison.store.operations_file import OPERATIONS_NAME
from comparison.store.regular_file import read_regular
from comparison.store.safetensors_file import (
    StoredTensor,
    list_safetensors,
    read_safetensors_header,
)
from comparison.store.step_folder import MOST_ORDER_BYTES, ORDER_FILE_NAME
from test_common.earlier_run import mixed_runs
from test_common.print_style import PrintStyle
from test_common.safetensors_step import whole_files
from test_common.step_header import complete_partial_files
from test_common.tensor_files import SUFFIXES, holds_tensor, write_parts
from test_common.tensor_folder import NameList, StepStore, StoredBytes, one_line

if TYPE_CHECKING:
    import torch

    from test_common.write_budget import WriteBudget


@dataclass(slots=True, kw_only=True)
class EarlierStep:
    """What an earlier run has left of a step.

    Attributes:
        folder: the step's folder.
        names: lines of its list of names.
        style: the kind of its files.
        stored: where a tensor lies in a file of several, by its line.
        left: lines of tensors that are there and that this run has not come to.
        position: number of tensors that this run has come to.
        kept: number of tensors that were found equal so far.
    """

    folder: Path
    names: tuple[str, ...]
    style: PrintStyle
    stored: dict[str, tuple[Path, StoredTensor]]
    left: set[str]
    position: int = 0
    kept: int = 0

    @classmethod
    def read(cls, folder: Path, *, style: PrintStyle) -> EarlierStep:
        """Complete the files of a step that a killed run has left, and list what is in them.

        Args:
            folder: the step's folder; temporary files and links are gone.
            style: the kind of its files.

        Raises:
            CorruptFileError: a file is damaged.
            OSError: something cannot be read or written.
        """
        complete_partial_files(folder)
        stored = {
            name: (path, read_safetensors_header(path)[key])
            for path in whole_files(folder)
            for key, name in list_safetensors(path)
        }
        names = own_list(folder)
        left = {*names, *stored}
        return cls(folder=folder, names=names, style=style, stored=stored, left=left)

    @property
    def size_bytes(self) -> int:
        """Size of its tensor files, links counted as nothing."""
        skipped = (ORDER_FILE_NAME, OPERATIONS_NAME)
        files = {
            (status := path.stat()).st_ino: status.st_size
            for path in self.folder.iterdir()
            if path.name not in skipped
        }
        return sum(files.values())

    def expect(self, name: str) -> None:
        """Check that this run comes to the same tensors, one after the other.

        Raises:
            UnwritableOutputError: the earlier run came to another one here.
        """
        line = one_line(name)
        if self.position < len(self.names) and self.names[self.position] != line:
            listed = self.names[self.position]
            raise mixed_runs(self.folder, f"{listed} comes where this run has {name}")
        self.position += 1
        self.left.discard(line)

    def check_all_came(self) -> None:
        """Check at the end of the run that it came to all tensors.

        Raises:
            UnwritableOutputError: one is there that this run does not have.
        """
        if self.left:
            first = next((name for name in self.names if name in self.left), min(self.left))
            raise mixed_runs(self.folder, f"{first} is none of this run's tensors")

    def holds(self, name: str, tensor: torch.Tensor, path: Path) -> bool:
        """Compare a tensor with what is there of it.

        Args:
            name: full tensor name.
            tensor: a contiguous tensor in main memory.
            path: a file of its own.

        Returns:
            Whether it is there, and is the same.

        Raises:
            UnwritableOutputError: it is there with other bytes.
            OSError: the file cannot be read.
        """
        place = self.stored.get(one_line(name))
        if place is not None:
            there, same = True, _same_as_stored(tensor, *place)
        else:
            style = self.style
            if style is PrintStyle.SAFETENSORS:  # a dtype that the format does not have
                style = PrintStyle.NATIVE
                path = path.with_suffix(SUFFIXES[style])
            there = os.path.lexists(path)
            same = there and holds_tensor(path, tensor, style=style, name=name)
        if there and not same:
            raise mixed_runs(self.folder, f"{name} has other bytes than in this run")
        self.kept += there
        return there


class ResumedStep:
    """Leaves alone what an earlier run has written of a step; see `StepStore`."""

    def __init__(self, store: StepStore, earlier: EarlierStep, *, names: NameList) -> None:
        """Go on with a step.

        Args:
            store: takes what is missing.
            earlier: what is there.
            names: the step's list, which the store has too.
        """
        self._store = store
        self._earlier = earlier
        self._names = names

    def find(self, tensor: torch.Tensor, place: Hashable) -> str | None:
        """Return an earlier tensor with the same bytes, once all that was there has come."""
        return None if self._earlier.left else self._store.find(tensor, place)

    def repeat(self, name: str, earlier: str, *, path: Path) -> None:
        """Give a tensor of this run another name."""
        self._earlier.expect(name)
        self._store.repeat(name, earlier, path=path)

    def write(
        self, name: str, tensor: torch.Tensor, *, path: Path, place: Hashable, budget: WriteBudget
    ) -> None:
        """Write a tensor that is not there."""
        self._earlier.expect(name)
        if self._earlier.holds(name, tensor, path):
            self._names.append(name)
        else:
            self._store.write(name, tensor, path=path, place=place, budget=budget)

    def end(self) -> None:
        """Complete the step's files."""
        self._store.end()


def keep_engine_step(folder: Path, earlier: Path) -> None:
    """Compare a step that an engine wrote with what is there of it, and keep that.

    Args:
        folder: of the engine's files and their list; it is emptied by whoever made it.
        earlier: the step's folder of an earlier run, whole.

    Raises:
        UnwritableOutputError: a file differs, or is on one side only.
        OSError: a file cannot be read.
    """
    ours, theirs = ({path.name for path in of.iterdir()} for of in (folder, earlier))
    for name in [ORDER_FILE_NAME, *sorted((ours | theirs) - {ORDER_FILE_NAME, OPERATIONS_NAME})]:
        both = name in ours and name in theirs
        if not both or not filecmp.cmp(folder / name, earlier / name, shallow=False):
            what = "has other bytes than in this run" if both else "is of one run only"
            raise mixed_runs(earlier, f"{name} {what}")


def own_list(folder: Path) -> tuple[str, ...]:
    """Read the names of a step, and write their file anew where its last line was cut off.

    Also where the file has another name, such as in a copy of hard links: it is appended to.

    Args:
        folder: the step's folder.

    Raises:
        OSError: the file cannot be read or written.
        CorruptFileError: it is far too large, or no file.
    """
    path = folder / ORDER_FILE_NAME
    if not path.exists():
        return ()
    content = read_regular(path, most_bytes=MOST_ORDER_BYTES)
    whole = content[: content.rfind(b"\n") + 1]
    if whole != content or path.stat().st_nlink > 1:
        write_parts(path, [whole])
    return tuple(whole.decode("utf-8").splitlines())


def _same_as_stored(tensor: torch.Tensor, path: Path, stored: StoredTensor) -> bool:
    if str(tensor.dtype).removeprefix("torch.") != stored.dtype:
        return False
    if tuple(tensor.shape) != stored.shape:
        return False
    return StoredBytes.at(path, stored.begin, stored.end - stored.begin).equal(tensor)
