"""Fuzzed readers of JSON: manifests, operations, records of weights, maps, traces, results."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from comparison.history.saved_result import read_result
from comparison.store.manifest_file import read_manifest
from comparison.store.operations_file import OPERATIONS_NAME, read_operations
from comparison.store.weights_file import WEIGHTS_NAME, read_weights
from comparison.traces.trace_file import read_trace
from diagnosis.name_map import read_map
from tests.fuzz import seeds
from tests.fuzz.checked import check_reader
from tests.fuzz.json_damage import damaged_json
from tests.fuzz.steps import Steps, damaged

_TENSOR = b'{"data":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}}'
_BESIDE = {"x.safetensors": len(_TENSOR).to_bytes(8, "little") + _TENSOR + bytes(24)}


def manifest_input(data: bytes) -> None:
    """Read one manifest."""
    _check(read_manifest, "manifest.json", [seeds.MANIFEST], data)


def operations_input(data: bytes) -> None:
    """Read the operations of one step."""
    _check(lambda path: read_operations(path.parent), OPERATIONS_NAME, [seeds.OPERATIONS], data)


def map_input(data: bytes) -> None:
    """Read one map of names."""
    _check(read_map, "map.json", [seeds.MAP], data)


def trace_input(data: bytes) -> None:
    """Read one trace, and all tensors that it names."""
    _check(_read_trace, "x_debug_tree_FULL_TENSORS.json", [seeds.TRACE], data, beside=_BESIDE)


def result_input(data: bytes) -> None:
    """Read one result of --json."""
    texts = [seeds.COMPARISON, seeds.DIAGNOSIS, seeds.DIAGNOSES]
    _check(read_result, "result.json", texts, data)


def weights_input(data: bytes) -> None:
    """Read one record of weights."""
    steps = Steps(data)
    table, tensors = seeds.WEIGHTS_TABLE, seeds.WEIGHTS_TENSORS
    match steps.below(4):
        case 0:
            content = steps.rest()
        case 1:
            content = _weights(damaged_json(table, steps), tensors)
        case 2:
            content = _weights(table, damaged_json(tensors, steps))
        case _:
            content = damaged(_weights(table, tensors), steps)
    check_reader(lambda path: read_weights(path.parent), WEIGHTS_NAME, content)


def _weights(table: str, tensors: str) -> bytes:
    metadata = json.dumps({"weights": table})
    text = f'{{"__metadata__":{metadata},"all":{tensors}}}'
    if tensors.startswith("{") and len(tensors) > 2:
        text = f'{{"__metadata__":{metadata},{tensors[1:]}'
    header = text.encode("utf-8", "surrogatepass")
    return len(header).to_bytes(8, "little") + header + bytes(seeds.WEIGHTS_BYTES)


def _check(
    read: Callable[[Path], Any],
    name: str,
    texts: Sequence[str],
    data: bytes,
    *,
    beside: dict[str, bytes] | None = None,
) -> None:
    steps = Steps(data)
    match steps.below(8):
        case 0:
            content = steps.rest()
        case 1:
            content = damaged(steps.one_of(texts).encode(), steps)
        case _:
            text = damaged_json(steps.one_of(texts), steps)
            content = text.encode("utf-8", "surrogatepass")
    check_reader(read, name, content, beside=beside or {})


def _read_trace(path: Path) -> None:
    open_calls = [read_trace(path)]
    while open_calls:
        call = open_calls.pop()
        open_calls += call.children
        for value in (*call.inputs.values(), *call.outputs.values()):
            if not isinstance(value, str) and value.load is not None:
                value.load()
