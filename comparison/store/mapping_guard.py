"""Mapped files that become shorter while they are read: an error, not the end of the process."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path

from comparison.schema.errors import CorruptFileError
from comparison.store.bus_error import bus_errors_answered, put_zeros


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mapping:
    """A stretch of memory that a file was mapped to.

    Attributes:
        begin: address of its first byte.
        end: address behind its last.
        path: the file.
    """

    begin: int
    end: int
    path: Path


@dataclass(slots=True, kw_only=True)
class MappingGuard:
    """Mapped files, and which of them became shorter.

    Attributes:
        outer: the guard that this one is within.
    """

    outer: "MappingGuard | None" = None
    _mappings: list[_Mapping] = field(default_factory=list)
    _broken: list[_Mapping] = field(default_factory=list)

    def add(self, mapping: _Mapping) -> None:
        """Take in what was mapped, here and in the guards around."""
        self._mappings.append(mapping)
        if self.outer is not None:
            self.outer.add(mapping)

    def answer(self, address: int) -> bool:
        """Put zeros where a file is no more, and keep that; False for memory of others."""
        # Newest first: addresses are used again.
        for mapping in reversed(self._mappings):
            if mapping.begin <= address < mapping.end:
                self._broken.append(mapping)
                return put_zeros(address, mapping.end)
        return False

    def take_error(self) -> CorruptFileError | None:
        """Make the error for what became shorter since this was asked last; None for nothing."""
        broken, self._broken = self._broken, []
        if not broken:
            return None
        return CorruptFileError(
            f"{broken[0].path}: expected one content from begin to end, but the file became "
            "shorter while it was read, or its medium fails; try again when nothing writes to it"
        )


_CURRENT: ContextVar[MappingGuard | None] = ContextVar("mapping_guard", default=None)


@contextmanager
def mappings_guarded() -> Iterator[MappingGuard]:
    """Read zeros where a mapped file has become shorter, instead of ending by SIGBUS.

    Whoever reads mapped arrays asks the guard afterwards whether what was read counts. Linux only;
    elsewhere the process ends as without it.

    Yields:
        The guard.

    Raises:
        CorruptFileError: at the end, for what nobody asked about; the message names the file.
    """
    guard = MappingGuard(outer=_CURRENT.get())
    token = _CURRENT.set(guard)
    try:
        with bus_errors_answered(guard.answer):
            yield guard
    finally:
        _CURRENT.reset(token)
    error = guard.take_error()
    if error is not None:
        raise error


def note_mapping(path: Path, address: int, size_bytes: int) -> None:
    """Tell the guard, where there is one, what a file was mapped to.

    Args:
        path: the file.
        address: of the first byte.
        size_bytes: how many bytes there are.
    """
    guard = _CURRENT.get()
    if guard is not None:
        guard.add(_Mapping(begin=address, end=address + size_bytes, path=path))


def take_mapping_error() -> CorruptFileError | None:
    """Ask the guard that is there; see MappingGuard.take_error."""
    guard = _CURRENT.get()
    return None if guard is None else guard.take_error()
