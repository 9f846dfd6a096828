"""Values as strict JSON, which knows no NaN and no infinity."""

import math
from collections.abc import Mapping
from typing import Any


def strict_json_value(value: Any) -> Any:
    """Spell floats that JSON lacks as strings; leave all else as it is.

    Args:
        value: JSON values, nested to any depth.

    Returns:
        The same with "NaN", "Infinity" and "-Infinity" in place of such floats.
    """
    if isinstance(value, float) and not math.isfinite(value):
        if math.isnan(value):
            return "NaN"
        return "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {str(key): strict_json_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [strict_json_value(item) for item in value]
    return value
