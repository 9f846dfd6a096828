"""Objects of JSON files that others made: each value is checked when it is taken."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from comparison.schema.errors import BadInputError, CorruptFileError
from comparison.store.json_text import MOST_JSON_BYTES, parse_json
from comparison.store.regular_file import read_regular

T = TypeVar("T")


def read_json(path: Path, what: str) -> Any:
    """Read a JSON file.

    Args:
        path: the file.
        what: what it should be, for messages.

    Raises:
        CorruptFileError: no file, or no JSON.
    """
    try:
        text = read_regular(path, most_bytes=MOST_JSON_BYTES)
    except BadInputError:
        raise
    except OSError as error:  # a link to nothing, or in a circle
        raise CorruptFileError(f"{path}: expected {what}, found {error.strerror}") from None
    try:
        return parse_json(text)
    except ValueError as error:  # of too many digits, too: a bare ValueError
        raise CorruptFileError(f"{path}: expected JSON ({what}), found {error!s:.200}") from None


class JsonFields:
    """A JSON object whose values are checked when they are taken."""

    def __init__(self, path: Path, value: Any, where: str) -> None:
        """Take an object.

        Args:
            path: the file, for messages.
            value: what should be an object.
            where: what to call it in messages.

        Raises:
            CorruptFileError: it is none.
        """
        self._path, self._where = path, f"{where:.200}"
        if not isinstance(value, dict):
            raise self.error("a JSON object", value)
        self._value: dict[str, Any] = value

    def error(self, expected: str, found: Any) -> CorruptFileError:
        """Make the error that says what was expected of this object."""
        return CorruptFileError(
            f"{self._path}: expected {expected:.300} in {self._where}, found {found!r:.80}"
        )

    def take(self, key: str, check: type[T] | tuple[type[T], ...], default: Any = ...) -> T:
        """Return a value of a type; without a default it must be there."""
        value = self._value.get(key, default)
        if value is ...:
            raise CorruptFileError(f"{self._path}: expected {key!r} in {self._where}, found none")
        if not isinstance(value, check) or (isinstance(value, bool) and check is not bool):
            raise self.error(f"another type as {key!r}", value)
        return value

    def text(self, key: str, default: Any = ...) -> str:
        """Return a text."""
        return self.take(key, str, default)

    def integer(self, key: str, *, least: int = 0, most: int | None = None) -> int:
        """Return a whole number within limits."""
        value = self.take(key, int)
        if value < least or (most is not None and value > most):
            end = "" if most is None else f" and at most {most}"
            raise self.error(f"an integer of at least {least}{end} as {key!r}", value)
        return value

    def optional(self, key: str, check: type[T]) -> T | None:
        """Return a value of a type; None for null or nothing."""
        return None if self._value.get(key) is None else self.take(key, check)

    def integers(self, key: str, default: Any = ...) -> tuple[int, ...]:
        """Return a list of whole numbers."""
        items = self.take(key, list, default)
        if not all(type(item) is int for item in items):
            raise self.error(f"integers as {key!r}", items)
        return tuple(items)

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of texts, empty where there is none."""
        items = self.take(key, list, [])
        if not all(isinstance(item, str) for item in items):
            raise self.error(f"texts as {key!r}", items)
        return tuple(items)

    def text_table(self, key: str) -> dict[str, str]:
        """Return an object of texts, empty where there is none."""
        table: Mapping[str, Any] = self.take(key, dict, {})
        if not all(isinstance(item, str) for item in table.values()):
            raise self.error(f"texts in {key!r}", table)
        return dict(table)

    def records(
        self, key: str, read: "Callable[[JsonFields], T]", default: Any = ...
    ) -> tuple[T, ...]:
        """Read a list of objects."""
        items = self.take(key, list, default)
        return tuple(read(self.inner(item, f"{key}[{n}]")) for n, item in enumerate(items))

    def inner(self, value: Any, where: str) -> "JsonFields":
        """Take a value inside of this object for an object of its own."""
        return JsonFields(self._path, value, where)
