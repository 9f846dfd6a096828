"""The tensors in what a module takes and returns, each with the suffix of its name."""

from __future__ import annotations

import dataclasses
import enum
import inspect
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

# Values that carry no tensor, and are no loss: skipped without a word.
_PLAIN_TYPES = (type(None), bool, int, float, complex, str, bytes, enum.Enum, range, slice, type)
_MOST_DEEP = 64  # far above any model's output, far below what Python can recurse
_PLAIN_TORCH_TYPES = frozenset({"dtype", "device", "layout", "memory_format", "Generator"})


@dataclass(slots=True)
class TensorTree:
    """The leaves of one nested value.

    Attributes:
        tensors: suffix (`output_logits`, `input_0_1`) and tensor, in order, suffixes unique.
        opaque: suffix and reason, for objects that may hold tensors but cannot be looked into.
    """

    tensors: list[tuple[str, Any]] = field(default_factory=list)
    opaque: list[tuple[str, str]] = field(default_factory=list)


def input_tensors(
    args: Sequence[Any], kwargs: Mapping[str, Any], *, is_tensor: Callable[[Any], bool]
) -> TensorTree:
    """Find the tensors among the arguments of a call.

    Args:
        args: positional arguments; named `input_<i>`.
        kwargs: keyword arguments; named `input_<keyword>`.
        is_tensor: tells a tensor of the engine.

    Returns:
        The tensors; those inside of containers have a longer suffix, `input_mask_0`.
    """
    walk = _Walk(is_tensor)
    for index, value in enumerate(args):
        walk.visit(f"input_{index}", value)
    for keyword, value in kwargs.items():
        walk.visit(f"input_{keyword}", value)
    return walk.tree


def output_tensors(value: Any, *, is_tensor: Callable[[Any], bool]) -> TensorTree:
    """Find the tensors in what a call returned.

    Args:
        value: a tensor, or a tuple, list, mapping, dataclass or model output of any depth.
        is_tensor: tells a tensor of the engine.

    Returns:
        The tensors: `output`, `output_<i>`, `output_<field>`, `output_0_1`.
    """
    walk = _Walk(is_tensor)
    walk.visit("output", value)
    return walk.tree


class _Walk:
    """One walk through a nested value."""

    def __init__(self, is_tensor: Callable[[Any], bool]) -> None:
        self.tree = TensorTree()
        self._is_tensor = is_tensor
        self._suffixes: set[str] = set()
        self._open: set[int] = set()  # containers on the way down: a cycle comes back to one

    def visit(self, suffix: str, value: Any) -> None:
        """Add the tensors of one value."""
        try:
            self._visit(suffix, value)
        # A container of the model's own may raise anything when it is looked into.
        except Exception as error:
            kind, reason = type(value).__name__, type(error).__name__
            self.tree.opaque.append((suffix, f"{kind} cannot be looked into: {reason}"))

    def _visit(self, suffix: str, value: Any) -> None:
        if self._is_tensor(value):
            self.tree.tensors.append((self._unique(suffix), value))
        elif not _is_plain(value) and id(value) not in self._open:
            children = _children(value)
            if children is None:
                reason = f"{type(value).__name__} is neither a tensor nor a container of tensors"
                self.tree.opaque.append((suffix, reason))
                return
            if len(self._open) >= _MOST_DEEP:
                reason = f"{type(value).__name__} lies more than {_MOST_DEEP} containers deep"
                self.tree.opaque.append((suffix, reason))
                return
            self._open.add(id(value))
            try:
                for key, child in children:
                    self.visit(f"{suffix}_{key}", child)
            finally:
                self._open.discard(id(value))

    def _unique(self, suffix: str) -> str:
        """Tell apart `{"0_1": x}` and `[[_, x]]`, or the keys 0 and "0"."""
        unique, number = suffix, 2
        while unique in self._suffixes:
            unique = f"{suffix}~{number}"
            number += 1
        self._suffixes.add(unique)
        return unique


def _children(value: Any) -> Iterator[tuple[Any, Any]] | None:
    """Return the key and value of each child, or None for what cannot be looked into."""
    if isinstance(value, Mapping):  # model outputs too: their mapping leaves out what is None
        return iter(value.items())
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return zip(value._fields, value, strict=True)
    if isinstance(value, list | tuple | deque):
        return enumerate(value)
    if dataclasses.is_dataclass(value):
        fields = dataclasses.fields(value)
        return ((f.name, getattr(value, f.name)) for f in fields if hasattr(value, f.name))
    return None


def _is_plain(value: Any) -> bool:
    """Tell values that hold no tensor."""
    if isinstance(value, _PLAIN_TYPES) or inspect.isroutine(value):
        return True
    kind = type(value)
    return kind.__module__ == "torch" and kind.__name__ in _PLAIN_TORCH_TYPES
