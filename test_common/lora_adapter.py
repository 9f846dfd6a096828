"""Reads a LoRA adapter as the package peft writes it: adapter_config.json and safetensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from comparison.schema.errors import (
    BadInputError,
    CorruptFileError,
    MissingPathError,
    UnsupportedFormatError,
)
from test_common.error_text import shown
from test_common.lora_config import read_lora_config

if TYPE_CHECKING:
    import torch

CONFIG_FILE = "adapter_config.json"
WEIGHTS_FILE = "adapter_model.safetensors"
_PREFIX = "base_model.model."
_PARTS = (".lora_A.weight", ".lora_B.weight")
# Of any other dtype a number alone does not tell a weight: a scale belongs to it.
FLOATS = ("float32", "bfloat16", "float16", "float64")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoraAdapter:
    """What an adapter adds: `scale * B A` to the weight of each of its modules.

    Attributes:
        folder: where it lies.
        scale: `lora_alpha / r` (Hu et al. 2021, section 4.1).
        modules: name of each module in the base model, to A [R, I] and B [O, R].
    """

    folder: Path
    scale: float
    modules: Mapping[str, tuple[torch.Tensor, torch.Tensor]]

    def delta(self, module: str) -> torch.Tensor:
        """Return what is added to a module's weight, float32 [O, I]."""
        a, b = self.modules[module]
        return self.scale * (b.float() @ a.float())

    def changes(self, module: str) -> bool:
        """Tell whether it may change a module: a product with a factor of zeros does not."""
        return self.scale != 0 and all(bool(matrix.any()) for matrix in self.modules[module])


def read_lora_adapter(folder: Path) -> LoraAdapter:
    """Read an adapter.

    Args:
        folder: what peft's `save_pretrained` wrote.

    Raises:
        MissingPathError: the folder or one of its two files does not exist.
        CorruptFileError: a file cannot be read, a module lacks one of its two matrices, or a matrix
            is of another rank or holds what is no finite number.
        UnsupportedFormatError: it changes the model in another way than plain LoRA does, or its
            matrices are of another dtype than a plain float.
    """
    _refuse_other_than_folder(folder)
    rank, alpha = read_lora_config(folder / CONFIG_FILE)
    modules = dict(_pairs(_read_weights(folder / WEIGHTS_FILE), folder))
    for name, pair in modules.items():
        _check_pair(folder, name, pair, rank)
    return LoraAdapter(folder=folder, scale=alpha / rank, modules=modules)


def _refuse_other_than_folder(folder: Path) -> None:
    if not folder.is_dir():
        problem = "exists, but it is a file" if folder.exists() else "does not exist"
        raise MissingPathError(
            f"LoRA adapter {folder} {problem}: expected a local folder with {CONFIG_FILE} and "
            f"{WEIGHTS_FILE}"
        )
    missing = [name for name in (CONFIG_FILE, WEIGHTS_FILE) if not (folder / name).is_file()]
    if missing:
        raise MissingPathError(f"LoRA adapter {folder} has no {' and no '.join(missing)}")


def _read_weights(path: Path) -> dict[str, torch.Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    # KeyError is of a dtype that Torch lacks.
    except (SafetensorError, OSError, KeyError) as error:
        raise CorruptFileError(f"{path} cannot be read as safetensors: {error}") from error


def _pairs(
    weights: Mapping[str, torch.Tensor], folder: Path
) -> Iterator[tuple[str, tuple[torch.Tensor, torch.Tensor]]]:
    """Yield each module with its A and B."""
    stems = {key.removesuffix(part) for key in weights for part in _PARTS if key.endswith(part)}
    strange = [key for key in weights if not key.endswith(_PARTS)]
    strange += [
        stem
        for stem in stems
        if not stem.startswith(_PREFIX) or any(stem + part not in weights for part in _PARTS)
    ]
    if strange or not stems:
        what = f"{shown(sorted(strange)[0])} is no" if strange else "it has no"
        raise CorruptFileError(
            f"LoRA adapter {folder}: {what} pair {_PREFIX}<module>.lora_A.weight, .lora_B.weight"
        )
    for stem in sorted(stems):
        yield stem.removeprefix(_PREFIX), (weights[stem + _PARTS[0]], weights[stem + _PARTS[1]])


def _check_pair(
    folder: Path, module: str, pair: tuple[torch.Tensor, torch.Tensor], rank: int
) -> None:
    for name, matrix, axis in zip(("lora_A", "lora_B"), pair, (0, 1), strict=True):
        where = f"LoRA adapter {folder}: {name} of {module}"
        dtype = str(matrix.dtype).removeprefix("torch.")
        if dtype not in FLOATS:
            raise UnsupportedFormatError(f"{where} is {dtype}, expected {', '.join(FLOATS)}")
        if matrix.ndim != 2:
            raise CorruptFileError(f"{where} has the shape {list(matrix.shape)}, expected a matrix")
        if matrix.shape[axis] != rank:
            raise CorruptFileError(
                f"{where} is {list(matrix.shape)}: its rank is not r={shown(rank)}"
            )
        if not bool(matrix.isfinite().all()):
            raise CorruptFileError(f"{where} holds NaN or infinity")


def check_modules(adapter: LoraAdapter, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Hold an adapter against the model that it is for.

    Args:
        adapter: the adapter.
        shapes: name of each weight of the model to its shape.

    Raises:
        BadInputError: a module of the adapter is not in the model, or has another shape.
    """
    problems = []
    for module, (a, b) in adapter.modules.items():
        shape = shapes.get(f"{module}.weight")
        wanted = (b.shape[0], a.shape[1])
        if shape is None:
            problems.append(f"the model has no {module}")
        elif tuple(shape) != wanted:
            problems.append(f"{module} is {list(shape)}, the adapter's product is {list(wanted)}")
    if problems:
        more = f", and {len(problems) - 1} more" if len(problems) > 1 else ""
        raise BadInputError(
            f"LoRA adapter {adapter.folder} does not fit the model: {problems[0]}{more}"
        )
