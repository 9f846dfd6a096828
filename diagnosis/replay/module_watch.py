"""Watches every call of every module of a model, and may put other values in their place.

Names are those that the print hook of Torch gives, so that they can be held against a dump.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from test_common.tensor_tree import input_tensors, output_tensors

if TYPE_CHECKING:
    import torch

_ROOT = "model"
_NUMBERED = re.compile(r"(?P<path>.*)\((?P<number>[0-9]+)\)", re.DOTALL)


class Observer(Protocol):
    """Is shown every tensor that goes into or comes out of a module, in order of execution."""

    def see(self, name: str, tensor: torch.Tensor, *, owner: str, caller: str) -> torch.Tensor:
        """Look at a tensor and return what the model is to go on with.

        Args:
            name: the tensor's full name.
            tensor: as the model computed it.
            owner: the call whose code computed it: the module's own for an output, the caller's
                for an input.
            caller: the call whose code goes on with an output, or made an input.
        """


@contextmanager
def watched(model: torch.nn.Module, observer: Observer) -> Iterator[None]:
    """Show an observer all tensors of the calls within the block.

    Args:
        model: its hooks are removed at the end of the block.
        observer: sees inputs before a module runs and outputs right after it.
    """
    watch = _Watch(observer)
    handles = [handle for path, module in _modules(model) for handle in watch.attach(module, path)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _modules(model: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module]]:
    for path, module in model.named_modules():
        yield f"{_ROOT}.{path}" if path else _ROOT, module


class _Watch:
    """The calls that run, and how often each module was called in the current run."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._stack: list[str] = []
        self._calls: Counter[str] = Counter()

    def attach(self, module: torch.nn.Module, path: str) -> Iterator[Any]:
        """Attach to one module."""

        def before(_: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            return self._before(path, args, kwargs)

        def after(_: Any, args: tuple[Any, ...], kwargs: Any, output: Any) -> Any:
            del args, kwargs
            return self._after(output)

        yield module.register_forward_pre_hook(before, with_kwargs=True)
        yield module.register_forward_hook(after, with_kwargs=True)

    def _before(
        self, path: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        if not self._stack:
            self._calls.clear()
        self._calls[path] += 1
        count = self._calls[path]
        call = path if count == 1 else f"{path}({count})"
        owner = self._stack[-1] if self._stack else call
        tree = input_tensors(args, kwargs, is_tensor=_is_tensor)
        replaced = self._look(call, tree.tensors, owner, owner)
        self._stack.append(call)
        if not replaced:
            return None
        return _replace(args, replaced), _replace(kwargs, replaced)

    def _after(self, output: Any) -> Any:
        call = self._stack.pop()
        tree = output_tensors(output, is_tensor=_is_tensor)
        caller = self._stack[-1] if self._stack else call
        replaced = self._look(call, tree.tensors, call, caller)
        return _replace(output, replaced) if replaced else None

    def _look(
        self, call: str, tensors: list[tuple[str, Any]], owner: str, caller: str
    ) -> dict[int, Any]:
        replaced = {}
        for suffix, tensor in tensors:
            new = self._observer.see(f"{call}-{suffix}", tensor, owner=owner, caller=caller)
            if new is not tensor:
                replaced[id(tensor)] = new
        return replaced


def module_of(call: str) -> str:
    """Return the module's path of a call's name, `model.act(2)` to `model.act`."""
    numbered = _NUMBERED.fullmatch(call)
    return call if numbered is None else numbered["path"]


def number_of(call: str) -> int:
    """Return which of its module's calls in a step a name is, 2 of `model.act(2)`."""
    numbered = _NUMBERED.fullmatch(call)
    return 1 if numbered is None else int(numbered["number"])


def _is_tensor(value: Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor)


def _replace(value: Any, replaced: Mapping[int, Any]) -> Any:
    """Copy a nested value with other tensors in place of some."""
    if _is_tensor(value):
        return replaced.get(id(value), value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_replace(item, replaced) for item in value))
    if isinstance(value, list | tuple):
        return type(value)(_replace(item, replaced) for item in value)
    if isinstance(value, dict):  # model outputs too
        for key, item in value.items():
            new = _replace(item, replaced)
            if new is not item:
                value[key] = new
    return value
