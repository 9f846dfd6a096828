"""A dump that gives up when it grows too large, and goes on counting what it would have held."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from test_common.dump_writer import DumpWriter
from test_common.write_queue import useful_queue_bytes

if TYPE_CHECKING:
    import torch


class LimitedDumpWriter(DumpWriter):
    """Writes a dump of at most so many bytes; beyond that it removes its tensors and only counts.

    So one run tells how large a dump is, and is that dump where it is small enough.

    Attributes:
        sizes: bytes of each tensor so far, all steps together. What two names share counts for
            both, since not every engine's dump links their files.
    """

    def __init__(self, out: Path, *, max_bytes: int, overwrite: bool = False) -> None:
        """Check the folder.

        Args:
            out: the dump folder; it and its parents need not exist.
            max_bytes: greatest number of bytes that are kept; with 0 nothing is ever written.
            overwrite: whether an earlier dump in it may be replaced.

        Raises:
            UnwritableOutputError: the folder is not empty, is a file, or cannot be written.
        """
        super().__init__(out, overwrite, queue_bytes=useful_queue_bytes())
        self._max_bytes = max_bytes
        self._counted: Counter[str] = Counter()
        self._total = 0

    @property
    def sizes(self) -> Mapping[str, int]:
        """Bytes of each tensor so far."""
        return dict(self._counted)

    @property
    def overflowed(self) -> bool:
        """Whether the dump would be larger than it may be."""
        return self._total > self._max_bytes

    def save(self, name: str, tensor: torch.Tensor) -> Path:
        """Count a tensor, and write it as long as there is room."""
        size = tensor.numel() * tensor.element_size()
        self._counted[name] += size
        had_room = not self.overflowed
        self._total += size
        if not self.overflowed:
            return super().save(name, tensor)
        if had_room:
            self.remove_steps()
        return self.out
