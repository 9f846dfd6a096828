"""Shows how many tensors a run has written, and how many it is likely to write."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from test_common.progress import Advance, counted

if TYPE_CHECKING:
    from test_common.dump_writer import DumpWriter


class CaptureProgress:
    """Counts what a writer is given; all steps behind the first are taken to write alike."""

    def __init__(self, advance: Advance, num_steps: int) -> None:
        """Begin with nothing written.

        Args:
            advance: is told how far the run has got.
            num_steps: steps of the run, the prefill included.
        """
        self._advance, self._num_steps = advance, num_steps
        self._steps: list[int] = [0]  # tensors of each

    def saved(self, size_bytes: int, *, count: int = 1) -> None:
        """Count tensors.

        Args:
            size_bytes: of all files so far.
            count: how many more there are.
        """
        self._steps[-1] += count
        self._advance(sum(self._steps), self._total(), size_bytes)

    def step(self) -> None:
        """Begin the next step."""
        self._steps.append(0)

    def _total(self) -> int | None:
        """Expect of each step that is left what the last whole one wrote."""
        if len(self._steps) == 1:
            return None
        left = max(self._num_steps - len(self._steps) + 1, 0)
        return max(sum(self._steps[:-1]) + left * self._steps[-2], sum(self._steps))


@contextmanager
def writing_shown(writer: DumpWriter | None, text: str, *, num_steps: int) -> Iterator[None]:
    """Show what a writer writes until the block ends.

    Args:
        writer: of a dump; None for none, and nothing is shown.
        text: what is done, `running on Torch`.
        num_steps: steps of the run.
    """
    if writer is None:
        yield
        return
    with counted(text, what="tensors") as advance:
        writer.progress = CaptureProgress(advance, num_steps)
        try:
            yield
        finally:
            writer.progress = None
