"""The sketches of one step: `<step>/sketch.safetensors`.

Each tensor's projections lie under its own name, float32, in a file that any reader of safetensors
opens. All else is in the metadata `sketches`, a list in order of execution.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from comparison.numerics.dtypes import Array, dtype_name, dtype_of_name
from comparison.numerics.tensor_sketch import (
    MOST_ROWS,
    TensorSketch,
    TensorStatistics,
    rows_shape,
)
from comparison.schema.errors import BadInputError, CorruptFileError
from comparison.store.mapped_array import check_size
from comparison.store.safetensors_file import (
    SKETCH_VERSION,
    read_safetensors_header,
    read_safetensors_metadata,
    read_safetensors_tensor,
    write_safetensors,
)

SKETCH_NAME = "sketch.safetensors"
_SCHEMA_VERSION = "2"
_NUMBERS = ("minimum", "maximum", "mean", "std")
_COUNTS = ("nan", "infinite")
_FINGERPRINT = re.compile(r"[0-9a-f]{16}")


def write_sketches(path: Path, sketches: Mapping[str, TensorSketch]) -> None:
    """Write the sketches of a step, whole or not at all.

    Args:
        path: the file.
        sketches: by tensor name, in order of execution.

    Raises:
        UnwritableOutputError: the folder does not exist or cannot be written.
    """
    rows: dict[str, Array] = {}
    first: dict[int, str] = {}  # tensors that are the same one have their rows in common
    listed = []
    for name, sketch in sketches.items():
        owner = first.setdefault(id(sketch), name)
        listed.append(_record(name, sketch, "" if owner == name else owner))
        if owner == name and sketch.rows is not None:
            rows[name] = sketch.rows
    metadata = {SKETCH_VERSION: _SCHEMA_VERSION, "sketches": json.dumps(listed)}
    write_safetensors(path, rows, metadata=metadata)


def read_sketches(path: Path) -> dict[str, TensorSketch]:
    """Read the sketches of a step, in order of execution.

    Args:
        path: the file.

    Raises:
        BadInputError: it cannot be read, or is of a newer version.
    """
    metadata = read_safetensors_metadata(path)
    version = metadata.get(SKETCH_VERSION)
    if version != _SCHEMA_VERSION:
        raise BadInputError(
            f"{path}: expected sketches of version {_SCHEMA_VERSION}, found {version!r:.40}; "
            "make them again with this version of the tools"
        )
    try:
        return dict(_sketches(path, json.loads(metadata["sketches"])))
    except BadInputError as error:
        if str(path) in str(error):
            raise
        raise type(error)(f"{path}: {error}") from None
    # OverflowError: an integer that no float holds, or infinity as a count
    except (
        LookupError,
        TypeError,
        ValueError,
        AttributeError,
        OverflowError,
        RecursionError,
    ) as error:
        raise CorruptFileError(
            f"{path}: expected sketches, found damage: {type(error).__name__}: {error!s:.80}; "
            "make them again"
        ) from None


def _record(name: str, sketch: TensorSketch, same_as: str) -> dict[str, Any]:
    if same_as:
        return {"name": name, "same_as": same_as}
    statistics = {key: getattr(sketch.statistics, key) for key in (*_NUMBERS, *_COUNTS)}
    return {
        "name": name,
        "dtype": sketch.dtype,
        "shape": list(sketch.shape),
        "statistics": {key: _to_json(value) for key, value in statistics.items()},
        "fingerprint": sketch.fingerprint,
        "scale": sketch.scale,
        "non_finite": sketch.non_finite,
    }


def _to_json(value: float) -> float | str:
    """Spell a number that JSON lacks: of float64, sums of squares may overflow."""
    return value if abs(value) < float("inf") else str(value)


def _sketches(path: Path, records: list[dict[str, Any]]) -> Iterator[tuple[str, TensorSketch]]:
    stored = read_safetensors_header(path)
    found: dict[str, TensorSketch] = {}
    for record in records:
        name = str(record["name"])
        if name in found:
            raise CorruptFileError(f"{path}: expected each name once, found {name!r:.200} twice")
        if "same_as" in record:
            found[name] = found[record["same_as"]]
            yield name, found[name]
            continue
        numbers = {key: float(value) for key, value in record["statistics"].items()}
        counts = {key: int(numbers.pop(key)) for key in _COUNTS}
        shape = tuple(int(size) for size in record["shape"])
        sketch = TensorSketch(
            dtype=dtype_name(dtype_of_name(str(record["dtype"]))),
            shape=shape,
            statistics=TensorStatistics(**numbers, **counts),  # type: ignore[arg-type]  # checked
            fingerprint=str(record["fingerprint"]),
            rows=read_safetensors_tensor(path, name) if name in stored else None,
            scale=float(record["scale"]),
            folded=len(shape) > 0 and math.prod(shape[:-1]) > MOST_ROWS and name in stored,
            non_finite=str(record["non_finite"]),
        )
        _check(path, name, sketch)
        found[name] = sketch
        yield name, sketch


def _check(path: Path, name: str, sketch: TensorSketch) -> None:
    """Refuse what no tensor has: a file's own word is not to be trusted."""
    check_size(path, shape=sketch.shape, element_bytes=dtype_of_name(sketch.dtype).itemsize)
    # Two that are blank would be equal, and so would the tensors.
    known = (sketch.fingerprint, *filter(None, [sketch.non_finite]))
    if not all(map(_FINGERPRINT.fullmatch, known)) or not 0 < sketch.scale < math.inf:
        raise CorruptFileError(
            f"{path}: expected fingerprints of 16 hexadecimal digits and a scale above 0 for "
            f"{name!r:.200}, found {known!s:.80} and {sketch.scale}; make the sketches again"
        )
    rows = sketch.rows
    if rows is None:
        return
    if rows.shape != rows_shape(sketch.shape, is_complex=sketch.dtype.startswith("complex")):
        raise CorruptFileError(
            f"{path}: expected rows of {name!r:.200} for a tensor "
            f"{list(sketch.shape)!s:.200}, found {list(rows.shape)}; make the sketches again"
        )
