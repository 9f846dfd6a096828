"""Writes a dump of sketches: a file a step in place of one a tensor."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from comparison.numerics.tensor_sketch import TensorSketch, sketch_tensor
from comparison.schema.manifest import CaptureCertificate, Manifest
from comparison.store.sketch_file import SKETCH_NAME, write_sketches
from comparison.store.step_folder import list_step
from comparison.store.tensor_file import read_tensor
from test_common.capture_mode import CaptureMode
from test_common.dump_writer import DumpWriter
from test_common.resumed_step import own_list
from test_common.tensor_folder import NameList, StepStore, TensorFolder
from test_common.tensor_sketcher import TensorSketcher
from test_common.write_budget import WriteBudget
from test_common.write_errors import write_errors

if TYPE_CHECKING:
    import torch


class SketchWriter(DumpWriter):
    """Writes sketches and names of a step when it ends, and the manifest as any writer does.

    An engine that writes its tensors by itself writes them whole, a step at a time; its files are
    removed once they are sketched.

    Attributes:
        mode: what is kept of a tensor.
    """

    def __init__(
        self,
        out: Path,
        overwrite: bool = False,
        *,
        resume: bool = False,
        mode: CaptureMode = CaptureMode.SKETCH,
        budget: WriteBudget | None = None,
        kernels: Path | None = None,
    ) -> None:
        """Check the folder.

        Args:
            out: the dump folder; it and its parents need not exist.
            overwrite: whether an earlier dump in it may be replaced.
            resume: as DumpWriter; a step's file is kept or written as a whole.
            mode: `SKETCH` or `STATS`.
            budget: what may be written and held; None for no limit.
            kernels: folder where compiled code is kept; None to do without.

        Raises:
            UnwritableOutputError: the folder is not empty, is a file, or cannot be written.
        """
        super().__init__(out, overwrite, resume=resume, budget=budget)
        self.mode = mode
        self._projects = mode is CaptureMode.SKETCH
        self._sketcher = TensorSketcher(projects=self._projects, kernels=kernels)
        self._sketches: dict[str, TensorSketch] = {}  # of this step
        self._written = 0  # of them
        self._path = self.out / str(self._step) / SKETCH_NAME

    def save(self, name: str, tensor: torch.Tensor) -> Path:
        """Sketch one tensor of the current step.

        Args:
            name: full tensor name; a name that this step has already becomes `<module>(2)-...`.
            tensor: any device, shape and strides.

        Returns:
            The step's file, which is written when the step ends.

        Raises:
            UnsupportedFormatError: the dtype is none that these tools handle.
        """
        self.budget.check_memory(name)
        name = self._free_name(name)
        self._sketches[name] = self._sketcher.sketch(tensor)
        self._names.add(name)
        if self.progress is not None:
            self.progress.saved(self.bytes_written)
        return self._path

    def step(self) -> None:
        """End a step and write its file.

        Raises:
            BudgetError: the steps so far take more than they may.
        """
        ended = self._step
        super().step()
        self._path = self.out / str(self._step) / SKETCH_NAME
        self._sketches = {}
        self._written = 0
        self._sketcher.forget()
        self.budget.check(0, f"the end of step {ended}")

    def finish(
        self, manifest: Manifest, certificate: CaptureCertificate, *, complete: bool = True
    ) -> Manifest:
        """Complete the manifest; the last step's file is written with it.

        Args:
            manifest: as `DumpWriter.finish`.
            certificate: as there.
            complete: as there.

        Returns:
            As there.

        Raises:
            UnwritableOutputError: as there.
            BudgetError: the steps take more than they may.
        """
        self._end_step()
        if complete:
            self.budget.check(0, f"the end of step {self._step}")
        return super().finish(manifest, certificate, complete=complete)

    def adopt_engine_step(
        self, step: int, names: Sequence[str], *, suffix: str = ".max"
    ) -> tuple[str, ...]:
        """Take over a step's folder, and put sketches in the place of the engine's files.

        Args:
            step: as `DumpWriter.adopt_engine_step`.
            names: as there.
            suffix: as there.

        Returns:
            As there.

        Raises:
            UnwritableOutputError: as there.
            CorruptFileError: a file that the engine wrote cannot be read.
        """
        before = self.bytes_written
        missing = super().adopt_engine_step(step, names, suffix=suffix)
        folder = self.out / str(step)
        listing = list_step(
            folder, step=step, rank=None, manifest=self._manifest.current, root=self.out
        )
        sketches = {
            entry.name: sketch_tensor(read_tensor(entry), projects=self._projects)
            for entry in listing.there
        }
        files = {entry.path for entry in listing.there}
        with write_errors(folder):
            self.budget.spend(before - self.bytes_written)
            self._write_file(folder, sketches)
            for path in files:
                path.unlink()
        return missing

    def _end_step(self) -> None:
        if len(self._sketches) > self._written:
            folder = self._step_store()[1]
            with write_errors(folder):
                listed = () if self._resumed is None else own_list(folder)
                if self._resumed is None or self._resumed.lacks_sketches(folder, self._sketches):
                    self._write_file(folder, self._sketches)
                names = NameList(folder, listed=frozenset(listed))
                names.append(*list(self._sketches)[self._written :])
                names.close()
            self._written = len(self._sketches)
        super()._end_step()

    def _new_store(self, folder: Path) -> StepStore:
        return TensorFolder(folder, self.style)  # no tensor ever gets there

    def _write_file(self, folder: Path, sketches: dict[str, TensorSketch]) -> None:
        path = folder / SKETCH_NAME
        earlier = path.stat().st_size if path.exists() else 0
        write_sketches(path, sketches)
        self.budget.spend(path.stat().st_size - earlier)
