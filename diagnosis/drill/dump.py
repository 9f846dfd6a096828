"""The operations in a candidate's dump."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from comparison.numerics.dtypes import Array
from comparison.schema.errors import CorruptFileError
from comparison.schema.operations import StepOperations
from comparison.schema.tensor_entry import TensorEntry
from comparison.schema.tensor_names import is_operation_name
from comparison.store.dump import Dump
from comparison.store.operations_file import read_operations

# Behind or inside the name of a module: what engines put there.
_OF_LIST = (".", ".layers.")
_OF_MODULE = ("", "_shards.0")


def without_operations(dump: Dump) -> Dump:
    """Return a dump without its operations: what they give has no counterpart at modules' edges."""
    entries = tuple(entry for entry in dump.entries if not is_operation_name(entry.name))
    if len(entries) == len(dump.entries):
        return dump
    kept = set(entries)
    problems = {entry: why for entry, why in dump.problems.items() if entry in kept}
    return replace(dump, entries=entries, problems=problems)


def operations_of(dump: Dump, step: int) -> tuple[StepOperations | None, int]:
    """Read the operations of a step, or of the first step that has some.

    Args:
        dump: the candidate's.
        step: the step that is wanted.

    Returns:
        The operations, None where there are none, and the step that they are of.

    Raises:
        BadInputError: they cannot be read.
    """
    folders = {entry.step: entry.path.parent for entry in reversed(dump.entries)}
    for number in dict.fromkeys([step, *sorted(folders)]):
        found = read_operations(folders[number]) if number in folders else None
        if found is not None:
            return found, number
    return None, step


def covers(step: StepOperations, module: str) -> bool:
    """Tell whether the operations of a module were captured.

    Args:
        step: what was.
        module: the candidate's name of the module.
    """
    return any(
        operation.module == module or operation.module.startswith((f"{module}.", f"{module}("))
        for operation in step.operations
    )


class OperationValues:
    """Reads what operations and modules of one step give."""

    def __init__(self, dump: Dump, step: int, operations: StepOperations) -> None:
        """List the tensors.

        Args:
            dump: the candidate's.
            step: the step.
            operations: of that step.
        """
        self._dump = dump
        self._sizes = {
            output.name: math.prod(map(int, output.shape))
            for operation in operations.operations
            for output in operation.outputs
            if all(isinstance(size, int) for size in output.shape)
        }
        self._entries: dict[str, TensorEntry] = {
            entry.name: entry for entry in dump.entries if entry.step == step
        }

    def __getitem__(self, name: str) -> Array | None:
        """Map a tensor; None where the dump does not hold it.

        Raises:
            BadInputError: its file cannot be read, or holds more than its operation gives.
        """
        entry = self._entries.get(name)
        if entry is None:
            return None
        values = self._dump.read(entry)
        size = self._sizes.get(name, values.size)
        if values.size > size:
            raise CorruptFileError(
                f"{entry.path}: expected the {size} elements that its operation gives, found "
                f"{values.size}; dump it again"
            )
        return values


def module_globs(*modules: str | None) -> tuple[str, ...]:
    """Name a module as engines do.

    Args:
        modules: what the sides call it, as far as that is known.
    """
    return tuple(dict.fromkeys(glob for name in modules if name for glob in _globs(name)))


def with_inside(globs: tuple[str, ...]) -> tuple[str, ...]:
    """Add the modules inside of those that fit the globs."""
    return tuple(name for glob in globs for name in (glob, f"{glob}.*"))


def _globs(module: str) -> Iterator[str]:
    yield module
    parts = module.split(".")
    place = next((at for at, part in enumerate(parts) if at > 0 and part.isdecimal()), None)
    if place is None:
        return
    stack, rest = parts[place - 1], ".".join(parts[place:])
    for between in _OF_LIST:
        for end in _OF_MODULE:
            yield f"*.{stack}{between}{rest}{end}"
