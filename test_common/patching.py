"""The one way in which a foreign library is patched.

A patch says which upstream API is missing and when it can go, and is undone on any exit. Keep the
records of one engine in one module, and name them in the manifest of what was run under them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from comparison.schema.errors import EngineError

_MISSING = object()


class PatchTargetError(EngineError, AttributeError):
    """What a patch is to replace is not there: the library changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patch:
    """One replacement in a foreign library.

    Attributes:
        target: a module, a class, an instance, or a dictionary.
        name: the attribute of the target, or the key of the dictionary.
        replacement: what to put there; with `wraps`, a function from the original to that. A
            wrapper gets classmethods and staticmethods bound, and the function that it returns
            is called without a class or instance.
        missing_api: the upstream API that would make the patch unnecessary.
        remove_when: the condition under which the patch can go.
        wraps: whether `replacement` makes the replacement from the original.
    """

    target: Any
    name: str
    replacement: Any
    missing_api: str
    remove_when: str
    wraps: bool = False

    @property
    def label(self) -> str:
        """Name of what is replaced, as it stands in a manifest."""
        if isinstance(self.target, dict):
            return f"[{self.name!r}]"
        if inspect.ismodule(self.target):
            return f"{self.target.__name__}.{self.name}"
        owner = self.target if isinstance(self.target, type) else type(self.target)
        return f"{owner.__module__}.{owner.__qualname__}.{self.name}"


@contextmanager
def patched(
    target: Any,
    name: str,
    replacement: Any,
    *,
    missing_api: str,
    remove_when: str,
) -> Iterator[Patch]:
    """Replace one attribute or dictionary item for the time of the block.

    Args:
        target: a module, a class, an instance, or a dictionary.
        name: the attribute of the target, or the key of the dictionary.
        replacement: what to put there.
        missing_api: the upstream API that would make the patch unnecessary.
        remove_when: the condition under which the patch can go.

    Yields:
        The record of the patch.

    Raises:
        PatchTargetError: the target has nothing of that name.
    """
    patch = Patch(
        target=target,
        name=name,
        replacement=replacement,
        missing_api=missing_api,
        remove_when=remove_when,
    )
    with apply_patches([patch]):
        yield patch


@contextmanager
def apply_patches(patches: Iterable[Patch]) -> Iterator[tuple[str, ...]]:
    """Apply patches in order and undo them in reverse order on any exit.

    Args:
        patches: what to replace; two patches of one attribute nest.

    Yields:
        The labels of the patches, for a manifest.

    Raises:
        PatchTargetError: a target has nothing of that name; nothing is changed then.
    """
    patches = tuple(patches)
    _require_targets(patches)
    with ExitStack() as stack:
        for patch in patches:
            # The way back is known to the stack before anything changes, so that an interrupt
            # between the two statements cannot leave the patch behind.
            stack.callback(_restorer(patch))
            _put(patch)
        yield tuple(patch.label for patch in patches)


def _require_targets(patches: Iterable[Patch]) -> None:
    """Raise one error for all patches that have nothing to replace."""
    lost = [patch for patch in patches if _current(patch) is _MISSING]
    if lost:
        lines = [
            f"{patch.label} (works around: {patch.missing_api}; can go when: {patch.remove_when})"
            for patch in lost
        ]
        raise PatchTargetError(
            "cannot patch what does not exist, the library changed or has another version: "
            + "; ".join(lines)
        )


def _current(patch: Patch) -> Any:
    """Return what is in the patch's place now, bound, or `_MISSING`."""
    if isinstance(patch.target, dict):
        return patch.target.get(patch.name, _MISSING)
    return getattr(patch.target, patch.name, _MISSING)


def _put(patch: Patch) -> None:
    """Put the replacement in its place."""
    value = patch.replacement
    if patch.wraps:
        value = patch.replacement(_current(patch))
        if isinstance(_raw(patch), staticmethod | classmethod) and inspect.isroutine(value):
            value = staticmethod(value)
    if isinstance(patch.target, dict):
        patch.target[patch.name] = value
    else:
        setattr(patch.target, patch.name, value)


def _raw(patch: Patch) -> Any:
    """Return the descriptor itself, not what it binds to."""
    return inspect.getattr_static(patch.target, patch.name, _MISSING)


def _restorer(patch: Patch) -> Callable[[], None]:
    """Build the function that puts back what is there now."""
    target, name = patch.target, patch.name
    original = _current(patch)
    if isinstance(target, dict):
        return lambda: target.__setitem__(name, original)
    if name in getattr(target, "__dict__", {}):
        raw = target.__dict__[name]
        return lambda: setattr(target, name, raw)
    raw = _raw(patch)
    described = not isinstance(target, type) and hasattr(type(raw), "__set__")
    if raw is _MISSING or described:
        # Slots, properties, and the children of a torch module, whose order deleting would change.
        return lambda: setattr(target, name, original)
    return lambda: _uncover(target, name)


def _uncover(target: Any, name: str) -> None:
    """Delete the attribute that covers an inherited one, if it came to be."""
    with suppress(AttributeError):
        delattr(target, name)
