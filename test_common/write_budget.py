"""How much a run may write and hold, and how much it has."""

from __future__ import annotations

import os
from dataclasses import dataclass

from comparison.schema.errors import BudgetError

_STATM = "/proc/self/statm"


@dataclass(slots=True, kw_only=True)
class WriteBudget:
    """Counts what is written, and ends a run that would write or hold more than it may.

    Attributes:
        max_bytes: greatest size of all tensor files together, links counted as nothing; None for
            no limit.
        max_memory_bytes: greatest memory that this process may hold; None for no limit.
        spent_bytes: size of the tensor files so far.
    """

    max_bytes: int | None = None
    max_memory_bytes: int | None = None
    spent_bytes: int = 0

    def check(self, size_bytes: int, name: str) -> None:
        """Refuse what does not fit any more.

        Args:
            size_bytes: size of the next file.
            name: its tensor.

        Raises:
            BudgetError: with it there would be more than `max_bytes`.
        """
        if self.max_bytes is None or self.spent_bytes + size_bytes <= self.max_bytes:
            return
        more = f", and this takes {_shown(size_bytes)} more" if size_bytes else ""
        raise BudgetError(
            f"the dump was cut at {name}: it may take {_shown(self.max_bytes)} (--max-bytes) and "
            f"holds {_shown(self.spent_bytes)}{more}; what is written can be read and is marked as "
            "partial. Raise the limit, or choose with --filter and --steps"
        )

    def spend(self, size_bytes: int) -> None:
        """Count a file that is written."""
        self.spent_bytes += size_bytes

    def check_memory(self, name: str) -> None:
        """Refuse to go on where the process holds too much.

        Args:
            name: the tensor that is about to be saved.

        Raises:
            BudgetError: it holds more than `max_memory_bytes`.
        """
        if self.max_memory_bytes is None:
            return
        held = held_memory()
        if held > self.max_memory_bytes:
            raise BudgetError(
                f"the run was ended at {name}: it may hold {_shown(self.max_memory_bytes)} "
                f"(--max-memory) and holds {_shown(held)}; what is written can be read and is "
                "marked as partial. Raise the limit, or take fewer layers or a shorter prompt"
            )


def held_memory() -> int:
    """Return the bytes of memory that only this process holds.

    What it shares with files, such as libraries and mapped weights, is not counted: the system
    takes that back when it needs to. Where the system does not tell, it is the greatest size that
    the process ever had.
    """
    try:
        with open(_STATM, encoding="ascii") as file:
            _, resident, shared = map(int, file.read().split()[:3])
    except OSError:
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return (resident - shared) * os.sysconf("SC_PAGE_SIZE")


def _shown(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:.1f} MB" if size_bytes >= 100_000 else f"{size_bytes} bytes"
