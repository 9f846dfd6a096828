"""What a reader of a run must know of its LoRA adapter."""

from __future__ import annotations

import re
from pathlib import Path

from comparison.schema.errors import BadInputError
from test_common.lora_adapter import read_lora_adapter

_LAYER = re.compile(r"\.(?:layers|layer|h|blocks|block)\.(\d+)\.")
# Encoders of other modalities keep all their layers.
_OTHER_MODALITIES = ("vision", "visual", "audio", "image", "speech")


def adapter_notes(lora_path: str | Path | None, num_hidden_layers: int | None) -> tuple[str, ...]:
    """Return what a reader of a run must know of its adapter.

    Args:
        lora_path: the adapter's folder, None for no adapter.
        num_hidden_layers: how many layers are run, the first ones; None for all.
    """
    if lora_path is None:
        return ()
    try:
        adapter = read_lora_adapter(Path(lora_path))
    except BadInputError:
        return ()  # a user's own oracle may merge what is not merged here
    used = [name for name in adapter.modules if adapter.changes(name)]
    if not used:
        return (f"the LoRA adapter {lora_path} changes nothing: its products are zero",)
    if num_hidden_layers is None or any(_layer(name) < num_hidden_layers for name in used):
        return ()
    first = min(map(_layer, used))
    return (
        f"the LoRA adapter {lora_path} changes nothing in the layers run: they are the first "
        f"{num_hidden_layers}, and it begins at layer {first} (--num-hidden-layers)",
    )


def _layer(module: str) -> int:
    """Return the layer of the decoder that a module is in, -1 for one outside of them."""
    found = _LAYER.search(f".{module}.")
    if found is None or any(part in module[: found.start()] for part in _OTHER_MODALITIES):
        return -1
    return int(found[1])
