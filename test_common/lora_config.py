"""Reads adapter_config.json of the package peft, and refuses what is more than plain LoRA."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from comparison.schema.errors import CorruptFileError, UnsupportedFormatError
from test_common.config_file import read_config_object
from test_common.error_text import shown

# They tell how the adapter was trained or where it goes, and change nothing of what it adds.
_ANY_VALUE = frozenset(
    {
        "auto_mapping",
        "base_model_name_or_path",
        "exclude_modules",
        "inference_mode",
        "layers_pattern",
        "layers_to_transform",
        "lora_alpha",  # read, and checked there
        "lora_dropout",
        "megatron_core",  # counts with megatron_config only
        "peft_type",  # read, and checked there
        "peft_version",
        "qalora_group_size",  # counts with use_qalora only
        "r",  # read, and checked there
        "revision",
        "target_modules",
        "task_type",
    }
)
_UNUSED: tuple[Any, ...] = (None, False, [], {})
# Every other key, known or not, may change the model in another way than by B A.
_PLAIN: Mapping[str, tuple[Any, ...]] = {
    "bias": (None, "none"),
    # Others (pissa, olora, loftq, corda, ...) change the model's own weights too.
    "init_lora_weights": (None, True, False, "gaussian", "orthogonal"),
}


def read_lora_config(path: Path) -> tuple[int, float]:
    """Return an adapter's rank and alpha.

    Args:
        path: its adapter_config.json.

    Raises:
        CorruptFileError: it cannot be read, or rank or alpha is none.
        UnsupportedFormatError: it changes the model in another way than plain LoRA does, or may.
    """
    config = read_config_object(path)
    kind = config.get("peft_type", "LORA")
    if kind != "LORA":
        raise UnsupportedFormatError(f"{path}: peft_type is {shown(kind)}, expected 'LORA'")
    used = [
        f"{name[:40]}={shown(value)}"
        for name, value in config.items()
        if name not in _ANY_VALUE and value not in _PLAIN.get(name, _UNUSED)
    ]
    if used:
        raise UnsupportedFormatError(
            f"{path}: {', '.join(used)} asks for more than plain LoRA, or is not known here; merge "
            "it with peft (merge_and_unload) and give the merged model as the pipeline"
        )
    rank, alpha = config.get("r"), _finite(config.get("lora_alpha"))
    if isinstance(rank, bool) or not isinstance(rank, int) or rank < 1 or alpha is None:
        raise CorruptFileError(
            f"{path}: expected a whole number r, at least 1, and a finite number lora_alpha, found "
            f"{shown(rank)} and {shown(config.get('lora_alpha'))}"
        )
    return rank, alpha


def _finite(value: Any) -> float | None:
    """Return a finite number as a float, None of anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
