"""Leaves out of a repro what is nobody else's business: paths, names of people, keys."""

from __future__ import annotations

import getpass
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_REMOVED = "<removed>"
_PRIVATE_FIELDS = re.compile(
    r"^_(?!name_or_path$).*|name_or_path|auto_map|(^|_)(auth|secret|password|passwd|credentials?)(_|$)"
    r"|api_?key|access_key|(hf|auth|access|api|hub|session)_token|^(token|key|user(name)?|email)$",
    re.IGNORECASE,
)
_SECRET_VARIABLES = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|AUTH|KEY", re.IGNORECASE)
_KEYS = re.compile(r"\b(hf_|sk-|ghp_|github_pat_|AKIA)[A-Za-z0-9_-]{12,}")
# An absolute path of at least two parts; a fraction, a URL's path or `a/b` is none.
_PATHS = re.compile(
    r"file://\S+|(?<![\w.:/<>-])(~|/[\w.@+-]+)(/[\w.@+-]+)+/?|\b[A-Za-z]:\\[\w.\\ -]+|\\\\[\w.\\-]+"
)
_LEAST_SECRET = 6  # characters; shorter values are words of everyday use


def cleaned_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Copy a configuration without fields and values that tell of a machine or its owner.

    Args:
        config: JSON values.
    """
    return {
        key: _cleaned_value(value)
        for key, value in config.items()
        if not _PRIVATE_FIELDS.search(key)
    }


def _cleaned_value(value: Any) -> Any:
    if isinstance(value, Mapping):
        return cleaned_config(value)
    if isinstance(value, list | tuple):
        return [_cleaned_value(item) for item in value]
    return cleaned_text(value) if isinstance(value, str) else value


def cleaned_json(value: Any) -> Any:
    """Copy a JSON value with all of its texts cleaned, keys too; what JSON escapes stays whole.

    Args:
        value: made of dictionaries, lists, texts and numbers.
    """
    match value:
        case str():
            return cleaned_text(value)
        case Mapping():
            return {cleaned_json(key): cleaned_json(item) for key, item in value.items()}
        case list() | tuple():
            return [cleaned_json(item) for item in value]
        case _:
            return value


def cleaned_text(text: str) -> str:
    """Remove paths of this machine, the user's name, and all that looks like a key.

    Args:
        text: any.
    """
    for secret in sorted(_secrets(), key=len, reverse=True):
        text = text.replace(secret, _REMOVED)
    text = _PATHS.sub("<path>", _KEYS.sub(_REMOVED, text))
    for name in _names():
        text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", _REMOVED, text)
    return text


def _secrets() -> set[str]:
    return {
        value
        for name, value in os.environ.items()
        if _SECRET_VARIABLES.search(name) and len(value) >= _LEAST_SECRET
    }


def _names() -> set[str]:
    """Name who runs this and where; `root` and the like are words of everyday use."""
    try:
        names = {getpass.getuser()}
    except (KeyError, OSError):  # a container without such an entry
        names = set()
    names |= {Path.home().name, os.uname().nodename} if hasattr(os, "uname") else {Path.home().name}
    common = {"root", "user", "home", "localhost", "ubuntu", "admin", "runner", "nobody", "torch"}
    return {name for name in names if len(name) >= 4 and name.lower() not in common}
