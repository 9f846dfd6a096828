"""Sends what a compiled MAX model prints to the folder of the step, or to the console."""

from __future__ import annotations

from collections.abc import Container, Iterator
from contextlib import contextmanager

from test_common.dump_writer import DumpWriter
from test_common.engine_stderr import without_write_log
from test_common.max_print_hook import MaxPrintHook
from test_common.print_style import PrintStyle

_FILE_STYLES = {
    PrintStyle.NATIVE: ("BINARY_MAX_CHECKPOINT", ".max"),
    PrintStyle.BINARY_MAX_CHECKPOINT: ("BINARY_MAX_CHECKPOINT", ".max"),
    PrintStyle.BINARY: ("BINARY", ""),
}


class StepPrinter:
    """Turns MAX's debug print options from step to step.

    Attributes:
        saved: number of tensors printed or written so far.
    """

    def __init__(
        self,
        hook: MaxPrintHook | None,
        writer: DumpWriter | None,
        *,
        steps: Container[int] | None = None,
        style: PrintStyle = PrintStyle.NATIVE,
        precision: int = 6,
    ) -> None:
        """Make a printer and silence the engine until the first step.

        Args:
            hook: the hook that was on while the graph was built; None prints nothing.
            writer: where dumps go; None prints on the console.
            steps: the steps to print, None for all.
            style: how tensors are printed or written.
            precision: digits behind the point in style `full`.
        """
        from max.engine import InferenceSession

        # Print options belong to the process: any session sets them for all.
        self._session = InferenceSession()
        self._hook = hook
        self._writer = writer
        self._steps = steps
        self._style = style
        self._precision = precision
        self.saved = 0
        self._off()

    @contextmanager
    def step(self, number: int) -> Iterator[None]:
        """Print what runs inside of the block as step `number`."""
        if self._hook is None or (self._steps is not None and number not in self._steps):
            yield
        elif self._writer is None:
            print(f"step {number}", flush=True)
            style = "FULL" if self._style is PrintStyle.FULL else "COMPACT"
            self._session.set_debug_print_options(style=style, precision=self._precision)
            yield
            self._off()
            self.saved += len(self._hook.recorded_names())
        else:
            with self._written_to(self._writer, number, self._hook):
                yield

    @contextmanager
    def _written_to(self, writer: DumpWriter, number: int, hook: MaxPrintHook) -> Iterator[None]:
        style, suffix = _FILE_STYLES[self._style]
        folder = writer.engine_step_folder(number)
        self._session.set_debug_print_options(style=style, output_directory=folder)
        with without_write_log() as written:
            yield
        self._off()
        # The graph was traced once: its names hold for every step that runs it.
        names = hook.recorded_names()
        missing = writer.adopt_engine_step(number, names, suffix=suffix)
        operations = hook.step_operations
        if operations is not None:
            writer.save_operations(operations, number)
        self.saved += len(names) - len(missing)
        if self._style is PrintStyle.BINARY:
            for path, raw in written.items():
                writer.note_raw_tensor(writer.out / str(number) / path.name, raw)

    def _off(self) -> None:
        self._session.set_debug_print_options(style="NONE")
