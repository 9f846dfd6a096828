"""What a child process prints, shown when it is its turn."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import IO, TextIO

STDOUT_FILE = "stdout.txt"
STDERR_FILE = "stderr.txt"
_TAIL_LINES = 20
_TAIL_BYTES = 1 << 16
_LINE_LENGTH = 400


class RelayedOutput:
    """Takes both streams of a child into files, and passes on what is new in them.

    So the lines of two processes do not mix. Only whole lines are passed on before the end.
    """

    def __init__(self, folder: Path) -> None:
        """Make the files.

        Args:
            folder: where to; it exists.
        """
        self.stdout: IO[bytes] = (folder / STDOUT_FILE).open("wb")
        self.stderr: IO[bytes] = (folder / STDERR_FILE).open("wb")
        self._paths = {"stdout": folder / STDOUT_FILE, "stderr": folder / STDERR_FILE}
        self._shown = dict.fromkeys(self._paths, 0)

    def close(self) -> None:
        """Close our ends; the child has its own."""
        self.stdout.close()
        self.stderr.close()

    def show(self, *, all_of_it: bool = False) -> None:
        """Print what is new, each stream to ours of that name.

        Args:
            all_of_it: whether a last line without an end is printed as well.
        """
        for name, path in self._paths.items():
            with path.open("rb") as file:
                file.seek(self._shown[name])
                new = file.read()
            if not all_of_it:
                new = new[: new.rfind(b"\n") + 1]
            self._shown[name] += len(new)
            if new:
                self._print(getattr(sys, name), new)

    def last_lines(self) -> list[str]:
        """Return the last lines of the child's errors, each as far as a message shows it."""
        path = self._paths["stderr"]
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
            text = file.read().decode("utf-8", "replace")
        return [f"{line:.{_LINE_LENGTH}}" for line in text.splitlines()[-_TAIL_LINES:]]

    @staticmethod
    def _print(stream: TextIO, text: bytes) -> None:
        stream.write(text.decode("utf-8", "replace"))
        stream.flush()
