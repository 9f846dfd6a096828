"""weights.safetensors: the weights that a model ran with, as projections of each.

A file in the safetensors format. Its metadata has one key, `weights`, whose text is JSON:

    {"version": 1, "unread": [NAME, ...], "weights": [
      {"name": NAME, "dtype": "bfloat16", "shape": [512, 256], "rms": 0.02, "storage": 3 | null,
       "supplied": true | false | null, "unreadable": ""}, ...]}

The tensors `<n>.rows`, float64 [E, O], and `<n>.columns`, float64 [E, I], belong to the weight at
position n. `comparison.numerics.weight_sketch` tells how they are made.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from comparison.numerics.dtypes import Array
from comparison.numerics.weight_record import WeightRecord, WeightSketch, matrix_shape
from comparison.numerics.weight_sketch import SKETCHED_DTYPES
from comparison.schema.errors import BadInputError, CorruptFileError, UnsupportedFormatError
from comparison.store.json_text import parse_json
from comparison.store.safetensors_file import (
    read_safetensors_header,
    read_safetensors_metadata,
    read_safetensors_tensor,
    write_safetensors,
)

WEIGHTS_NAME = "weights.safetensors"
_VERSION = 1
_KEY = "weights"
_MAX_RANK = 64
_MOST_BYTES = 1 << 30  # of a file; those of a model of 70 billion weights are smaller
_FEW_BYTES = 1 << 24
_BLOCK_BYTES = 512  # of what the system counts as blocks
_MOST_MATRICES = 1 << 16  # in a stack; with no values in them, no file is too small for them


def write_weights(path: Path, record: WeightRecord) -> None:
    """Write the record of a run's weights, whole or not at all.

    Args:
        path: the file.
        record: the weights.

    Raises:
        UnwritableOutputError: the folder does not exist or cannot be written.
    """
    tensors: dict[str, Array] = {}
    for number, weight in enumerate(record.weights):
        if weight.rows is not None:
            tensors[f"{number}.rows"] = weight.rows
        if weight.columns is not None:
            tensors[f"{number}.columns"] = weight.columns
    table = {
        "version": _VERSION,
        "unread": list(record.unread),
        "weights": [_entry(weight) for weight in record.weights],
    }
    write_safetensors(path, tensors, metadata={_KEY: json.dumps(table)})


def read_weights(folder: Path) -> WeightRecord | None:
    """Read the record of a dump's weights, those of all its ranks.

    Args:
        folder: the dump.

    Returns:
        None where there is none; weights of several ranks are named `rank<r>/...`.

    Raises:
        CorruptFileError: it is cut off, malformed, or its sizes contradict each other.
        UnsupportedFormatError: a later version of these tools wrote it.
    """
    if os.path.lexists(folder / WEIGHTS_NAME):
        return _read(folder / WEIGHTS_NAME)
    ranks = sorted(folder.glob(f"rank*/{WEIGHTS_NAME}")) if folder.is_dir() else []
    if not ranks:
        return None
    records = {path.parent.name: _read(path) for path in ranks}
    return WeightRecord(
        weights=tuple(
            _of_rank(weight, rank) for rank, record in records.items() for weight in record.weights
        ),
        unread=tuple(
            f"{rank}/{name}" for rank, record in records.items() for name in record.unread
        ),
    )


def is_weights_record(path: Path) -> bool:
    """Tell a record of weights from any other file, such as tensors that go by that name."""
    try:
        return _KEY in read_safetensors_metadata(path)
    except (BadInputError, OSError):
        return False


def _entry(weight: WeightSketch) -> dict[str, Any]:
    return {
        "name": weight.name,
        "dtype": weight.dtype,
        "shape": list(weight.shape),
        "rms": weight.rms if np.isfinite(weight.rms) else None,
        "storage": weight.storage,
        "supplied": weight.supplied,
        "unreadable": weight.unreadable,
    }


def _of_rank(weight: WeightSketch, rank: str) -> WeightSketch:
    return replace(weight, name=f"{rank}/{weight.name}", storage=None)


def _read(path: Path) -> WeightRecord:
    try:
        found = path.stat()
        if found.st_size > _MOST_BYTES:
            raise _corrupt(path, f"a file of at most {_MOST_BYTES} bytes", found.st_size)
        on_disk = found.st_blocks * _BLOCK_BYTES  # 0 on systems that do not count
        if found.st_size > _FEW_BYTES and 0 < on_disk < found.st_size // 2:
            raise _corrupt(path, "projections, which fill their file", "a file of holes")
        metadata = read_safetensors_metadata(path)
        stored = read_safetensors_header(path)
    except BadInputError:
        raise
    except OSError as error:
        raise CorruptFileError(f"{path}: expected a file of weights, {error.strerror}") from None
    table = _table(path, metadata)
    entries = _list(path, table, "weights")
    unread = _list(path, table, "unread")
    if not all(isinstance(name, str) for name in unread):
        raise _corrupt(path, "names as 'unread'", unread)
    weights = tuple(_weight(path, number, entry, stored) for number, entry in enumerate(entries))
    twice = [name for name, count in Counter(w.name for w in weights).items() if count > 1]
    if twice:
        raise _corrupt(path, "each weight once", f"{twice[0]!r:.200} twice")
    return WeightRecord(weights=weights, unread=tuple(unread))


def _table(path: Path, metadata: Mapping[str, str]) -> dict[str, Any]:
    try:
        table = parse_json(metadata[_KEY].encode("utf-8", "surrogatepass"))
    except (KeyError, ValueError) as error:
        raise _corrupt(path, f"JSON as {_KEY!r} in its metadata", error) from None
    if not isinstance(table, dict) or type(table.get("version")) is not int:
        raise _corrupt(path, f"an object with a version as {_KEY!r}", table)
    if table["version"] > _VERSION:
        raise UnsupportedFormatError(
            f"{path}: expected version {_VERSION} or less, found {table['version']}; this dump was "
            "made by a later version of these tools, update them"
        )
    return table


def _list(path: Path, table: Mapping[str, Any], key: str) -> list[Any]:
    value = table.get(key)
    if not isinstance(value, list):
        raise _corrupt(path, f"a list as {key!r}", value)
    return value


def _weight(path: Path, number: int, entry: Any, stored: Mapping[str, Any]) -> WeightSketch:
    """Check one entry of the table, and that its sketch has the sizes that follow from it."""
    if not isinstance(entry, dict):
        raise _corrupt(path, f"an object as weight {number}", entry)
    name, dtype, unreadable = (entry.get(key) for key in ("name", "dtype", "unreadable"))
    if not (isinstance(name, str) and isinstance(dtype, str) and isinstance(unreadable, str)):
        raise _corrupt(path, f"texts as name, dtype and unreadable of weight {number}", entry)
    shape = entry.get("shape")
    if not isinstance(shape, list) or not all(type(n) is int and n >= 0 for n in shape):
        raise _corrupt(path, f"sizes as shape of {name!r:.200}", shape)
    if len(shape) > _MAX_RANK:
        raise _corrupt(path, f"at most {_MAX_RANK} dimensions of {name!r:.200}", len(shape))
    rms, storage, supplied = (entry.get(key) for key in ("rms", "storage", "supplied"))
    whole = type(rms) is int and abs(rms) < 2**53  # greater ones may be more than a float holds
    if rms is not None and not whole and not isinstance(rms, float):
        raise _corrupt(path, f"a number as rms of {name!r:.200}", rms)
    if storage is not None and type(storage) is not int:
        raise _corrupt(path, f"an integer as storage of {name!r:.200}", storage)
    if supplied is not None and not isinstance(supplied, bool):
        raise _corrupt(path, f"true, false or null as supplied of {name!r:.200}", supplied)
    if not unreadable and dtype not in SKETCHED_DTYPES:
        raise _corrupt(path, f"a dtype of {', '.join(SKETCHED_DTYPES)} of {name!r:.200}", dtype)
    stack, rows, columns = matrix_shape(tuple(shape))
    if stack > _MOST_MATRICES:
        raise _corrupt(path, f"a stack of at most {_MOST_MATRICES} in {name!r:.200}", stack)
    sized = {"rows": (stack, rows)} | ({"columns": (stack, columns)} if len(shape) > 1 else {})
    sketch = {
        key: None if unreadable else _sketch(path, f"{number}.{key}", size, stored)
        for key, size in sized.items()
    }
    return WeightSketch(
        name=name,
        dtype=dtype,
        shape=tuple(shape),
        rows=sketch["rows"],
        columns=sketch.get("columns"),
        rms=float("nan") if rms is None else float(rms),
        storage=storage,
        supplied=supplied,
        unreadable=unreadable,
    )


def _sketch(path: Path, key: str, size: tuple[int, int], stored: Mapping[str, Any]) -> Array:
    there = stored.get(key)
    if there is None or there.shape != size or there.dtype != "float64":
        found = "none" if there is None else f"{there.dtype} {list(there.shape)}"
        raise _corrupt(path, f"{key} of float64 {list(size)}", found)
    return read_safetensors_tensor(path, key)


def _corrupt(path: Path, expected: str, found: object) -> CorruptFileError:
    return CorruptFileError(
        f"{path}: expected {expected:.400}, found {found!s:.200}; dump it again"
    )
