"""Writes a dump directory such that a killed run leaves a readable one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Hashable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from comparison.numerics.weight_record import WeightRecord
from comparison.schema.errors import UnwritableOutputError
from comparison.schema.manifest import CaptureCertificate, Manifest, RawTensor
from comparison.schema.operations import StepOperations
from comparison.schema.tensor_names import parse_tensor_name
from comparison.store.operations_file import OPERATIONS_NAME, write_operations
from comparison.store.weights_file import WEIGHTS_NAME, write_weights
from test_common.dump_folder import DumpFolder
from test_common.engine_files import list_engine_files
from test_common.open_manifest import OpenManifest
from test_common.print_style import PrintStyle
from test_common.resumed_dump import ResumedDump
from test_common.resumed_step import ResumedStep
from test_common.safetensors_step import SafetensorsStep
from test_common.tensor_files import SUFFIXES, check_dtype, raw_tensor
from test_common.tensor_folder import NameList, StepStore, TensorFolder
from test_common.torch_tensors import in_memory, plain
from test_common.write_budget import WriteBudget
from test_common.write_errors import write_errors
from test_common.write_queue import WriteQueue

if TYPE_CHECKING:
    import torch

    from test_common.progress import TensorCount


class DumpWriter:
    """Writes tensors, names and manifest below one folder, and nothing elsewhere.

    Nothing is created, and no earlier dump removed, before the first call that writes. Each file
    gets a temporary name and is renamed when it is whole; its name joins `tensor_names.txt` after
    that. This is safe from a killed process, not from a power cut. From the first write to
    `finish` or `close` no other writer can enter the folder.

    With a queue tensors are copied when they are given, and written in the background. What that
    raises, such as a full disk, is raised by the next call of `save`, and at the latest by
    `flush`, `finish` or `close`.

    Attributes:
        style: the kind of files that are written.
        budget: what may be written and held, and how much is.
        progress: is told of each tensor; None while nobody looks.
    """

    def __init__(
        self,
        out: Path,
        overwrite: bool = False,
        *,
        resume: bool = False,
        style: PrintStyle = PrintStyle.NATIVE,
        queue_bytes: int = 0,
        budget: WriteBudget | None = None,
    ) -> None:
        """Check the folder.

        Args:
            out: the dump folder; it and its parents need not exist.
            overwrite: whether an earlier dump in it may be replaced.
            resume: whether an earlier dump of the same run in it is kept and gone on with: what is
                there is compared with what is given, and only the rest is written.
            style: the kind of files to write.
            queue_bytes: greatest size of the copies that wait to be written; with 0 each tensor is
                written before `save` returns.
            budget: what may be written and held; None for no limit.

        Raises:
            UnwritableOutputError: the folder is not empty, is a file, or cannot be written.
            BadInputError: the manifest of a dump to go on with cannot be read.
        """
        self._folder = DumpFolder(out, overwrite=overwrite, resume=resume)
        self._resumed = ResumedDump(out) if resume else None
        self.style = style
        self.budget = WriteBudget() if budget is None else budget
        self.progress: TensorCount | None = None
        self._queue = WriteQueue(queue_bytes) if queue_bytes else None
        self._step = 0
        self._steps: set[int] = set()  # whose folders are made
        self._engine_steps: set[int] = set()  # that an engine wrote
        self._store: StepStore | None = None  # of this step
        self._step_path = out  # its folder, once there is a store
        self._previous: SafetensorsStep | None = None
        self._names: set[str] = set()  # of this step
        self._manifest = OpenManifest(out)

    @property
    def out(self) -> Path:
        """The dump folder."""
        return self._folder.path

    @property
    def overwrite(self) -> bool:
        """Whether an earlier dump in the folder may be replaced."""
        return self._folder.overwrite

    @property
    def bytes_written(self) -> int:
        """Size of all tensor files so far, links counted as nothing."""
        return self.budget.spent_bytes

    @property
    def file_names(self) -> dict[str, str]:
        """The stems that do not spell their tensor's name, with that name."""
        return self._manifest.file_names

    @property
    def raw_tensors(self) -> dict[str, RawTensor]:
        """Dtype and shape of the files of bare bytes so far, by their path below the folder."""
        return dict(self._manifest.raw_tensors)

    def stem(self, name: str) -> str:
        """Return the file stem of a tensor, the same in every step.

        Args:
            name: full tensor name.
        """
        return self._manifest.stem(name)

    def start(self, manifest: Manifest) -> None:
        """Write the manifest of a run that has not finished.

        Args:
            manifest: what is known so far; `complete` is written as false.

        Raises:
            UnwritableOutputError: the folder cannot be written, or has the dump of another run
                that this one was to go on with.
        """
        self._folder.open()
        if self._resumed is not None:
            manifest = self._resumed.started(manifest)
        self._manifest.write(replace(manifest, complete=False))

    def whole_dump(self, draft: Manifest) -> Manifest | None:
        """Return the manifest of a dump to go on with to which nothing is to be added.

        Args:
            draft: what is known of this run before it begins.

        Raises:
            BadInputError: it is the dump of another run, or its manifest cannot be read.
        """
        return None if self._resumed is None else self._resumed.whole_dump(draft)

    def finish(
        self, manifest: Manifest, certificate: CaptureCertificate, *, complete: bool = True
    ) -> Manifest:
        """Write the final manifest.

        Args:
            manifest: all that is known now; names of shortened files are added.
            certificate: what was captured.
            complete: False for a run that stopped early and still can say so.

        Returns:
            What was written.

        Raises:
            UnwritableOutputError: the folder cannot be written, or a tensor of a complete run could
                not be; or a dump that was gone on with has tensors that this run does not.
        """
        self._folder.open()
        self._end_step()
        if self._queue is not None:
            self._queue.flush(again=complete)
        if self._resumed is not None:
            manifest = self._resumed.finished(
                manifest, self._steps | self._engine_steps, complete=complete
            )
        written = replace(manifest, certificate=certificate, complete=complete)
        self._manifest.write(written)
        self.close()
        return written

    def flush(self) -> None:
        """Wait until every tensor so far is written.

        Raises:
            UnwritableOutputError: one could not be.
        """
        if self._queue is not None:
            self._queue.flush()

    def mark_cut(self, reason: str) -> None:
        """Note in the manifest that a run came to a limit; it stays that of a partial dump.

        Args:
            reason: one sentence.

        Raises:
            UnwritableOutputError: the manifest cannot be written.
        """
        manifest = self._manifest.current
        if manifest is not None:
            notes = [*manifest.options.get("notes", ()), reason]
            self.start(replace(manifest, options={**manifest.options, "notes": notes}))

    def close(self) -> None:
        """Let other writers into the folder, also after a run that failed.

        Raises:
            UnwritableOutputError: a tensor could not be written, and no call has raised it yet.
        """
        try:
            self._end_step()
            if self._queue is not None:
                self._queue.close()
        finally:
            self._folder.release()

    def step(self) -> None:
        """End a step; a step without tensors gets no folder.

        Raises:
            UnwritableOutputError: the manifest cannot be written, which tells of bare bytes.
        """
        self._end_step()
        self._manifest.tell_raw_tensors()
        self._step += 1
        if self.progress is not None:
            self.progress.step()
        self._names.clear()
        self._previous = self._store if isinstance(self._store, SafetensorsStep) else None
        self._store = None

    def save(self, name: str, tensor: torch.Tensor) -> Path:
        """Write one tensor of the current step, or copy it for writing.

        A view of memory that was written in this step and has not changed since takes no room: it
        becomes a hard link to that file, or a second name in the step's one file.

        Args:
            name: full tensor name; a name that this step has already becomes `<module>(2)-...`.
            tensor: any dtype, device, shape and strides.

        Returns:
            The file; in a step of one file, the one it would have by itself.

        Raises:
            UnwritableOutputError: the folder cannot be written, or the disk is full; of an earlier
                tensor too.
            UnsupportedFormatError: the style has no such dtype.
        """
        self.budget.check_memory(name)
        check_dtype(tensor, self.style)
        store, folder = self._step_store()
        name = self._free_name(name)
        path = folder / f"{self.stem(name)}{SUFFIXES[self.style]}"
        if not self._repeat(store, name, tensor, path):
            self._write(store, name, tensor, path)
        if self.style is PrintStyle.BINARY:
            self.note_raw_tensor(path, raw_tensor(tensor))
        self._names.add(name)
        if self.progress is not None:
            self.progress.saved(self.bytes_written)
        return path

    def _write(self, store: StepStore, name: str, tensor: torch.Tensor, path: Path) -> None:
        place, budget = _place(tensor), self.budget

        def write(copy: torch.Tensor) -> None:
            with write_errors(path):
                store.write(name, copy, path=path, place=place, budget=budget)

        if self._queue is None:
            write(in_memory(tensor))
        else:
            self._queue.add(tensor, write)

    def _repeat(self, store: StepStore, name: str, tensor: torch.Tensor, path: Path) -> bool:
        """Give an earlier tensor another name, if it is known by now that this one is the same."""
        if self._queue is None or tensor.device.type != "cpu" or not tensor.is_contiguous():
            return False
        earlier = store.find(plain(tensor), _place(tensor))
        if earlier is None:
            return False

        def repeat() -> None:
            with write_errors(path):
                store.repeat(name, earlier, path=path)

        self._queue.check()
        self._queue.call(repeat, also_after_error=False)
        return True

    def _end_step(self) -> None:
        """Complete the files of the current step, which may go on after that."""
        store, folder = self._store, self.out / str(self._step)
        if store is None:
            return

        def end() -> None:
            with write_errors(folder):
                store.end()

        if self._queue is None:
            end()
        else:
            self._queue.call(end)

    def note_raw_tensor(self, path: Path, raw: RawTensor) -> None:
        """Keep dtype and shape of a file of bare bytes for the manifest.

        Args:
            path: the file, in a step's final folder.
            raw: its dtype and shape.
        """
        self._manifest.note_raw_tensor(path, raw)

    def save_weights(self, record: WeightRecord) -> Path:
        """Write down the weights that the model runs with.

        Args:
            record: projections of them.

        Returns:
            The file.

        Raises:
            UnwritableOutputError: the folder cannot be written.
        """
        self._folder.open()
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
        folder = self._step_store()[1] if step is None else self.out / str(step)
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
        self._folder.open()
        self._manifest.tell_raw_tensors()
        folder = self.out / f"{step}.partial"
        if os.path.lexists(self.out / str(step)) and self._resumed is None:
            raise UnwritableOutputError(f"step {step} is in {self.out} already")
        with write_errors(folder):
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
            BudgetError: the steps so far take more than they may.
        """
        folder, final = self.out / f"{step}.partial", self.out / str(step)
        with write_errors(final):
            stems = {name: self.stem(name) for name in names}
            missing = list_engine_files(folder, stems, suffix=suffix)
            if not os.path.lexists(final):
                folder.rename(final)
            elif self._resumed is None:
                raise UnwritableOutputError(f"step {step} is in {self.out} already")
            else:
                self._resumed.keep_engine_step(folder, final, count=len(names) - len(missing))
            self._engine_steps.add(step)
            self.budget.spend(sum(path.stat().st_size for path in final.iterdir()))
        if self.progress is not None:
            self.progress.saved(self.bytes_written, count=len(names))
            self.progress.step()
        self.budget.check(0, f"the end of step {step}")
        self.budget.check_memory(f"the end of step {step}")
        return missing

    def _step_store(self) -> tuple[StepStore, Path]:
        """Return the current step and its folder, made by us: neither a link nor there before."""
        self._folder.open()
        if self._store is not None:
            return self._store, self._step_path
        self._step_path = folder = self.out / str(self._step)
        with write_errors(folder):
            if self._step not in self._steps:
                folder.mkdir(exist_ok=self._resumed is not None)
            self._steps.add(self._step)
            self._store = self._new_store(folder)
        return self._store, folder

    def _new_store(self, folder: Path) -> StepStore:
        resumed = self._resumed
        earlier = None if resumed is None else resumed.step(folder, self.style)
        names = NameList(folder, listed=() if earlier is None else frozenset(earlier.names))
        store: StepStore
        if self.style is PrintStyle.SAFETENSORS:
            store = SafetensorsStep(folder, previous=self._previous, names=names)
        else:
            store = TensorFolder(folder, self.style, names=names)
        if earlier is None:
            return store
        self.budget.spend(earlier.size_bytes)
        return ResumedStep(store, earlier, names=names)

    def remove_steps(self) -> None:
        """Remove all tensors that were written so far."""
        self._end_step()
        self.flush()
        self._store = None
        for number in self._steps:
            shutil.rmtree(self.out / str(number))
        self._steps.clear()

    def _free_name(self, name: str) -> str:
        """Count up the call in a name until this step does not have it."""
        if name not in self._names:
            return name
        parsed = parse_tensor_name(name)
        unique, call = name, 2
        while unique in self._names:
            if parsed is None:
                unique = f"{name}({call})"
            else:
                unique = str(replace(parsed, call=max(parsed.call, 1) + call - 1))
            call += 1
        return unique


def _place(tensor: torch.Tensor) -> Hashable:
    """Return what two aliases of the same elements have in common."""
    return (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype, tensor.device)
