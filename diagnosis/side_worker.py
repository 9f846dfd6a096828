"""Runs one side in a process of its own: `python -m diagnosis.side_worker FOLDER ENGINE PARENT`.

The engine is imported at once. The job, and the leave to write its dump, come as lines on stdin.
"""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from typing import Any, BinaryIO

from comparison.schema.errors import AccuracyToolsError, TryAgainError
from comparison.schema.manifest import Manifest
from diagnosis.side_job import DONE_FILE, GO, RUN, SideJob, write_error
from diagnosis.side_runs import run_engine_side
from test_common.child_process import end_with_parent
from test_common.dump_writer import DumpWriter
from test_common.engine_import import import_engine
from test_common.local_transformers import offer_local_transformers

LOCAL_TRANSFORMERS = "--local-transformers"
_FAILED = 2
_TRY_AGAIN = 75


class _GivenUpError(Exception):
    """The parent wants no run, or is gone."""


class _WaitingWriter(DumpWriter):
    """Writes nothing before the parent has said that a dump is wanted."""

    def __init__(self, out: Path, lines: BinaryIO, *, overwrite: bool) -> None:
        """Take the parent's lines, beside the folder."""
        super().__init__(out, overwrite=overwrite)
        self._lines = lines

    def start(self, manifest: Manifest) -> None:
        """Wait, once the model stands, and begin the dump."""
        _wait_for(GO, self._lines)
        super().start(manifest)


def main(folder: Path, engine: str) -> int:
    """Run the job of a folder and leave its result there.

    Args:
        folder: see `side_job`.
        engine: what to import while the parent gets the job ready.

    Returns:
        0, else 2, or 75 where another try may do, with the reason in the folder.
    """
    lines = _lines_of_parent()
    import_engine(engine)
    try:
        _wait_for(RUN, lines)
        job = SideJob.read(folder)
        writer = _WaitingWriter(job.output, lines, overwrite=job.run.overwrite)
        run_engine_side(job.spec, job.output, job.run, writer=writer)
    except (_GivenUpError, KeyboardInterrupt):
        return _FAILED
    except AccuracyToolsError as error:
        write_error(folder, error)
        return _TRY_AGAIN if isinstance(error, TryAgainError) else _FAILED
    (folder / DONE_FILE).touch()
    return 0


def _lines_of_parent() -> BinaryIO:
    """Put the lines of the parent where code of a model or oracle that reads stdin does not."""
    lines = os.fdopen(os.dup(0), "rb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return lines


def _wait_for(line: bytes, lines: BinaryIO) -> None:
    """Wait for a line of the parent.

    Raises:
        _GivenUpError: the parent closed its end.
    """
    if lines.readline() != line:
        raise _GivenUpError


def _show_warning(message: Warning | str, *where: Any, **more: Any) -> None:
    """Show a warning as the commands do, in one line."""
    del where, more
    print(f"warning: {' '.join(str(message).split())}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    end_with_parent(int(sys.argv[3]))
    warnings.showwarning = _show_warning
    if LOCAL_TRANSFORMERS in sys.argv:
        offer_local_transformers()
    sys.exit(main(Path(sys.argv[1]), sys.argv[2]))
