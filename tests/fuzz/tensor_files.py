"""Fuzzed readers of files of tensors: .safetensors, .max, .npy."""

import functools
import io
import json
import struct
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from comparison.numerics.dtypes import Array
from comparison.numerics.tensor_sketch import sketch_tensor
from comparison.store.max_file import MAGIC, read_max_file
from comparison.store.npy_file import read_npy_file
from comparison.store.partial_file import list_partial_file, read_partial_tensor
from comparison.store.safetensors_file import list_safetensors, read_safetensors_tensor
from comparison.store.sketch_file import read_sketches, write_sketches
from tests.fuzz.checked import check_array, check_reader
from tests.fuzz.json_damage import damaged_json
from tests.fuzz.steps import Steps, damaged

_SAFETENSORS_BYTES = {"F32": 4, "BF16": 2, "F8_E4M3": 1, "I64": 8, "BOOL": 1, "C64": 8, "F64": 8}
_MAX_CODES = (1, 64, 65, 73, 75, 79, 80, 81, 82, 134, 135, 140, 141)
_PARTIAL = (
    '{"name":"a","dtype":"F32","shape":[2,3],"data_offsets":[8,32]}',
    '{"name":"b","dtype":"BF16","shape":[],"data_offsets":[32,34]}',
    '{"name":"c","same_as":"a"}',
    '{"name":"__padding__.0","dtype":"U8","shape":[6],"data_offsets":[34,40]}',
)
_NPY_DTYPES = ("<f4", ">f8", "|b1", "<i8", "<c16", "<f2", "|u1", "<U3", "|V2", "<M8[s]")


def safetensors_input(data: bytes) -> None:
    """Read one .safetensors file."""
    steps = Steps(data)
    check_reader(_read_safetensors, "x.safetensors", _safetensors(steps))


def partial_input(data: bytes) -> None:
    """Read the list of one file that was being written."""
    steps = Steps(data)
    lines = [damaged_json(line, steps) if steps.below(3) else line for line in _PARTIAL]
    text = "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogatepass")
    content = steps.rest() if steps.below(8) == 7 else damaged(text, steps)
    check_reader(_read_partial, "x.partial.json", content, beside={"x.partial": bytes(range(100))})


def max_input(data: bytes) -> None:
    """Read one .max file."""
    steps = Steps(data)
    content = steps.rest() if steps.below(4) == 0 else damaged(_max(steps), steps)
    check_reader(_read_max, "x.max", content)


def npy_input(data: bytes) -> None:
    """Read one .npy file."""
    steps = Steps(data)
    content = steps.rest() if steps.below(4) == 0 else _npy(steps)
    check_reader(_read_npy, "x.npy", content)


def sketch_input(data: bytes) -> None:
    """Read the sketches of one step."""
    steps = Steps(data)
    header, values = _sketches()
    match steps.below(4):
        case 0:
            content = steps.rest()
        case 1:
            content = damaged(_file_of(header, values), steps)
        case _:
            told: Any = json.loads(header)
            metadata = told["__metadata__"]
            metadata["sketches"] = damaged_json(metadata["sketches"], steps)
            content = _file_of(json.dumps(told), values)
    check_reader(read_sketches, "sketch.safetensors", content)


@functools.cache
def _sketches() -> tuple[str, bytes]:
    """Return the header of a file of sketches, and what is behind it."""
    values = np.arange(60.0, dtype=np.float32).reshape(3, 20)
    first = sketch_tensor(values)
    whole = {"a": first, "b": sketch_tensor(np.full(7, np.inf)), "again": first}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sketch.safetensors"
        write_sketches(path, whole)
        content = path.read_bytes()
    end = 8 + int.from_bytes(content[:8], "little")
    return content[8:end].decode(), content[end:]


def _read_safetensors(path: Path) -> None:
    for key, _ in list_safetensors(path):
        check_array(read_safetensors_tensor(path, key), path)


def _read_partial(path: Path) -> None:
    whole = path.with_suffix("")
    for key, _ in list_partial_file(whole):
        check_array(read_partial_tensor(whole, key), whole)


def _read_max(path: Path) -> None:
    check_array(read_max_file(path), path)


def _read_npy(path: Path) -> None:
    check_array(read_npy_file(path), path)


def _safetensors(steps: Steps) -> bytes:
    match steps.below(4):
        case 0:
            return steps.rest()
        case 1:
            return damaged(_safetensors_of(safetensors_header()), steps)
        case 2:
            header: Any = json.loads(safetensors_header())
            metadata = header["__metadata__"]
            metadata["same_as"] = damaged_json(metadata["same_as"], steps)
            return _safetensors_of(json.dumps(header))
        case _:
            return damaged(_safetensors_of(damaged_json(safetensors_header(), steps)), steps)


@functools.cache
def safetensors_header() -> str:
    """Return a header of several tensors, with metadata."""
    same_as = json.dumps({"layers.9": "layers.1", "layers.8": "layers.0"})
    header: dict[str, object] = {"__metadata__": {"format": "pt", "same_as": same_as}}
    end = 0
    for number, (code, size) in enumerate(_SAFETENSORS_BYTES.items()):
        shape = (3, number)
        begin, end = end, end + 3 * number * size
        header[f"layers.{number}"] = {"dtype": code, "shape": shape, "data_offsets": [begin, end]}
    header["four"] = {"dtype": "F4", "shape": [5], "data_offsets": [end, end + 3]}
    return json.dumps(header)


def _safetensors_of(header: str) -> bytes:
    declared = (3 * number * size for number, size in enumerate(_SAFETENSORS_BYTES.values()))
    return _file_of(header, (bytes(range(256)) * 2)[: sum(declared) + 3])


def _file_of(header: str, values: bytes) -> bytes:
    text = header.encode("utf-8", "surrogatepass")
    return len(text).to_bytes(8, "little") + text + values


def _max(steps: Steps) -> bytes:
    shape = [steps.below(5) for _ in range(steps.below(4))]
    label = b"model.layers.0-output"
    metadata = 4 + len(label) + 2 + 4 * len(shape) + 8
    head = MAGIC + struct.pack("<IIQI", 0, 1, metadata, len(label)) + label
    head += struct.pack(f"<BB{len(shape)}I", steps.one_of(_MAX_CODES), len(shape), *shape)
    head += struct.pack("<Q", len(head) + 8)
    return head + bytes(int(np.prod(shape)) * steps.one_of((1, 2, 4, 8)))


def _npy(steps: Steps) -> bytes:
    content = _npy_of(steps.below(len(_NPY_DTYPES)), steps.below(2) == 1)
    if steps.below(2):
        return damaged(content, steps)
    return damaged(content, steps, end=128)  # the header


@functools.cache
def _npy_of(dtype: int, fortran: bool) -> bytes:
    array: Array = np.zeros((3, 2), _NPY_DTYPES[dtype])
    file = io.BytesIO()
    np.save(file, np.asfortranarray(array) if fortran else array)
    return file.getvalue()
