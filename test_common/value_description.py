"""What a module takes and returns, described such that it can be written as JSON."""

from __future__ import annotations

import dataclasses
import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from comparison.schema.errors import UnwritableOutputError
from test_common.error_text import describe
from test_common.safetensors_folder import LaterFile, SafetensorsFolder, reason_unstorable
from test_common.tensor_statistics import (
    evidence,
    has_usual_statistics,
    other_statistics,
    usual_statistics,
)
from test_common.tensor_text import tensor_text, torch_options
from test_common.unchanged_tensors import UnchangedTensors

if TYPE_CHECKING:
    import torch

_ADDRESS = re.compile(r"\bat 0x[0-9A-Fa-f]+")
_MASKED = "at 0xXXXXXXXX"
_MOST_DEEP = 64  # far above any model's output, far below what Python can recurse
_KEY_TYPES = (str, int, float, bool, type(None))
_PLAIN_TYPES = (type(None), bool, int, float, str)
_MOST_BITS = 2048  # of an integer as a key


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedTensor:
    """A tensor.

    Attributes:
        shape: as torch prints it.
        dtype: as torch prints it.
        value: the lines of its text, the relative path of its file, or why there is neither; or
            a file that is written when it is known to be wanted.
        statistics: texts of mean, std, min and max, those that it has.
    """

    shape: str
    dtype: str
    value: list[str] | str | LaterFile
    statistics: Mapping[str, str]


# A tensor, the text of another value, or a container of such.
Described = DescribedTensor | str | list["Described"] | dict[Any, "Described"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueDescriber:
    """Describes values at once, since what runs next may change them.

    Attributes:
        files: where a file is written for each tensor; None to have its text.
        every_dtype: whether dtypes other than float32, float16 and bfloat16 have statistics.
        structure: whether named tuples, dataclasses, deques and all mappings are described by
            field, instead of as a list or by their text.
        taken: names of the files so far, where none may be replaced: `{1: x, "1": y}` has two of
            one name.
    """

    files: SafetensorsFolder | None
    every_dtype: bool = False
    structure: bool = False
    taken: set[str] | None = None
    _known: UnchangedTensors[DescribedTensor] = field(default_factory=UnchangedTensors)
    _open: set[int] = field(default_factory=set)  # containers on the way down

    def describe(self, value: Any, name: str, *, later: bool = False, depth: int = 0) -> Described:
        """Describe a value.

        Args:
            value: anything.
            name: of its file; what lies in a container adds `_{index}` or `_{key}`.
            later: whether it may turn out not to be wanted, so that no file is written yet.
            depth: of the containers around it.

        Raises:
            UnwritableOutputError: a file cannot be written.
        """
        tensor = _local_tensor(value)
        if tensor is not None:
            return self._any_tensor(tensor, name, later=later)
        inside = self._inside(value, depth)
        if inside is None:
            return value_text(value)
        self._open.add(id(value))
        try:
            described = [
                (key, self.describe(child, f"{name}_{text}", later=later, depth=depth + 1))
                for key, text, child in inside
            ]
        finally:
            self._open.discard(id(value))
        return [child for _, child in described] if self._is_sequence(value) else dict(described)

    def _inside(self, value: Any, depth: int) -> list[tuple[Any, str, Any]] | None:
        """List key, text of the key, and value of all that a container holds; None for others.

        A container within itself is none: it would never end.
        """
        if isinstance(value, _PLAIN_TYPES) or depth >= _MOST_DEEP or id(value) in self._open:
            return None
        # A container of the model's own may raise anything when it is looked into.
        with suppress(Exception):
            fields = self._fields(value)
            if fields is not None:
                return _with_keys(fields)
            if self._is_sequence(value):
                return [(index, str(index), child) for index, child in enumerate(value)]
        return None

    def _is_sequence(self, value: Any) -> bool:
        if isinstance(value, list | tuple):
            return not (self.structure and hasattr(value, "_fields"))
        return self.structure and isinstance(value, deque)

    def _fields(self, value: Any) -> Iterable[tuple[Any, Any]] | None:
        """List the fields of what is described by field, None for anything else."""
        if isinstance(value, dict):  # model outputs too; theirs leave out what is None
            return value.items()
        if not self.structure or isinstance(value, type):
            return None
        if isinstance(value, Mapping):
            return value.items()
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return zip(value._fields, value, strict=True)
        if dataclasses.is_dataclass(value):
            names = [field.name for field in dataclasses.fields(value)]
            return [(name, getattr(value, name)) for name in names if hasattr(value, name)]
        return None

    def _any_tensor(self, tensor: torch.Tensor, name: str, *, later: bool) -> DescribedTensor:
        """Describe a tensor, of one that is like no other as much as can be told."""
        try:
            return self._describe_tensor(tensor, name, later=later)
        except (UnwritableOutputError, MemoryError):
            raise
        # Nested tensors have no shape, subclasses may raise anything: the run is not to end for it.
        except Exception as error:
            reason = f"not saved: {describe(error)}"
            text = _guarded(lambda: tensor_text(tensor)).splitlines()
            return _described(tensor, text if self.files is None else reason, {})

    def _describe_tensor(self, tensor: torch.Tensor, name: str, *, later: bool) -> DescribedTensor:
        if not has_usual_statistics(tensor):
            numbers = other_statistics(tensor, every_dtype=self.every_dtype)
            return _described(tensor, self._value(tensor, name, later=later), numbers)
        found = evidence(tensor)
        known = self._known.get(tensor, found)
        if known is not None:
            return replace(known, value=self._value(tensor, name, later=later, known=known.value))
        value = self._value(tensor, name, later=later)
        described = _described(tensor, value, usual_statistics(tensor, found[0]))
        self._known.put(tensor, found, described)
        return described

    def _value(
        self,
        tensor: torch.Tensor,
        name: str,
        *,
        later: bool,
        known: list[str] | str | LaterFile | None = None,
    ) -> list[str] | str | LaterFile:
        """Return the text or file of a tensor, of which one may be known already."""
        if self.files is None:
            if known is not None:
                return known
            return _guarded(lambda: tensor_text(tensor)).splitlines()
        reason = reason_unstorable(tensor)
        if reason is not None:
            return f"not saved: {reason}"
        name = self._free_name(name)
        if later:
            same = known.under(name) if isinstance(known, LaterFile) else None
            return same or LaterFile(self.files, name, tensor)
        if isinstance(known, str):
            return self.files.repeat(known, name, tensor)
        return self.files.save(name, tensor)

    def _free_name(self, name: str) -> str:
        if self.taken is None:
            return name
        unique, number = name, 2
        while unique in self.taken:
            unique = f"{name}~{number}"
            number += 1
        self.taken.add(unique)
        return unique


def _described(
    tensor: torch.Tensor, value: list[str] | str | LaterFile, statistics: Mapping[str, str]
) -> DescribedTensor:
    return DescribedTensor(
        shape=_guarded(lambda: repr(tensor.shape)),
        dtype=_guarded(lambda: repr(tensor.dtype)),
        value=value,
        statistics=statistics,
    )


def _with_keys(fields: Iterable[tuple[Any, Any]]) -> list[tuple[Any, str, Any]]:
    """Make keys that JSON takes, with the text that each adds to a file's name.

    Keys of other kinds are written as their text; of equal texts the later ones have a number.
    """
    found: dict[Any, tuple[Any, str, Any]] = {}
    for key, child in fields:
        fits = isinstance(key, _KEY_TYPES) and not _is_long(key)
        written = unique = key if fits else value_text(key)
        number = 2
        while unique in found:
            unique = f"{written}~{number}"
            number += 1
        found[unique] = (unique, _guarded(partial(str, key)), child)
    return list(found.values())


def _is_long(key: Any) -> bool:
    """Tell integers that Python refuses to write."""
    return isinstance(key, int) and key.bit_length() > _MOST_BITS


def value_text(value: Any) -> str:
    """Return the text of any value, without its address, which is different in every run."""
    if isinstance(value, _PLAIN_TYPES):
        return _guarded(lambda: repr(value))
    with torch_options():  # there may be tensors in it
        return _ADDRESS.sub(_MASKED, _guarded(lambda: repr(value)))


def _guarded(text: Callable[[], str]) -> str:
    """Return a text, or why there is none: the model's run is not to end for it."""
    try:
        return text()
    # What a model passes around may raise anything when it is printed.
    except Exception as error:
        return f"<cannot be shown: {describe(error)}>"


def _local_tensor(value: Any) -> torch.Tensor | None:
    """Return a tensor, of a distributed one what this rank holds; None for what is none."""
    import torch

    local = getattr(value, "_local_tensor", None) if isinstance(value, torch.Tensor) else None
    if isinstance(local, torch.Tensor):
        return local
    return value if isinstance(value, torch.Tensor) else None
