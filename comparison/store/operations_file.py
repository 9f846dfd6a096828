"""ops.json: the operations of one step, and which tensor goes from where to where.

{"version": 1,
 "tensors": {"model.layers.0.mlp-output": "model.layers.0.mlp.down_proj@003.mm", ...},
 "operations": [
   {"op": "aten.mul.Tensor", "module": "model.layers.0.mlp", "source": "my_model.py:12",
    "inputs": ["model.layers.0.mlp@004.silu", "model.layers.0.mlp.up_proj@003.mm"],
    "arguments": {"alpha": 1},
    "outputs": [{"name": "model.layers.0.mlp@005.mul", "dtype": "float32", "shape": [2, 13, 96],
                 "view_of": null, "saved": true}]}, ...]}
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from comparison.schema.errors import BadInputError, CorruptFileError, UnsupportedFormatError
from comparison.schema.json_values import strict_json_value
from comparison.schema.operations import (
    Argument,
    CapturedOperation,
    OperationOutput,
    StepOperations,
)
from comparison.store.atomic_file import write_text
from comparison.store.json_text import MOST_JSON_BYTES, parse_json
from comparison.store.regular_file import read_regular

OPERATIONS_NAME = "ops.json"
_VERSION = 1
_MAX_RANK = 64
_MOST_OPERATIONS = 10_000_000  # far more than a step of any model has


def write_operations(path: Path, step: StepOperations) -> None:
    """Write the operations of a step, whole or not at all.

    Args:
        path: the file.
        step: the operations.

    Raises:
        UnwritableOutputError: the folder does not exist or cannot be written.
    """
    value = {
        "version": _VERSION,
        "tensors": dict(step.tensors),
        "operations": [_to_json(operation) for operation in step.operations],
    }
    write_text(path, json.dumps(strict_json_value(value), allow_nan=False) + "\n")


def read_operations(folder: Path) -> StepOperations | None:
    """Read the operations of a step's folder.

    Args:
        folder: of the step.

    Returns:
        None where it holds none.

    Raises:
        CorruptFileError: it is no JSON, or a value is missing or of another type.
        UnsupportedFormatError: a later version of these tools wrote it.
    """
    path = folder / OPERATIONS_NAME
    try:
        text = read_regular(path, most_bytes=MOST_JSON_BYTES)
    except FileNotFoundError:
        if path.is_symlink():
            raise _corrupt(path, "a file", "a link to nothing") from None
        return None
    except BadInputError:
        raise
    except OSError as error:
        raise _corrupt(path, "a file", error.strerror) from None
    try:
        value = parse_json(text)
    except ValueError as error:  # of too many digits, too: a bare ValueError
        raise _corrupt(path, "JSON", error) from None
    return _checked(path, value)


def _to_json(operation: CapturedOperation) -> dict[str, Any]:
    return {
        "op": operation.op,
        "module": operation.module,
        "source": operation.source,
        "inputs": list(operation.inputs),
        "arguments": dict(operation.arguments),
        "outputs": [
            {
                "name": output.name,
                "dtype": output.dtype,
                "shape": list(output.shape),
                "view_of": output.view_of,
                "saved": output.saved,
            }
            for output in operation.outputs
        ],
    }


def _checked(path: Path, value: Any) -> StepOperations:
    version = value.get("version") if isinstance(value, dict) else None
    if type(version) is not int or version < 1:
        raise _corrupt(path, "an object with a version", value)
    if version > _VERSION:
        raise UnsupportedFormatError(
            f"{path}: expected version {_VERSION} or less, found {version}; this dump was made by "
            "a later version of these tools, update them"
        )
    operations, tensors = value.get("operations"), value.get("tensors")
    if not isinstance(operations, list) or len(operations) > _MOST_OPERATIONS:
        raise _corrupt(path, "a list as 'operations'", operations)
    if not isinstance(tensors, dict) or not all(isinstance(name, str) for name in tensors.values()):
        raise _corrupt(path, "an object of texts as 'tensors'", tensors)
    found = tuple(_operation(path, number, item) for number, item in enumerate(operations))
    names = Counter(output.name for operation in found for output in operation.outputs)
    twice = next((name for name, count in names.items() if count > 1), None)
    if twice is not None:
        raise _corrupt(path, "each output once", f"{twice!r:.200} twice")
    return StepOperations(operations=found, tensors=dict(tensors))


def _operation(path: Path, number: int, item: Any) -> CapturedOperation:
    where = f"operation {number}"
    if not isinstance(item, dict):
        raise _corrupt(path, f"an object as {where}", item)
    inputs, outputs = item.get("inputs"), item.get("outputs")
    if not isinstance(inputs, list) or not all(isinstance(name, str) for name in inputs):
        raise _corrupt(path, f"a list of names as inputs of {where}", inputs)
    if not isinstance(outputs, list):
        raise _corrupt(path, f"a list as outputs of {where}", outputs)
    arguments = item.get("arguments")
    if not isinstance(arguments, dict):
        raise _corrupt(path, f"an object as arguments of {where}", arguments)
    return CapturedOperation(
        op=_text(path, item, "op", where),
        module=_text(path, item, "module", where),
        source=_text(path, item, "source", where),
        inputs=tuple(inputs),
        arguments=_arguments(path, arguments, where),
        outputs=tuple(_output(path, output, where) for output in outputs),
    )


def _arguments(path: Path, given: Mapping[str, Any], where: str) -> dict[str, Argument]:
    found: dict[str, Argument] = {}
    for key, value in given.items():
        plain = value if isinstance(value, list) else [value]
        if not all(isinstance(part, bool | int | float | str) for part in plain):
            raise _corrupt(path, f"plain values as argument {key!r:.80} of {where}", value)
        found[key] = tuple(value) if isinstance(value, list) else value
    return found


def _output(path: Path, item: Any, where: str) -> OperationOutput:
    if not isinstance(item, dict):
        raise _corrupt(path, f"an object as output of {where}", item)
    shape, view_of, saved = (item.get(key) for key in ("shape", "view_of", "saved"))
    if not isinstance(shape, list) or not all(_is_size(size) for size in shape):
        raise _corrupt(path, f"sizes or their names as shape of an output of {where}", shape)
    if len(shape) > _MAX_RANK:
        raise _corrupt(path, f"at most {_MAX_RANK} dimensions of {where}", len(shape))
    if view_of is not None and not isinstance(view_of, str):
        raise _corrupt(path, f"a name or null as view_of of {where}", view_of)
    if not isinstance(saved, bool):
        raise _corrupt(path, f"true or false as saved of {where}", saved)
    return OperationOutput(
        name=_text(path, item, "name", where),
        dtype=_text(path, item, "dtype", where),
        shape=tuple(shape),
        view_of=view_of,
        saved=saved,
    )


def _is_size(value: Any) -> bool:
    return isinstance(value, str) or (type(value) is int and value >= 0)


def _text(path: Path, item: Mapping[str, Any], key: str, where: str) -> str:
    value = item.get(key)
    if not isinstance(value, str):
        raise _corrupt(path, f"a text as {key!r} of {where}", value)
    return value


def _corrupt(path: Path, expected: str, found: object) -> CorruptFileError:
    return CorruptFileError(
        f"{path}: expected {expected:.400}, found {found!s:.200}; dump it again"
    )
