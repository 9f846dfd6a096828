"""Writes a dump directory such that a killed run leaves a readable one."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from comparison.numerics.weight_record import WeightRecord
from comparison.schema.errors import UnwritableOutputError
from comparison.schema.manifest import CaptureCertificate, Manifest, RawTensor
from comparison.schema.operations import StepOperations
from comparison.schema.tensor_names import file_stem, name_of_stem, parse_tensor_name
from comparison.store.manifest_file import MANIFEST_NAME, write_manifest
from comparison.store.operations_file import OPERATIONS_NAME, write_operations
from comparison.store.step_folder import ORDER_FILE_NAME
from comparison.store.weights_file import WEIGHTS_NAME, write_weights
from test_common.folder_lock import FolderLock
from test_common.output_folder import (
    check_content,
    check_output_folder,
    clear_old_dump,
    unwritable,
)
from test_common.print_style import PrintStyle
from test_common.tensor_files import SUFFIXES, write_tensor_file
from test_common.torch_tensors import plain_copy, same_bytes

if TYPE_CHECKING:
    import torch

    from test_common.progress import TensorCount


class DumpWriter:
    """Writes tensors, names and manifest below one folder, and nothing elsewhere.

    Nothing is created, and no earlier dump removed, before the first call that writes. Each file
    gets a temporary name and is renamed when it is whole; its name joins `tensor_names.txt` after
    that. This is safe from a killed process, not from a power cut. From the first write to
    `finish` or `close` no other writer can enter the folder.

    Attributes:
        out: the dump folder.
        overwrite: whether an earlier dump in it may be replaced.
        style: the kind of files that are written.
        bytes_written: size of all tensor files so far, links counted as nothing.
        progress: is told of each tensor; None while nobody looks.
    """

    def __init__(
        self, out: Path, overwrite: bool = False, *, style: PrintStyle = PrintStyle.NATIVE
    ) -> None:
        """Check the folder.

        Args:
            out: the dump folder; it and its parents need not exist.
            overwrite: whether an earlier dump in it may be replaced.
            style: the kind of files to write.

        Raises:
            UnwritableOutputError: the folder is not empty, is a file, or cannot be written.
        """
        check_output_folder(out, overwrite)
        self.out = out
        self.overwrite = overwrite
        self.style = style
        self.bytes_written = 0
        self.progress: TensorCount | None = None
        self._raw_tensors: dict[str, RawTensor] = {}
        self._opened = False
        self._lock: FolderLock | None = None
        self._step = 0
        self._folders: set[int] = set()
        self._names: set[str] = set()  # of this step
        self._written: dict[tuple[Any, ...], Path] = {}  # of this step, by place in memory
        self._stems: dict[str, str] = {}
        self._taken: set[str] = set()
        self._manifest: Manifest | None = None

    @property
    def file_names(self) -> dict[str, str]:
        """The stems that do not spell their tensor's name, with that name."""
        return {s: name for name, s in self._stems.items() if name_of_stem(s) != name}

    @property
    def raw_tensors(self) -> dict[str, RawTensor]:
        """Dtype and shape of the files of bare bytes so far, by their path below the folder."""
        return dict(self._raw_tensors)

    def stem(self, name: str) -> str:
        """Return the file stem of a tensor, the same in every step.

        Args:
            name: full tensor name.
        """
        if name not in self._stems:
            stem = file_stem(name, taken=self._taken)
            self._taken.add(stem.casefold())
            self._stems[name] = stem
            if name_of_stem(stem) != name and self._manifest is not None:
                self._write_manifest(self._manifest)  # a killed run must stay readable
        return self._stems[name]

    def start(self, manifest: Manifest) -> None:
        """Write the manifest of a run that has not finished.

        Args:
            manifest: what is known so far; `complete` is written as false.

        Raises:
            UnwritableOutputError: the folder cannot be written.
        """
        self._open()
        self._write_manifest(replace(manifest, complete=False))

    def finish(
        self, manifest: Manifest, certificate: CaptureCertificate, *, complete: bool = True
    ) -> None:
        """Write the final manifest.

        Args:
            manifest: all that is known now; names of shortened files are added.
            certificate: what was captured.
            complete: False for a run that stopped early and still can say so.

        Raises:
            UnwritableOutputError: the folder cannot be written.
        """
        self._open()
        self._write_manifest(replace(manifest, certificate=certificate, complete=complete))
        self.close()

    def close(self) -> None:
        """Let other writers into the folder, also after a run that failed."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def step(self) -> None:
        """End a step; a step without tensors gets no folder."""
        self._step += 1
        if self.progress is not None:
            self.progress.step()
        self._names.clear()
        self._written.clear()

    def save(self, name: str, tensor: torch.Tensor) -> Path:
        """Write one tensor of the current step.

        A view of memory that was written in this step and has not changed since becomes a hard
        link to that file.

        Args:
            name: full tensor name; a name that this step has already becomes `<module>(2)-...`.
            tensor: any dtype, device, shape and strides.

        Returns:
            The file.

        Raises:
            UnwritableOutputError: the folder cannot be written, or the disk is full.
        """
        folder = self._step_folder()
        name = self._free_name(name)
        path = folder / f"{self.stem(name)}{SUFFIXES[self.style]}"
        place = _place(tensor)
        with _errors_of(path):
            copy = plain_copy(tensor)
            linked = self.style is PrintStyle.NATIVE and _link(self._written.get(place), path, copy)
            if not linked:
                self._write(copy, path, name)
                self._written[place] = path
            _append_name(folder, name)
        self._names.add(name)
        if self.progress is not None:
            self.progress.saved(self.bytes_written)
        return path

    def _write(self, copy: torch.Tensor, path: Path, name: str) -> None:
        raw = write_tensor_file(copy, path, style=self.style, name=name)
        if raw is not None:
            self.note_raw_tensor(path, raw)
        self.bytes_written += path.stat().st_size

    def note_raw_tensor(self, path: Path, raw: RawTensor) -> None:
        """Keep dtype and shape of a file of bare bytes for the manifest.

        Args:
            path: the file, in a step's final folder.
            raw: its dtype and shape.
        """
        self._raw_tensors[path.relative_to(self.out).as_posix()] = raw

    def save_weights(self, record: WeightRecord) -> Path:
        """Write down the weights that the model runs with.

        Args:
            record: projections of them.

        Returns:
            The file.

        Raises:
            UnwritableOutputError: the folder cannot be written.
        """
        self._open()
        path = self.out / WEIGHTS_NAME
        write_weights(path, record)
        return path

    def save_operations(self, operations: StepOperations, step: int | None = None) -> Path:
        """Write down the operations of a step.

        Args:
            operations: of that step.
            step: a step that an engine wrote and `adopt_engine_step` took over; None for the
                current one.

        Returns:
            The file.

        Raises:
            UnwritableOutputError: the folder cannot be written.
        """
        folder = self._step_folder() if step is None else self.out / str(step)
        write_operations(folder / OPERATIONS_NAME, operations)
        return folder / OPERATIONS_NAME

    def engine_step_folder(self, step: int) -> Path:
        """Create the folder that an engine writes a step's files into by itself.

        Args:
            step: 0 for the prefill, 1.. for decode steps.

        Returns:
            `OUT/<step>.partial`, empty; readers take a dump with such a folder as partial.

        Raises:
            UnwritableOutputError: the step exists, or the folder cannot be written.
        """
        self._open()
        folder = self.out / f"{step}.partial"
        if os.path.lexists(self.out / str(step)):
            raise UnwritableOutputError(f"step {step} is in {self.out} already")
        with _errors_of(folder):
            folder.mkdir()
        return folder

    def adopt_engine_step(
        self, step: int, names: Sequence[str], *, suffix: str = ".max"
    ) -> tuple[str, ...]:
        """Take over a step's folder once the engine has written its files.

        Files that are not among `names` were printed by hand in the model's source, with
        `x.print("name")`. They are listed too, after the others, since the engine does not tell
        when it wrote them.

        Args:
            step: the step given to `engine_step_folder`.
            names: full tensor names in order of execution; the engine's labels were their `stem`.
            suffix: suffix of the engine's files.

        Returns:
            The names whose file the engine did not write; they are not in `tensor_names.txt`.

        Raises:
            UnwritableOutputError: the folder cannot be written or renamed.
        """
        folder, final = self.out / f"{step}.partial", self.out / str(step)
        missing = []
        with _errors_of(final):
            for name in names:
                if (folder / f"{self.stem(name)}{suffix}").is_file():
                    _append_name(folder, name)
                else:
                    missing.append(name)
            for name in self._printed_by_hand(folder, names, suffix=suffix):
                _append_name(folder, name)
            if os.path.lexists(final):
                raise UnwritableOutputError(f"step {step} is in {self.out} already")
            folder.rename(final)
            self.bytes_written += sum(path.stat().st_size for path in final.iterdir())
        if self.progress is not None:
            self.progress.saved(self.bytes_written, count=len(names))
            self.progress.step()
        return tuple(missing)

    def _printed_by_hand(self, folder: Path, names: Sequence[str], *, suffix: str) -> list[str]:
        """Name the files that an engine wrote without a hook, oldest first."""
        hooked = {ORDER_FILE_NAME, *(f"{self.stem(name)}{suffix}" for name in names)}
        found = [
            path
            for path in folder.iterdir()
            if path.name.endswith(suffix) and path.name not in hooked
        ]
        found.sort(key=lambda path: (path.stat().st_mtime_ns, path.name))
        return [name_of_stem(path.name.removesuffix(suffix)) for path in found]

    def _open(self) -> None:
        """Lock the folder, and before the first write create it, or clear it of an earlier dump."""
        if self._lock is not None:
            return
        if not self._opened:
            check_output_folder(self.out, self.overwrite)  # it may have changed since
        with _errors_of(self.out):
            if not self._opened:
                self.out.mkdir(parents=True, exist_ok=True)
            self._lock = FolderLock(self.out)
        if not self._opened:
            self._clear()
        self._opened = True

    def _clear(self) -> None:
        """Clear the folder, now that no one else can write into it."""
        try:
            with _errors_of(self.out):
                check_content(self.out, overwrite=self.overwrite)
            clear_old_dump(self.out)
        except UnwritableOutputError:
            self.close()
            raise

    def _step_folder(self) -> Path:
        """Return the current step's folder, made by us: neither a link nor there before."""
        self._open()
        folder = self.out / str(self._step)
        if self._step not in self._folders:
            with _errors_of(folder):
                folder.mkdir()
            self._folders.add(self._step)
        return folder

    def _free_name(self, name: str) -> str:
        """Count up the call in a name until this step does not have it."""
        parsed = parse_tensor_name(name)
        unique, call = name, 2
        while unique in self._names:
            if parsed is None:
                unique = f"{name}({call})"
            else:
                unique = str(replace(parsed, call=max(parsed.call, 1) + call - 1))
            call += 1
        return unique

    def _write_manifest(self, manifest: Manifest) -> None:
        self._manifest = replace(
            manifest,
            file_names=manifest.file_names | self.file_names,
            raw_tensors=manifest.raw_tensors | self._raw_tensors,
        )
        path = self.out / MANIFEST_NAME
        with _errors_of(path):
            write_manifest(path, self._manifest)


@contextmanager
def _errors_of(path: Path) -> Iterator[None]:
    """Turn what the system says into our error.

    torch.save reports a failed write of an open file as a RuntimeError with the OSError behind
    it.
    """
    try:
        yield
    except UnwritableOutputError:
        raise
    except OSError as error:
        raise unwritable(path, error) from error
    except RuntimeError as error:
        if isinstance(error.__context__, OSError):
            raise unwritable(path, error.__context__) from error
        raise


def _place(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Return what two aliases of the same elements have in common."""
    return (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype, tensor.device)


def _link(earlier: Path | None, path: Path, copy: torch.Tensor) -> bool:
    """Link to an earlier file of the same place in memory, if that holds the same bytes.

    The place alone proves nothing: memory is reused, and changed in place.
    """
    if earlier is None:
        return False
    import torch

    if not same_bytes(torch.load(earlier, mmap=True, weights_only=True), copy):
        return False
    try:
        os.link(earlier, path)
    except OSError:  # a file system without links, or too many of them: write it again
        return False
    return True


def _append_name(folder: Path, name: str) -> None:
    """Add a line to the names of a step; line breaks in a name are percent-encoded."""
    line = "".join(
        c if c.isprintable() else quote(c, safe="", errors="surrogatepass") for c in name
    )
    with (folder / ORDER_FILE_NAME).open("a", encoding="utf-8") as file:
        file.write(line + "\n")
