"""Keeps tokens and passwords out of what is written: manifests, logs, messages."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from comparison.schema.manifest import Manifest

REMOVED = "<removed>"
_SECRET_VARIABLES = re.compile(
    r"(^|_)(TOKEN|SECRET|PASSWORD|PASSWD|API_?KEY|ACCESS_KEY)$", re.IGNORECASE
)
_LEAST_SECRET = 8  # characters; shorter values are words of everyday use
# Hugging Face, OpenAI and the like, GitHub, GitLab, Slack, AWS: as their documentation spells them.
_TOKENS = re.compile(
    r"\b(hf_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{16,}"
    r"|github_pat_\w{16,}|glpat-[\w-]{16,}|xox[abprs]-[\w-]{10,}|AKIA[0-9A-Z]{16})"
)
_USER_OF_ADDRESS = re.compile(r"(?i)\b([a-z][a-z0-9+.-]*://)[^/?#\s\"'<>]*@")
_PART_OF_ADDRESS = re.compile(
    r"(?i)([?&][\w.-]*(?:token|secret|password|passwd|key|sig|signature|credential|auth)=)"
    r"[^&#\s\"'<>]+"
)
_SECRET_FIELDS = re.compile(
    r"(^|_)((hf|hub|auth|access|api|session|bearer)_token|secret|password|passwd|api_?key"
    r"|access_key)$",
    re.IGNORECASE,
)


def without_tokens(text: str) -> str:
    """Return a text without tokens, without what the environment calls a secret, and passwords.

    Of a web address the user goes, and the values of a query that sign or open what lies there.
    """
    for secret in _secrets():
        text = text.replace(secret, REMOVED)
    text = _TOKENS.sub(REMOVED, text)
    text = _USER_OF_ADDRESS.sub(rf"\1{REMOVED}@", text)
    return _PART_OF_ADDRESS.sub(rf"\1{REMOVED}", text)


def values_without_tokens(value: Any) -> Any:
    """Return JSON values in which every text is `without_tokens`."""
    if isinstance(value, str):
        return without_tokens(value)
    if isinstance(value, Mapping):
        return {
            without_tokens(key) if isinstance(key, str) else key: REMOVED
            if isinstance(item, str) and isinstance(key, str) and _SECRET_FIELDS.search(key)
            else values_without_tokens(item)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [values_without_tokens(item) for item in value]
    return value


def manifest_without_tokens(manifest: Manifest) -> Manifest:
    """Return a manifest that may lie in a report: what a user gave or a model holds, cleaned."""
    return replace(
        manifest,
        model=without_tokens(manifest.model),
        pipeline=without_tokens(manifest.pipeline),
        rows=tuple(
            replace(row, prompt=None if row.prompt is None else without_tokens(row.prompt))
            for row in manifest.rows
        ),
        config=values_without_tokens(manifest.config),
        options=values_without_tokens(manifest.options),
    )


class TokenFreeFormatter(logging.Formatter):
    """Writes log records of libraries without tokens, those in their arguments included."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        return without_tokens(super().format(record))


def _secrets() -> list[str]:
    """Return the secrets of the environment, the longest first: one may be part of another."""
    found = {
        value
        for name, value in os.environ.items()
        if _SECRET_VARIABLES.search(name) and len(value) >= _LEAST_SECRET
    }
    return sorted(found, key=len, reverse=True)
