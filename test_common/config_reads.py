"""Which fields of a Hugging Face configuration a model's code reads, watched as they are read.

Engines other than Torch read the same configuration objects of transformers, so that one watch
serves them all. What transformers reads of a configuration by itself, to check, copy or print it,
is told from the model's code by the module of the caller, and does not count.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from test_common.patching import Patch, apply_patches

_READERS_KEPT = 3  # modules that read a field, a field
# Modules that handle configurations of any model; whatever they read says nothing of this one.
_MACHINERY = (
    "accelerate.",
    "collections",
    "comparison.",
    "copy",
    "dataclasses",
    "diagnosis.",
    "functools",
    "huggingface_hub.",
    "inspect",
    "oracles.",
    "pydantic.",
    "test_common.",
    "transformers.configuration_utils",
    "transformers.dynamic_module_utils",
    "transformers.generation.configuration_utils",
    "transformers.models.auto.",
    "transformers.tokenization",
    "transformers.utils.",
    "typing",
)


class ConfigReads:
    """Fields that were read so far."""

    def __init__(self) -> None:
        """Begin with none."""
        self._configs: dict[int, Any] = {}  # kept alive, so that an id stays its own
        self._readers: dict[tuple[int, str], dict[str, None]] = {}

    def note(self, config: Any, field: str, reader: str) -> None:
        """Note one read.

        Args:
            config: the configuration.
            field: the attribute.
            reader: name of the module whose code reads it.
        """
        self._configs.setdefault(id(config), config)
        readers = self._readers.setdefault((id(config), field), {})
        if len(readers) < _READERS_KEPT:
            readers.setdefault(reader)

    def fields(self) -> dict[str, list[str]]:
        """Return the fields of all configurations, with the modules that read them.

        A field of a configuration inside another one is `text_config.hidden_size`. Methods and
        what no configuration has as a field are left out.
        """
        found: dict[str, dict[str, None]] = {}
        for (identity, field), readers in self._readers.items():
            config = self._configs[identity]
            if field in vars(config):
                found.setdefault(self._path(config) + field, {}).update(readers)
        return {field: list(found[field])[:_READERS_KEPT] for field in sorted(found)}

    def _path(self, config: Any) -> str:
        """Name where a configuration lies in another, by identity or else by class."""
        for holder in self._configs.values():
            for name, inner in _inner(holder).items():
                if inner is config or (type(inner) is type(config) and config is not holder):
                    return f"{self._path(holder)}{name}." if holder is not config else ""
        return ""


@contextmanager
def watched_config_reads() -> Iterator[ConfigReads]:
    """Watch every configuration of transformers for the time of the block."""
    from transformers import PretrainedConfig

    reads = ConfigReads()
    patch = Patch(
        target=PretrainedConfig,
        name="__getattribute__",
        replacement=lambda original: _watching(original, reads),
        wraps=True,
        missing_api="telling which fields of a configuration a model's code reads",
        remove_when="transformers or the engines tell it",
    )
    with apply_patches([patch]):
        yield reads


def _watching(original: Callable[[Any, str], Any], reads: ConfigReads) -> Callable[..., Any]:
    def get(self: Any, name: str) -> Any:
        value = original(self, name)
        if not name.startswith("_"):
            caller = sys._getframe(1)
            reader = caller.f_globals.get("__name__", "")
            by_itself = caller.f_locals.get("self") is self  # a method that it inherits
            if not by_itself and not is_machinery(reader):
                alias: Mapping[str, str] = original(self, "attribute_map")
                reads.note(self, alias.get(name, name), reader)
        return value

    return get


def is_machinery(module: str) -> bool:
    """Tell code that handles configurations of any model from that of one model or engine."""
    last = module.rpartition(".")[2]
    return last.startswith("configuration_") or module.startswith(_MACHINERY) or not module


def _inner(config: Any) -> dict[str, Any]:
    names = getattr(type(config), "sub_configs", None) or {}
    held = vars(config)
    return {name: held[name] for name in names if hasattr(held.get(name), "to_dict")}
