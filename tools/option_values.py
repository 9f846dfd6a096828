"""Values of options that several commands take, from the text that a user gives."""

from __future__ import annotations

import re
from typing import Any

from comparison.schema.errors import BadInputError
from comparison.store.json_text import parse_json

# More digits than any size has come to no number; the sign of the kelvin is no K.
_SIZE = re.compile(
    r"(?P<number>[0-9]{1,20}(\.[0-9]{1,20})?) ?(?P<unit>[KMGT]?)B?", re.IGNORECASE | re.ASCII
)
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


def parse_layers(text: str) -> int | str:
    """Parse `--num-hidden-layers`."""
    if text == "all":
        return text
    try:
        return int(text)
    except ValueError:
        message = f"--num-hidden-layers must be a number or 'all', got {text!r:.80}"
        raise BadInputError(message) from None


def parse_overrides(text: str | None) -> dict[str, Any]:
    """Parse `--hf-config-overrides`."""
    if text is None:
        return {}
    try:
        overrides = parse_json(text.encode("utf-8", "surrogatepass"))
    except ValueError as error:  # also numbers of thousands of digits
        raise BadInputError(f"--hf-config-overrides is not JSON: {error}: {text!r:.80}") from error
    if not isinstance(overrides, dict):
        raise BadInputError(f"--hf-config-overrides must be a JSON object, got {text!r:.80}")
    return overrides


def parse_size(option: str, text: str) -> int:
    """Parse a number of bytes: `8GB`, `500MB`, `1.5 GB`, `4096`.

    Args:
        option: name of the option, for the message.
        text: what the user gave.

    Raises:
        BadInputError: it is no size, or none at all.
    """
    match = _SIZE.fullmatch(text.strip())
    size = round(float(match["number"]) * _UNITS[match["unit"].upper()]) if match else 0
    if size < 1:
        raise BadInputError(
            f"--{option} must be a size such as 8GB, 500MB or 4096, got {text!r:.80}"
        )
    return size


def parse_limit(option: str, text: str | None) -> int | None:
    """Parse a number of bytes that may be left out; see `parse_size`."""
    return None if text is None else parse_size(option, text)
