"""Other values for fields of a configuration, to see what a field does."""

from __future__ import annotations

from typing import Any

_OTHER_ACTIVATIONS = {"silu": "gelu", "gelu": "silu"}
_BY_DEFAULT = "relu"


def other_value(value: Any) -> Any:
    """Return another value of the same kind; None where none is sure to be a meaningful one."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return 2 * value or 1
    if isinstance(value, float):
        return 1.5 * value or 0.5
    if isinstance(value, str):
        return _other_activation(value)
    return None


def _other_activation(name: str) -> str | None:
    from transformers.activations import ACT2FN

    return _OTHER_ACTIVATIONS.get(name, _BY_DEFAULT) if name in ACT2FN else None
