"""Reads call-tree traces that others made: JSON and safetensors only, and nothing elsewhere."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from comparison.schema.errors import BadInputError, CorruptFileError, MissingPathError
from comparison.store.json_text import check_count
from comparison.store.regular_file import open_regular
from comparison.traces.names_apart import with_names_apart
from comparison.traces.trace_value_reader import (
    MOST_CHARACTERS,
    MOST_LEVELS,
    TraceValueReader,
    kind_in_words,
)
from comparison.traces.traced_call import TraceCall

MOST_BYTES = 512 * 2**20
MOST_CALLS = 1_000_000

_FIELDS = ("module_path", "call", "inputs", "outputs", "raised", "pruned", "children")


def read_trace(path: Path) -> TraceCall:
    """Read the outermost call of a trace. Files of tensors are looked for, but not read yet.

    Args:
        path: the JSON file.

    Raises:
        MissingPathError: the file, or one of a tensor that it names, is not there.
        BadInputError: not a trace, too large, too deep, or it names a file outside of its folder.
    """
    tree = _load(path)
    return _Reader(path).call(tree, "the outermost call", depth=0)


def _load(path: Path) -> Any:
    try:
        with open_regular(path) as file:
            text = file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        raise MissingPathError(
            f"expected the JSON file of a trace, found nothing at {path}"
        ) from None
    except OSError as error:
        raise BadInputError(f"cannot read {path}: {error.strerror}") from None
    if len(text) > MOST_BYTES:
        raise BadInputError(f"{path}: expected at most {MOST_BYTES} bytes; use the SUMMARY file")
    try:
        check_count(text)
        return json.loads(text, object_pairs_hook=_distinct)
    except RecursionError:
        raise CorruptFileError(
            f"{path}: expected at most {MOST_LEVELS} calls within each other, found more"
        ) from None
    except ValueError as error:
        raise CorruptFileError(
            f"{path}: expected JSON, found {error!s:.200}; trace again"
        ) from None


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Keep what one key holds twice, as the keys 1 and "1" of a dictionary do in JSON."""
    found = dict(pairs)
    return found if len(found) == len(pairs) else with_names_apart(pairs)


class _Reader:
    """Turns the JSON of one file into calls, numbered in the order in which they begin."""

    def __init__(self, path: Path) -> None:
        self._values = TraceValueReader(path)
        self._numbers: Counter[str] = Counter()
        self._known: set[tuple[str, int]] = set()
        self._calls = 0

    def call(self, node: Any, where: str, *, depth: int) -> TraceCall:
        self._calls += 1
        if depth >= MOST_LEVELS:
            self._values.refuse(f"at most {MOST_LEVELS} calls within each other", "more")
        if self._calls > MOST_CALLS:
            self._values.refuse(f"at most {MOST_CALLS} calls", "more")
        if not isinstance(node, dict):
            self._values.refuse(f"an object for {where}", kind_in_words(node))
        path = self._path(node, where)
        number = self._number(node, path)
        children, inside = self._list(node, "children", path), f"a call inside of {path!r:.200}"
        return TraceCall(
            path=path,
            number=number,
            inputs=self._values.inputs(node.get("inputs"), path),
            outputs=self._values.outputs(node.get("outputs"), path),
            raised=self._text(node, "raised", path),
            pruned=tuple(self._pruned(node, path)),
            children=tuple(self.call(child, inside, depth=depth + 1) for child in children),
        )

    def _path(self, node: dict[str, Any], where: str) -> str:
        path = node.get("module_path")
        if not isinstance(path, str) or not path:
            self._values.refuse(f"a text as module_path of {where}", kind_in_words(path))
        if len(path) > MOST_CHARACTERS:
            expected = f"at most {MOST_CHARACTERS} characters as module_path of {where}"
            self._values.refuse(expected, f"{len(path)}")
        for name in _FIELDS:
            if f"{name}~2" in node:
                self._values.refuse(f"one {name} of {path!r:.200}", "two")
        return path

    def _number(self, node: dict[str, Any], path: str) -> int:
        number = node.get("call", self._numbers[path] + 1)
        if type(number) is not int or not 0 < number < 10**9:
            expected = f"a number from 1 on as call of {path!r:.200}"
            self._values.refuse(expected, f"{number!r:.60}")
        if (path, number) in self._known:
            self._values.refuse(f"one call {number} of {path!r:.200}", "two")
        self._known.add((path, number))
        self._numbers[path] = number
        return number

    def _pruned(self, node: dict[str, Any], path: str) -> Iterator[str]:
        for name in self._list(node, "pruned", path):
            if not isinstance(name, str):
                self._values.refuse(f"texts as pruned of {path!r:.200}", kind_in_words(name))
            yield name

    def _list(self, node: dict[str, Any], field_name: str, path: str) -> list[Any]:
        value = node.get(field_name, [])
        if not isinstance(value, list):
            self._values.refuse(f"a list as {field_name} of {path!r:.200}", kind_in_words(value))
        return value

    def _text(self, node: dict[str, Any], field_name: str, path: str) -> str:
        value = node.get(field_name, "")
        if not isinstance(value, str):
            self._values.refuse(f"a text as {field_name} of {path!r:.200}", kind_in_words(value))
        return value
