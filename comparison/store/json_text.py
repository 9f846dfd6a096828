"""JSON that others made, within bounds: its size, its number of values, each key once."""

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

# What is read of a file; more than any manifest, list of operations or result takes.
MOST_JSON_BYTES = 256 << 20
# A value takes up to 100 bytes of memory, and three of the file.
MOST_JSON_VALUES = 16_000_000
_TEXT = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)

Pairs = Sequence[tuple[str, Any]]


def parse_json(text: bytes, *, make_object: Callable[[Any], Any] | None = None) -> Any:
    """Parse JSON in UTF-8.

    Args:
        text: the file.
        make_object: makes an object of its keys and values; by default a dictionary, where each
            key must be there once.

    Raises:
        ValueError: it is no JSON, is nested too deeply, has too many values or a key twice; the
            message completes "found ...".
    """
    check_count(text)
    try:
        return json.loads(text.decode("utf-8"), object_pairs_hook=make_object or _once)
    except RecursionError:
        raise ValueError("objects and lists nested too deeply") from None


def check_count(text: bytes) -> None:
    """Refuse JSON of more values than memory should be taken for.

    Raises:
        ValueError: there are more than MOST_JSON_VALUES.
    """
    if _count(text) > MOST_JSON_VALUES:
        raise ValueError(f"more than {MOST_JSON_VALUES} values")


def _once(pairs: Pairs) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]  # add gives None
        raise ValueError(f"the key {twice!r:.80} twice in one object")
    return found


def _count(text: bytes) -> int:
    """Count values, or give an upper bound where that is low enough."""
    most = _marks(text)
    return most if most <= MOST_JSON_VALUES else _marks(_TEXT.sub(b"", text))


def _marks(text: bytes) -> int:
    return sum(text.count(mark) for mark in (b",", b"[", b"{"))
