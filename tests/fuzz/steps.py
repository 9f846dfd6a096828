"""Bytes of a fuzzer as a series of choices, and the damage that they choose."""

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

# What fields of one, two, four and eight bytes are overwritten with.
_SIZES = (1, 2, 4, 8)
_NUMBERS = (
    0,
    1,
    2,
    0x7F,
    0x80,
    0xFF,
    0x7FFF,
    0xFFFF,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**62,
    2**64 - 1,
)
_MOST_INSERTED = 64


class Steps:
    """Choices that the bytes of one input make; without bytes left, always the first one."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def byte(self) -> int:
        value = self._data[self._at] if self._at < len(self._data) else 0
        self._at += 1
        return value

    def below(self, limit: int) -> int:
        """Choose a number; two bytes are enough for the small files that are damaged here."""
        if limit <= 256:
            return self.byte() % limit
        return (self.byte() << 8 | self.byte()) % limit

    def one_of(self, values: Sequence[T]) -> T:
        return values[self.below(len(values))]

    def rest(self) -> bytes:
        return self._data[self._at :]

    def taken(self, count: int) -> bytes:
        found = self._data[self._at : self._at + count]
        self._at += count
        return found


def damaged(content: bytes, steps: Steps, *, begin: int = 0, end: int | None = None) -> bytes:
    """Damage bytes in up to seven places.

    Args:
        content: a file, or a part of it.
        steps: what to do, and where.
        begin: first byte that may be changed.
        end: byte behind the last that may be changed, None for all.
    """
    for _ in range(steps.below(8)):
        stop = len(content) if end is None else min(end, len(content))
        at = begin + steps.below(max(1, stop - begin))
        content = _damaged_once(content, at, steps)
    return content


def _damaged_once(content: bytes, at: int, steps: Steps) -> bytes:
    match steps.below(6):
        case 0:
            return (
                content[:at]
                + bytes([content[at] ^ 1 << steps.below(8)] if content[at:] else [0])
                + content[at + 1 :]
            )
        case 1:
            return content[:at] + steps.taken(steps.below(_MOST_INSERTED)) + content[at:]
        case 2:
            return content[:at]
        case 3:
            size = steps.one_of(_SIZES)
            number = (steps.one_of(_NUMBERS) % (1 << 8 * size)).to_bytes(size, "little")
            return content[:at] + number + content[at + size :]
        case 4:
            return content[:at] + content[at + steps.below(_MOST_INSERTED) :]
        case _:
            again = content[at : at + steps.below(_MOST_INSERTED)]
            return content[:at] + again + content[at:]
