"""What decides a reference's dump: everything that goes into it, as one digest."""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from oracles.oracle import PipelineOracle
from test_common.debug_options import DebugOptions
from test_common.file_digests import FileDigests, Stamp, files_below
from test_common.hub_snapshot import local_snapshot
from test_common.local_transformers import copies_folder
from test_common.numeric_environment import editable_packages, numeric_environment
from test_common.run_device import resolve_device

_LAYOUT = 1  # of what is kept
_OURS = Path(__file__).parents[1]
# That makes and writes a dump, and not what reads it.
_OUR_FOLDERS = (
    "comparison/numerics",
    "comparison/schema",
    "comparison/store",
    "oracles",
    "test_common",
)
_OUR_ROOMS = ("bazel", "comparison", "diagnosis", "oracles", "test_common", "tools")
_PLACES = ("output", "overwrite")  # of a run, which do not change what is computed


class NotCacheableError(Exception):
    """What a run depends on cannot be told beforehand; the message says why."""


def key_of_run(
    oracle: PipelineOracle,
    options: DebugOptions,
    rows: Sequence[Sequence[int]] | None,
    digests: FileDigests,
    *,
    file: Path | None = None,
) -> str:
    """Return 32 hexadecimal digits for a run on Torch.

    Args:
        oracle: what is run.
        options: how.
        rows: token ids, one list a row; None where only the run tells them.
        digests: reads the model's files.
        file: the user's file that the oracle is of; None for one of ours.

    Raises:
        NotCacheableError: not everything that goes into the run is known.
    """
    parts = parts_of_run(oracle, options, rows, digests, file=file)
    text = json.dumps(parts, sort_keys=True, default=_described)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def parts_of_run(
    oracle: PipelineOracle,
    options: DebugOptions,
    rows: Sequence[Sequence[int]] | None,
    digests: FileDigests,
    *,
    file: Path | None = None,
) -> dict[str, Any]:
    """Return what a key is made of; the arguments are those of `key_of_run`.

    Raises:
        NotCacheableError: not everything that goes into the run is known.
    """
    reason = next(_reasons(oracle, options, rows), None)
    if reason is not None:
        raise NotCacheableError(reason)
    device = resolve_device(options.device, framework="torch")
    kind = device.partition(":")[0]
    return {
        "layout": _LAYOUT,
        "oracle": [_described(type(oracle)), vars(oracle)],
        "oracle_file": None if file is None else digests.digest(file),
        "files": _files(oracle, digests),
        "options": {
            name: value
            for name, value in dataclasses.asdict(options).items()
            if name not in _PLACES
        },
        "encoding": oracle.resolve_encoding(options.encoding, device_type=kind),
        "device": device,
        "rows": rows,
        "environment": numeric_environment(device),
        "ours": _our_source(digests),
    }


def stamps_of_modules() -> dict[str, Stamp]:
    """Return the stamps of the files of all modules that are loaded, but those of Python and ours.

    After a run this is the code that made it: a library that someone edits where it is installed
    keeps its version.
    """
    found = {}
    for module in list(sys.modules.values()):
        name = getattr(module, "__file__", None)
        if isinstance(name, str) and not _is_known(Path(name)):
            try:
                found[name] = stamp_of_module(Path(name))
            except OSError:  # a module that is no file
                continue
    return found


def stamp_of_module(path: Path) -> Stamp:
    """Return what changes when the file of a module is edited or installed anew.

    The time of its change of state is no part: installers that link files into a further
    environment set that.

    Args:
        path: the file.

    Raises:
        OSError: there is none.
    """
    found = path.stat()
    return found.st_size, found.st_mtime_ns, found.st_ino


def _is_known(path: Path) -> bool:
    standard = Path(inspect.__file__).parent
    third = any(part in ("site-packages", "dist-packages") for part in path.parts)
    if _OURS in path.parents:
        return path.relative_to(_OURS).parts[0] in _OUR_ROOMS
    return standard in path.parents and not third


def _reasons(
    oracle: PipelineOracle, options: DebugOptions, rows: Sequence[Sequence[int]] | None
) -> Iterator[str]:
    """Say why a run is not kept."""
    if options.watch_config or options.verify_capture:
        yield "it is watched or verified"
    if rows is None or oracle.takes_images:
        yield "it takes pictures"
    if options.trust_remote_code:
        yield "code of the model's repository takes part"
    method = type(oracle).create_torch_pipeline
    if not method.__module__.startswith("oracles."):
        yield f"{type(oracle).__name__} builds the model by code of its own"
    packages = editable_packages()
    if packages:
        yield f"{', '.join(packages)} is installed to be edited"
    transformers = sys.modules.get("transformers")
    source = getattr(transformers, "__file__", None)
    if source is not None and copies_folder() in Path(source).parents:
        yield "the local copy of transformers is in use"


def _files(oracle: PipelineOracle, digests: FileDigests) -> list[dict[str, str]]:
    """Return the digests of all files that the model is loaded from.

    Raises:
        NotCacheableError: they are not here yet.
    """
    found = []
    revision = oracle.config_params.get("huggingface_model_revision")
    for place in _places(oracle):
        folder = local_snapshot(place, revision=revision)
        if folder is None:
            raise NotCacheableError(f"{place} is not on this machine")
        found.append(
            {
                path.relative_to(folder).as_posix(): digests.digest(path)
                for path in files_below(folder)
            }
        )
    return found


def _places(oracle: PipelineOracle) -> list[str]:
    """Return the folders, files and Hub ids that an oracle names."""
    weights: Mapping[str, str] = getattr(oracle, "weight_path_map", {})
    named = [
        oracle.model_path,
        getattr(oracle, "torch_model_path", None),
        oracle.lora_path,
        *(path for path in weights.values() if Path(path).exists()),
    ]
    return [str(place) for place in named if place is not None]


def _our_source(digests: FileDigests) -> str:
    """Return a digest of the code of ours that makes a dump."""
    found = [
        [path.relative_to(_OURS).as_posix(), digests.digest(path)]
        for folder in _OUR_FOLDERS
        for path in sorted((_OURS / folder).rglob("*.py"))
    ]
    return hashlib.sha256(json.dumps(found).encode()).hexdigest()


def _described(value: Any) -> str:
    """Return a text for a value that JSON has not: the same in every process."""
    if isinstance(value, type) or callable(value):
        kind = value if hasattr(value, "__qualname__") else type(value)
        return f"{kind.__module__}.{kind.__qualname__}"
    if isinstance(value, (set, frozenset)):
        return str(sorted(map(str, value)))
    return f"{type(value).__qualname__} {value}"
