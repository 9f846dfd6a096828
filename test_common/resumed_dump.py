"""A dump that a run goes on with: the same run, its steps, and what is noted of it."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from comparison.schema.errors import BadInputError, UnwritableOutputError
from comparison.schema.manifest import Manifest
from test_common.earlier_run import ANOTHER_WAY, check_same_run, earlier_manifest, mixed_runs
from test_common.resumed_sketches import compare_sketches
from test_common.resumed_step import EarlierStep, keep_engine_step

if TYPE_CHECKING:
    from comparison.numerics.tensor_sketch import TensorSketch
    from test_common.print_style import PrintStyle


class ResumedDump:
    """What a writer knows of the dump that it goes on with.

    Attributes:
        kept: number of tensors that steps of an engine had, and that were found equal.
    """

    def __init__(self, out: Path) -> None:
        """Know the folder; nothing is read.

        Args:
            out: the dump folder.
        """
        self._out = out
        self._earlier: Manifest | None = None
        self._steps: list[EarlierStep] = []
        self._sketched: dict[Path, tuple[int, str | None]] = {}
        self.kept = 0

    def whole_dump(self, draft: Manifest) -> Manifest | None:
        """Return the manifest of a dump to which nothing is to be added.

        Args:
            draft: what is known of this run before it begins.

        Raises:
            BadInputError: it is the dump of another run, or its manifest cannot be read.
        """
        earlier = earlier_manifest(self._out)
        if earlier is None:
            return None
        check_same_run(self._out, earlier, draft)
        return earlier if earlier.complete and self._is_whole() else None

    def _is_whole(self) -> bool:
        """Tell whether all files are there that a complete manifest promises, and can be read."""
        from comparison.store.dump import open_dump
        from comparison.store.sketch_dump import holds_sketches, open_sketches

        try:
            if holds_sketches(self._out):
                return open_sketches(self._out).dump.complete
            dump = open_dump(self._out)
            for entry in dump.entries:
                dump.read(entry)
            return dump.complete
        except BadInputError:  # nothing is there, or it is damaged
            return False

    def started(self, manifest: Manifest) -> Manifest:
        """Return the manifest to begin with, which knows what the earlier one knew of files.

        Args:
            manifest: of this run.

        Raises:
            UnwritableOutputError: the dump is of another run.
            BadInputError: its manifest cannot be read.
        """
        if self._earlier is None:
            self._earlier = earlier_manifest(self._out)
            if self._earlier is not None:
                check_same_run(self._out, self._earlier, manifest)
        if self._earlier is None:
            return manifest
        return replace(
            manifest,
            file_names=manifest.file_names | self._earlier.file_names,
            raw_tensors=manifest.raw_tensors | self._earlier.raw_tensors,
        )

    def step(self, folder: Path, style: PrintStyle) -> EarlierStep:
        """Return what is there of a step.

        Args:
            folder: of the step.
            style: the kind of its files.

        Raises:
            UnwritableOutputError: a file is damaged.
            OSError: something cannot be read or written.
        """
        with _damage_told(folder):
            self._steps.append(EarlierStep.read(folder, style=style))
        return self._steps[-1]

    def keep_engine_step(self, folder: Path, earlier: Path, *, count: int) -> None:
        """Keep a step that was there whole, and remove what the engine has written now.

        Args:
            folder: of the engine's files.
            earlier: the step's folder.
            count: number of tensors.

        Raises:
            UnwritableOutputError: they differ.
            OSError: a file cannot be read or removed.
        """
        keep_engine_step(folder, earlier)
        shutil.rmtree(folder)
        self.kept += count

    def lacks_sketches(self, folder: Path, sketches: Mapping[str, TensorSketch]) -> bool:
        """Compare the sketches of a step with what is there of them.

        Args:
            folder: of the step.
            sketches: of this run so far.

        Returns:
            Whether this run has more of them.

        Raises:
            UnwritableOutputError: they differ, or the file is damaged.
        """
        with _damage_told(folder):
            equal, left = compare_sketches(folder, sketches)
        self._sketched[folder] = equal, left
        return equal < len(sketches)

    def finished(self, manifest: Manifest, steps: Collection[int], *, complete: bool) -> Manifest:
        """Check at the end that all that was there came, and note how much that was.

        Args:
            manifest: of this run.
            steps: the steps that this run has written or kept.
            complete: whether the run came to its end.

        Raises:
            UnwritableOutputError: the dump has tensors that this run does not.
        """
        if self._earlier is None:
            return manifest
        if complete:
            self._check_all_came(steps)
        kept = self.kept + sum(step.kept for step in self._steps)
        kept += sum(equal for equal, _ in self._sketched.values())
        note = f"resumed: {kept} tensors were there from an earlier run, with the same bytes"
        options = manifest.options
        notes = [*options.get("notes", ()), note]
        return replace(manifest, options={**options, "notes": notes})

    def _check_all_came(self, steps: Collection[int]) -> None:
        for step in self._steps:
            step.check_all_came()
        for folder, (_, left) in self._sketched.items():
            if left is not None:
                raise mixed_runs(folder, f"{left} is none of this run's tensors")
        there = {int(path.name) for path in self._out.iterdir() if path.name.isdecimal()}
        if there - set(steps):
            raise mixed_runs(
                self._out, f"this one has no tensors in step {min(there - set(steps))}"
            )


@contextmanager
def _damage_told(folder: Path) -> Iterator[None]:
    """Say how to go on where an earlier run's files cannot be read; a hook passes that on."""
    try:
        yield
    except UnwritableOutputError:
        raise
    except BadInputError as error:
        raise UnwritableOutputError(
            f"the dump in {folder} is damaged and cannot be gone on with: {error}; {ANOTHER_WAY}"
        ) from error
