"""Values of options that several commands take, from the text that a user gives."""

from __future__ import annotations

import json
from typing import Any

from comparison.schema.errors import BadInputError


def parse_layers(text: str) -> int | str:
    """Parse `--num-hidden-layers`."""
    if text == "all":
        return text
    try:
        return int(text)
    except ValueError:
        message = f"--num-hidden-layers must be a number or 'all', got {text!r}"
        raise BadInputError(message) from None


def parse_overrides(text: str | None) -> dict[str, Any]:
    """Parse `--hf-config-overrides`."""
    if text is None:
        return {}
    try:
        overrides = json.loads(text)
    except (ValueError, RecursionError) as error:  # also numbers of thousands of digits
        raise BadInputError(f"--hf-config-overrides is not JSON: {error}: {text!r:.80}") from error
    if not isinstance(overrides, dict):
        raise BadInputError(f"--hf-config-overrides must be a JSON object, got {text!r:.80}")
    return overrides
