"""The writer of a debug run's dump, and what becomes of it when the run comes to a limit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from comparison.schema.errors import BudgetError
from test_common.capture_mode import CaptureMode
from test_common.debug_options import DebugOptions
from test_common.dump_writer import DumpWriter
from test_common.kernels_folder import kernels_folder
from test_common.sketch_writer import SketchWriter
from test_common.write_budget import WriteBudget
from test_common.write_queue import DEFAULT_QUEUE_BYTES, useful_queue_bytes

# With a limit of memory the copies that wait to be written take at most this part of it.
_QUEUE_PART = 8
_LEAST_QUEUE_BYTES = 1 << 20


def writer_of_run(options: DebugOptions, out: Path) -> DumpWriter:
    """Return what writes the dump.

    Args:
        options: of the run.
        out: the dump folder.

    Raises:
        UnwritableOutputError: the folder cannot be used.
    """
    budget = WriteBudget(max_bytes=options.max_bytes, max_memory_bytes=options.max_memory)
    if options.mode is not CaptureMode.FULL:
        return SketchWriter(
            out,
            options.overwrite,
            resume=options.resume,
            mode=options.mode,
            budget=budget,
            kernels=kernels_folder(),
        )
    return DumpWriter(
        out,
        overwrite=options.overwrite,
        resume=options.resume,
        style=options.style,
        queue_bytes=queue_bytes_of(options),
        budget=budget,
    )


def queue_bytes_of(options: DebugOptions) -> int:
    """Return the greatest size of the copies that wait to be written."""
    most = DEFAULT_QUEUE_BYTES
    if options.max_memory is not None:
        most = min(most, max(options.max_memory // _QUEUE_PART, _LEAST_QUEUE_BYTES))
    # Engines in processes of their own write there; torch is not to be loaded here for that.
    return useful_queue_bytes(most) if options.framework == "torch" else most


@contextmanager
def marked_when_cut(writer: DumpWriter) -> Iterator[None]:
    """Write into the dump why a run was cut off, before the error goes on.

    Args:
        writer: of the dump.
    """
    try:
        yield
    except BudgetError as error:
        writer.mark_cut(str(error))
        raise
