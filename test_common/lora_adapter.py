"""Reads a LoRA adapter as the package peft writes it: adapter_config.json and safetensors."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from comparison.schema.errors import (
    BadInputError,
    CorruptFileError,
    MissingPathError,
    UnsupportedFormatError,
)
from test_common.error_text import shown

if TYPE_CHECKING:
    import torch

CONFIG_FILE = "adapter_config.json"
WEIGHTS_FILE = "adapter_model.safetensors"
_PREFIX = "base_model.model."
_PARTS = (".lora_A.weight", ".lora_B.weight")
# What changes the model in another way than by B A; peft's value for "not used".
_UNUSED: Mapping[str, tuple[Any, ...]] = {
    "use_dora": (None, False),
    "bias": (None, "none"),
    "modules_to_save": (None, []),
    "fan_in_fan_out": (None, False),
    "rank_pattern": (None, {}),
    "alpha_pattern": (None, {}),
    "use_rslora": (None, False),
    "lora_bias": (None, False),
}


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


def read_lora_adapter(folder: Path) -> LoraAdapter:
    """Read an adapter.

    Args:
        folder: what peft's `save_pretrained` wrote.

    Raises:
        MissingPathError: the folder or one of its two files does not exist.
        CorruptFileError: a file cannot be read, or a module lacks one of its two matrices.
        UnsupportedFormatError: it changes the model in another way than plain LoRA does.
    """
    missing = [name for name in (CONFIG_FILE, WEIGHTS_FILE) if not (folder / name).is_file()]
    if missing:
        problem = "does not exist" if not folder.is_dir() else f"has no {' and no '.join(missing)}"
        raise MissingPathError(f"LoRA adapter {folder} {problem}")
    rank, alpha = _read_config(folder / CONFIG_FILE)
    modules = dict(_pairs(_read_weights(folder / WEIGHTS_FILE), folder))
    wrong = [name for name, (a, b) in modules.items() if a.shape[0] != rank or b.shape[1] != rank]
    if wrong:
        raise CorruptFileError(f"LoRA adapter {folder}: rank of {wrong[0]} is not r={rank}")
    return LoraAdapter(folder=folder, scale=alpha / rank, modules=modules)


def _read_config(path: Path) -> tuple[int, float]:
    """Return rank and alpha."""
    try:
        config: Any = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError, RecursionError) as error:
        raise CorruptFileError(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(config, dict):
        raise CorruptFileError(f"{path} is not a JSON object")
    kind = config.get("peft_type", "LORA")
    if kind != "LORA":
        raise UnsupportedFormatError(f"{path}: peft_type is {shown(kind)}, expected 'LORA'")
    used = [name for name, unused in _UNUSED.items() if config.get(name) not in unused]
    if used:
        raise UnsupportedFormatError(
            f"{path}: {', '.join(used)} asks for more than plain LoRA; merge it with peft "
            "(merge_and_unload) and give the merged model as the pipeline"
        )
    rank, alpha = config.get("r"), config.get("lora_alpha")
    if not isinstance(rank, int) or rank < 1 or not isinstance(alpha, int | float):
        raise CorruptFileError(
            f"{path}: expected r, at least 1, and lora_alpha, found {shown(rank)} and "
            f"{shown(alpha)}"
        )
    return rank, float(alpha)


def _read_weights(path: Path) -> dict[str, torch.Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
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
