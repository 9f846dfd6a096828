"""Reads call-tree traces that others made: JSON and safetensors only, and nothing elsewhere."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from comparison.numerics.dtypes import Array
from comparison.schema.errors import BadInputError, CorruptFileError, MissingPathError
from comparison.schema.outcome import Shape
from comparison.store.regular_file import open_regular
from comparison.store.safetensors_file import read_safetensors_tensor
from comparison.traces.shown_numbers import ShownNumber, numbers_in

FULL_SUFFIX = "_debug_tree_FULL_TENSORS.json"
SUMMARY_SUFFIX = "_debug_tree_SUMMARY.json"
MOST_BYTES = 512 * 2**20
MOST_CALLS = 1_000_000
MOST_LEVELS = 100  # of calls within calls, and of containers within containers
STATISTICS = ("mean", "std", "min", "max")

_SHAPE = re.compile(r"torch\.Size\(\[((?:\d{1,18}(?:, \d{1,18})*)?)\]\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedTensor:
    """A tensor that a call was given or returned.

    Attributes:
        shape: its dimensions; None where they are not known before it is read.
        dtype: `float32`; empty where it is not known before it is read.
        statistics: those that the trace has, by name.
        text: how it was printed, perhaps abbreviated; None where the trace does not say.
        load: reads all of it; None where the trace does not hold all of it.
    """

    shape: Shape | None
    dtype: str
    statistics: Mapping[str, ShownNumber] = field(default_factory=dict)
    text: str | None = None
    load: Callable[[], Array] | None = None


# A tensor, or the text of anything else.
TracedValue = TracedTensor | str


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceCall:
    """One call of a module.

    Attributes:
        path: the module's path, which begins with the class of the model.
        number: 1 for the module's first call, then 2, 3, ...
        inputs: by name, `input_0` or `input_<keyword>`, deeper `input_0_1`.
        outputs: by name, `output`, or `output_<index or field>`.
        raised: the exception that ended it, empty where none did.
        pruned: paths of layers that it called and that are not written.
        children: the calls inside, in order of execution.
    """

    path: str
    number: int
    inputs: Mapping[str, TracedValue]
    outputs: Mapping[str, TracedValue]
    raised: str = ""
    pruned: tuple[str, ...] = ()
    children: tuple["TraceCall", ...] = ()

    @property
    def key(self) -> tuple[str, int]:
        """What its counterpart has as well: the path below the model, and the number."""
        return self.path.partition(".")[2], self.number


def find_trace(path: Path) -> Path | None:
    """Find the file of a trace: the path itself, or the one in a folder, whole before summary.

    Returns:
        None where there is no trace.

    Raises:
        BadInputError: a folder of several traces.
    """
    if not path.is_dir():
        return path if path.suffix == ".json" else None
    for suffix in (FULL_SUFFIX, SUMMARY_SUFFIX):
        # Of one call, or of all calls in folders 0, 1, ...
        found = sorted(path.glob(f"*{suffix}")) or sorted(path.glob(f"[0-9]*/*{suffix}"))
        if len(found) > 1:
            names = ", ".join(str(file.relative_to(path)) for file in found[:4])
            raise BadInputError(
                f"expected one trace in {path}, found {len(found)}: {names}; name one of the files"
            )
        if found:
            return found[0]
    return None


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
        return json.loads(text)
    except RecursionError:
        raise CorruptFileError(
            f"{path}: expected at most {MOST_LEVELS} calls within each other, found more"
        ) from None
    except ValueError as error:
        raise CorruptFileError(f"{path}: expected JSON, found {error}; trace again") from None


class _Reader:
    """Turns the JSON of one file into calls, numbered in the order in which they begin."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._folder = path.parent.resolve()
        self._numbers: Counter[str] = Counter()
        self._calls = 0

    def call(self, node: Any, where: str, *, depth: int) -> TraceCall:
        self._calls += 1
        if depth >= MOST_LEVELS:
            self._refuse(f"at most {MOST_LEVELS} calls within each other", "more")
        if self._calls > MOST_CALLS:
            self._refuse(f"at most {MOST_CALLS} calls", "more")
        if not isinstance(node, dict):
            self._refuse(f"an object for {where}", _kind(node))
        path = node.get("module_path")
        if not isinstance(path, str) or not path:
            self._refuse(f"a text as module_path of {where}", _kind(path))
        number = self._number(node, path)
        children = self._list(node, "children", path)
        return TraceCall(
            path=path,
            number=number,
            inputs=dict(self._inputs(node.get("inputs"), path)),
            outputs=dict(self._values(node.get("outputs"), "output", path, 0)),
            raised=self._text(node, "raised", path),
            pruned=tuple(self._pruned(node, path)),
            children=tuple(
                self.call(child, f"a call inside of {path!r:.200}", depth=depth + 1)
                for child in children
            ),
        )

    def _number(self, node: dict[str, Any], path: str) -> int:
        number = node.get("call", self._numbers[path] + 1)
        if type(number) is not int or not 0 < number < 10**9:
            self._refuse(f"a number from 1 on as call of {path!r:.200}", f"{number!r:.60}")
        self._numbers[path] = number
        return number

    def _pruned(self, node: dict[str, Any], path: str) -> Iterator[str]:
        for name in self._list(node, "pruned", path):
            if not isinstance(name, str):
                self._refuse(f"texts as pruned of {path!r:.200}", _kind(name))
            yield name

    def _list(self, node: dict[str, Any], field_name: str, path: str) -> list[Any]:
        value = node.get(field_name, [])
        if not isinstance(value, list):
            self._refuse(f"a list as {field_name} of {path!r:.200}", _kind(value))
        return value

    def _text(self, node: dict[str, Any], field_name: str, path: str) -> str:
        value = node.get(field_name, "")
        if not isinstance(value, str):
            self._refuse(f"a text as {field_name} of {path!r:.200}", _kind(value))
        return value

    def _inputs(self, given: Any, path: str) -> Iterator[tuple[str, TracedValue]]:
        if given is None:
            return
        if not isinstance(given, dict):
            self._refuse(f"args and kwargs as inputs of {path!r:.200}", _kind(given))
        for kind, expected in (("args", list), ("kwargs", dict)):
            values = given.get(kind, expected())
            if not isinstance(values, expected):
                self._refuse(f"a {expected.__name__} as {kind} of {path!r:.200}", _kind(values))
            yield from self._values(values, "input", path, 0)

    def _values(
        self, value: Any, name: str, path: str, depth: int
    ) -> Iterator[tuple[str, TracedValue]]:
        if depth > MOST_LEVELS:
            self._refuse(f"at most {MOST_LEVELS} containers within each other", "more")
        if value is None:
            return
        if isinstance(value, str):
            yield name, value
        elif _is_tensor(value):
            yield name, self._tensor(value, f"{name} of {path!r:.200}")
        elif isinstance(value, dict | list):
            items = value.items() if isinstance(value, dict) else enumerate(value)
            for key, child in items:
                yield from self._values(child, f"{name}_{key}", path, depth + 1)
        else:
            self._refuse(f"a tensor, text, list or object as {name} of {path!r:.200}", _kind(value))

    def _tensor(self, value: dict[str, Any], where: str) -> TracedTensor:
        found = _SHAPE.fullmatch(value["shape"])
        if found is None:
            self._refuse(f"torch.Size([...]) as shape of {where}", f"{value['shape']!r:.60}")
        shape = tuple(int(size) for size in found[1].split(", ") if size)
        text, load = self._content(value.get("value"), where, shape)
        return TracedTensor(
            shape=shape,
            dtype=value["dtype"].removeprefix("torch."),
            statistics=dict(self._statistics(value, where)),
            text=text,
            load=load,
        )

    def _statistics(self, value: dict[str, Any], where: str) -> Iterator[tuple[str, ShownNumber]]:
        for name in STATISTICS:
            if name not in value:
                continue
            text = value[name]
            if not isinstance(text, str):
                self._refuse(f"a text as {name} of {where}", _kind(text))
            numbers = numbers_in(text)
            if numbers is not None and len(numbers) == 1:  # none of complex numbers
                yield name, numbers[0]

    def _content(
        self, value: Any, where: str, shape: Shape
    ) -> tuple[str | None, Callable[[], Array] | None]:
        if isinstance(value, list) and all(isinstance(line, str) for line in value):
            return "\n".join(value), None
        if value is None:
            return None, None
        if not isinstance(value, str):
            self._refuse(f"lines or the path of a file as value of {where}", _kind(value))
        if not value.endswith(".safetensors"):
            return None, None  # it says why there is no file
        return None, partial(_read_tensor, self._inside(value, where), shape)

    def _inside(self, value: str, where: str) -> Path:
        """Return the file of a tensor, which lies in the trace's folder, behind links too."""
        try:
            file = (self._folder / value).resolve()
            there = file.is_file()
        except (OSError, ValueError, RuntimeError) as error:
            raise BadInputError(
                f"{self._path}: expected the path of a file for {where}, found {value!r:.200}: "
                f"{error}"
            ) from None
        if Path(value).is_absolute() or not file.is_relative_to(self._folder):
            self._refuse(f"a file in the folder of the trace for {where}", f"{value!r:.200}")
        if not there:
            raise MissingPathError(
                f"{self._path}: expected a file for {where}, found nothing at {value!r:.200}"
            )
        return file

    def _refuse(self, expected: str, found: str) -> NoReturn:
        raise CorruptFileError(
            f"{self._path}: expected {expected}, found {found}; is it a trace "
            "of model_addition_debugger_context?"
        )


def _read_tensor(path: Path, shape: Shape) -> Array:
    """Map the tensor of a file, which the trace says is of a shape."""
    try:
        array = read_safetensors_tensor(path, "data")
    except OSError as error:
        raise BadInputError(f"cannot read {path}: {error.strerror}") from None
    if array.shape != shape:
        raise CorruptFileError(
            f"{path}: expected shape {shape}, as its trace says, found {array.shape}; trace again"
        )
    return array


def _is_tensor(value: Any) -> bool:
    """Tell the description of a tensor from a dictionary that a model passes around."""
    if not isinstance(value, dict):
        return False
    shape, dtype = value.get("shape"), value.get("dtype")
    # The text of a text begins with a quotation mark.
    return isinstance(shape, str) and isinstance(dtype, str) and shape.startswith("torch.Size(")


def _kind(value: Any) -> str:
    return "nothing" if value is None else f"{type(value).__name__} {value!r:.60}"
