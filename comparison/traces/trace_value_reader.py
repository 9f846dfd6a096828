"""Reads the values of a trace's calls; files of tensors are found, and read when asked for."""

import re
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NoReturn

from comparison.numerics.dtypes import Array
from comparison.schema.errors import BadInputError, CorruptFileError, MissingPathError
from comparison.schema.outcome import Shape
from comparison.store.safetensors_file import read_safetensors_tensor
from comparison.traces.names_apart import with_names_apart
from comparison.traces.shown_numbers import ShownNumber, numbers_in
from comparison.traces.traced_call import TracedTensor, TracedValue

MOST_LEVELS = 100  # of calls within calls, and of containers within containers
MOST_CHARACTERS = 4096  # of the path of a module, and of the name of a value
# Of all names of values of a trace. They are put together of the keys around a value, so a key
# that is in the file once may be in millions of names.
MOST_CHARACTERS_OF_NAMES = 1 << 27
STATISTICS = ("mean", "std", "min", "max")

_SHAPE = re.compile(r"torch\.Size\(\[((?:\d{1,18}(?:, \d{1,18})*)?)\]\)")


class TraceValueReader:
    """Turns what the JSON of a trace tells of values into records."""

    def __init__(self, path: Path) -> None:
        """Make it.

        Args:
            path: the JSON file, in whose folder the files of tensors lie.
        """
        self._path = path
        self._folder = path.parent.resolve()
        self._characters = 0

    def inputs(self, given: Any, path: str) -> dict[str, TracedValue]:
        """Read the inputs of the call of a module, by name."""
        # Names meet, such as those of `[[x]]` and `{"0_0": x}`.
        return with_names_apart(self._inputs(given, f"{path!r:.200}"))

    def outputs(self, given: Any, path: str) -> dict[str, TracedValue]:
        """Read the outputs of the call of a module, by name."""
        return with_names_apart(self._values(given, "output", f"{path!r:.200}", 0))

    def refuse(self, expected: str, found: str) -> NoReturn:
        """Raise for something that no trace has."""
        raise CorruptFileError(
            f"{self._path}: expected {expected:.400}, found {found:.300}; is it a trace "
            "of model_addition_debugger_context?"
        )

    def _inputs(self, given: Any, module: str) -> Iterator[tuple[str, TracedValue]]:
        if given is None:
            return
        if not isinstance(given, dict):
            self.refuse(f"args and kwargs as inputs of {module}", kind_in_words(given))
        for kind, expected in (("args", list), ("kwargs", dict)):
            values = given.get(kind, expected())
            if not isinstance(values, expected):
                self.refuse(f"a {expected.__name__} as {kind} of {module}", kind_in_words(values))
            yield from self._values(values, "input", module, 0)

    def _values(
        self, value: Any, name: str, module: str, depth: int
    ) -> Iterator[tuple[str, TracedValue]]:
        if depth > MOST_LEVELS:
            self.refuse(f"at most {MOST_LEVELS} containers within each other", "more")
        self._count(name, module)
        if value is None:
            return
        if isinstance(value, str):
            yield name, value
        elif _is_tensor(value):
            yield name, self._tensor(value, f"{name} of {module}")
        elif isinstance(value, dict | list):
            items = value.items() if isinstance(value, dict) else enumerate(value)
            for key, child in items:
                yield from self._values(child, f"{name}_{key}", module, depth + 1)
        else:
            self.refuse(
                f"a tensor, text, list or object as {name} of {module}", kind_in_words(value)
            )

    def _count(self, name: str, module: str) -> None:
        """Refuse names that are too long, by themselves or together."""
        if len(name) > MOST_CHARACTERS:
            self.refuse(f"names of at most {MOST_CHARACTERS} characters in {module}", "more")
        self._characters += len(name)
        if self._characters > MOST_CHARACTERS_OF_NAMES:
            self.refuse(
                f"at most {MOST_CHARACTERS_OF_NAMES} characters in the names of all values", "more"
            )

    def _tensor(self, value: dict[str, Any], where: str) -> TracedTensor:
        found = _SHAPE.fullmatch(value["shape"])
        if found is None:
            self.refuse(f"torch.Size([...]) as shape of {where}", f"{value['shape']!r:.60}")
        for name in ("shape", "dtype", "value", *STATISTICS):
            if f"{name}~2" in value:
                self.refuse(f"one {name} of {where}", "two")
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
                self.refuse(f"a text as {name} of {where}", kind_in_words(text))
            numbers = list(islice(numbers_in(text) or (), 2))
            if len(numbers) == 1:  # none of complex numbers
                yield name, numbers[0]

    def _content(
        self, value: Any, where: str, shape: Shape
    ) -> tuple[str | None, Callable[[], Array] | None]:
        if isinstance(value, list) and all(isinstance(line, str) for line in value):
            return "\n".join(value), None
        if value is None:
            return None, None
        if not isinstance(value, str):
            self.refuse(f"lines or the path of a file as value of {where}", kind_in_words(value))
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
                f"{self._path}: expected the path of a file for {where:.300}, found "
                f"{value!r:.200}: {error!s:.200}"
            ) from None
        if Path(value).is_absolute() or not file.is_relative_to(self._folder):
            self.refuse(f"a file in the folder of the trace for {where}", f"{value!r:.200}")
        if not there:
            raise MissingPathError(
                f"{self._path}: expected a file for {where:.300}, found nothing at {value!r:.200}"
            )
        return file


def _read_tensor(path: Path, shape: Shape) -> Array:
    """Map the tensor of a file, which the trace says is of a shape."""
    try:
        array = read_safetensors_tensor(path, "data")
    except OSError as error:
        raise BadInputError(f"cannot read {path}: {error.strerror}") from None
    if array.shape != shape:
        raise CorruptFileError(
            f"{path}: expected shape {shape!s:.200}, as its trace says, found {array.shape}; "
            "trace again"
        )
    return array


def _is_tensor(value: Any) -> bool:
    """Tell the description of a tensor from a dictionary that a model passes around."""
    if not isinstance(value, dict):
        return False
    shape, dtype = value.get("shape"), value.get("dtype")
    # The text of a text begins with a quotation mark.
    return isinstance(shape, str) and isinstance(dtype, str) and shape.startswith("torch.Size(")


def kind_in_words(value: Any) -> str:
    """Say what was found in a place."""
    return "nothing" if value is None else f"{type(value).__name__} {value!r:.60}"
