"""Replaces the names of a file's model by one word, so that code of two models reads alike."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

_CONFIGURATION = "configuration_"
_BASE_CLASS = "PreTrainedModel"
_SHORTEST_PREFIX = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelNamer:
    """Knows how a file calls its model.

    Attributes:
        camel: as in class names: "Qwen2_5_VL".
        snake: as in file names: "qwen2_5_vl".
    """

    camel: frozenset[str]
    snake: frozenset[str]

    def generic(self, text: str) -> str:
        """Write a name or string with "Model" or "model" in place of the model's own name."""
        return _generic(self, text)


def read_model_namer(path: Path, statements: list[ast.stmt]) -> ModelNamer:
    """Find how a file calls its model: by its file, its configuration, and its base class.

    Args:
        path: the file; `modeling_<model>.py` tells the model.
        statements: the file's statements.
    """
    snake = {path.stem.removeprefix("modeling_")}
    camel: set[str] = set()
    for module, name in _configurations(statements):
        snake.add(module.rpartition(".")[2].removeprefix(_CONFIGURATION))
        camel |= _prefixes(name, "Config")
    classes = [node.name for node in statements if isinstance(node, ast.ClassDef)]
    for name in classes:
        camel |= _prefixes(name, _BASE_CLASS)
    camel |= set() if camel else _common_prefix(classes)
    camel |= {"".join(part.capitalize() for part in name.split("_")) for name in snake}
    snake |= {name.lower() for name in camel}
    return ModelNamer(camel=frozenset(camel), snake=frozenset(snake))


def _configurations(statements: list[ast.stmt]) -> Iterator[tuple[str, str]]:
    for node in statements:
        if isinstance(node, ast.ImportFrom) and _CONFIGURATION in (node.module or ""):
            yield from ((node.module or "", alias.name) for alias in node.names)


def _prefixes(name: str, suffix: str) -> set[str]:
    prefix = name.removesuffix(suffix)
    return {prefix} if prefix and prefix != name else set()


def _common_prefix(classes: list[str]) -> set[str]:
    """Take what all classes begin with, up to where a word ends."""
    prefix = classes[0] if len(classes) > 1 else ""
    while not all(name.startswith(prefix) for name in classes):
        prefix = prefix[:-1]
    while prefix and any(name[len(prefix) : len(prefix) + 1].islower() for name in classes):
        prefix = prefix[:-1]
    return {prefix} if len(prefix) >= _SHORTEST_PREFIX else set()


@lru_cache(maxsize=1 << 16)
def _generic(namer: ModelNamer, text: str) -> str:
    camel, snake = _patterns(namer)
    return snake.sub("model", camel.sub("Model", text))


@lru_cache(maxsize=64)
def _patterns(namer: ModelNamer) -> tuple[re.Pattern[str], re.Pattern[str]]:
    return (
        re.compile(rf"(?<![A-Za-z0-9])(?:{_either(namer.camel)})(?![a-z])"),
        re.compile(rf"(?<![A-Za-z0-9])(?:{_either(namer.snake)})(?![A-Za-z0-9])", re.IGNORECASE),
    )


def _either(names: frozenset[str]) -> str:
    longest_first = sorted(names, key=lambda name: (-len(name), name))
    return "|".join(map(re.escape, longest_first)) or "(?!)"
