"""Runs a model and gives its intermediate tensors as Torch tensors, for scripts and tests."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeAlias

from comparison.schema.errors import BadInputError
from comparison.schema.tensor_names import TensorName, parse_tensor_name
from test_common.debug_options import DebugOptions
from test_common.debug_run import run_debug_model
from test_common.debuggable_oracle import DebuggableOracle

if TYPE_CHECKING:
    import torch

    from comparison.numerics.dtypes import Array
    from comparison.schema.tensor_entry import TensorEntry

NamedTensors: TypeAlias = "dict[str, torch.Tensor]"
TensorPair: TypeAlias = "tuple[torch.Tensor, torch.Tensor]"

# What a module's name in a dump starts with, before its path in named_modules().
_ROOT = "model"
_LATER_STEP = re.compile(r"\d+/")


class UnknownModuleError(BadInputError, LookupError):
    """A module that a run captured nothing of."""


def load_intermediate_tensors(
    oracle: DebuggableOracle,
    framework: str,
    output_dir: Path | str,
    device_type: str = "default",
    encoding_name: str | None = None,
    *,
    pipeline: str = "",
    **options: Any,
) -> NamedTensors:
    """Run a model on an engine with hooks on every layer, and load every tensor of the dump.

    Args:
        oracle: says how to build the model.
        framework: the engine.
        output_dir: the dump folder; it stays.
        device_type: `default`, `cpu`, `gpu` or `gpu:<index>`.
        encoding_name: weights' encoding, or None for the oracle's first on that device.
        pipeline: the name of the pipeline, for the manifest.
        **options: further fields of `DebugOptions`, such as `num_steps` or `overwrite`.

    Returns:
        Name to tensor, on the CPU, in the dtype of the dump and in order of execution. Tensors of
        step 0 go by the names that the hook wrote, those of later steps by `<step>/<name>`.

    Raises:
        BadInputError: the options do not fit, or the folder is in use.
        CaptureError: the run captured nothing.
        EngineError: the engine cannot build or run the model.
    """
    folder = Path(output_dir)
    asked = DebugOptions(
        pipeline=pipeline,
        framework=framework,
        output=folder,
        device=device_type,
        encoding=encoding_name,
        **options,
    )
    run_debug_model(oracle, asked)
    return dict(_tensors_of(folder))


def get_torch_testdata(
    oracle: DebuggableOracle,
    module_name: str,
    output_dir: Path | str | None = None,
    device_type: str = "default",
    encoding_name: str | None = None,
    *,
    pipeline: str = "",
    **options: Any,
) -> TensorPair:
    """Run the Torch model, and return what went into one of its modules and what came out.

    Args:
        oracle: says how to build the model.
        module_name: as in the dump (`model.model.layers.0.mlp`) or as in `named_modules()`
            (`model.layers.0.mlp`); where both exist, the dump's name counts.
        output_dir: where the dump is to stay; None throws it away.
        device_type: `default`, `cpu`, `gpu` or `gpu:<index>`.
        encoding_name: weights' encoding, or None for the oracle's first on that device.
        pipeline: the name of the pipeline, for the manifest.
        **options: further fields of `DebugOptions`.

    Returns:
        The first tensor among the arguments and the first among the results of the module's first
        call in step 0.

    Raises:
        UnknownModuleError: there is no such module, with the nearest names; or it took or gave
            no tensor.
        BadInputError, CaptureError, EngineError: as `load_intermediate_tensors`.
    """
    with TemporaryDirectory() as temporary:
        tensors = load_intermediate_tensors(
            oracle,
            "torch",
            output_dir if output_dir is not None else Path(temporary) / "dump",
            device_type,
            encoding_name,
            pipeline=pipeline,
            **options,
        )
    return tensors_of_module(tensors, module_name)


def tensors_of_module(tensors: NamedTensors, module_name: str) -> TensorPair:
    """Pick the first input and the first output of a module's first call in step 0.

    Args:
        tensors: what `load_intermediate_tensors` returned.
        module_name: as in the dump, or as in `named_modules()`.

    Raises:
        UnknownModuleError: no such module, or no tensor on one side of it.
    """
    names = {name: parse_tensor_name(name) for name in tensors if not _LATER_STEP.match(name)}
    parsed = {name: parts for name, parts in names.items() if parts is not None}
    module = _find_module(module_name, list(dict.fromkeys(p.module for p in parsed.values())))
    first = {
        side: next((n for n, parts in parsed.items() if _is_of(parts, module, side)), None)
        for side in ("input", "output")
    }
    lost = [side for side, name in first.items() if name is None]
    if lost:
        had = [name for name, parts in parsed.items() if parts.module == module]
        raise UnknownModuleError(
            f"module {module!r} has no {' and no '.join(lost)} tensor; it has {', '.join(had)}"
        )
    return tensors[str(first["input"])], tensors[str(first["output"])]


def _is_of(parts: TensorName, module: str, side: str) -> bool:
    return parts.module == module and parts.side == side and parts.call == 1


def _find_module(name: str, modules: Sequence[str]) -> str:
    """Return the dump's name of a module."""
    for spelling in (name, f"{_ROOT}.{name}" if name else _ROOT):
        if spelling in modules:
            return spelling
    near = difflib.get_close_matches(f"{_ROOT}.{name}", modules, n=3, cutoff=0.6)
    raise UnknownModuleError(
        f"no module {name!r} was captured in step 0; "
        + (f"nearest: {', '.join(near)}" if near else f"there are {', '.join(modules[:5])}, ...")
        + "; by default one hidden layer is run (num_hidden_layers)"
    )


def _tensors_of(folder: Path) -> Iterator[tuple[str, torch.Tensor]]:
    from comparison.store.dump import open_dump

    dump = open_dump(folder)
    for entry in dump.entries:
        yield _key(entry), as_torch(dump.read(entry))


def _key(entry: TensorEntry) -> str:
    rank = "" if entry.rank is None else f"rank{entry.rank}/"
    step = f"{entry.step}/" if entry.step or rank else ""
    return f"{rank}{step}{entry.name}"


def as_torch(array: Array) -> torch.Tensor:
    """Copy an array into a Torch tensor of the same dtype.

    Args:
        array: any dtype of `comparison.numerics.dtypes`. Types that Torch has not, of 4 and 6
            bits, become float32, which holds all of their values.
    """
    import numpy as np
    import torch

    from comparison.numerics.dtypes import dtype_name, dtype_of_name

    name = dtype_name(array.dtype)
    native = dtype_of_name(name)
    dtype = getattr(torch, name, None)
    if dtype is None:
        return torch.from_numpy(array.astype(np.float32))
    if native.isbuiltin == 1:  # one of numpy's own, not of ml_dtypes
        return torch.from_numpy(np.array(array, dtype=native))
    bits = np.uint16 if native.itemsize == 2 else np.uint8
    return torch.from_numpy(np.array(array).view(bits)).view(dtype)
