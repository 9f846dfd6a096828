"""Records one call of the guilty module: what it was given, and what each part of it gave.

The reference runs once, with the candidate's values in place, and hooks beside those of the replay
note them by their place in a call, so that a script can put them there again without these tools.

Legend: a leaf is a tensor within nested arguments or outputs, numbered in order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from diagnosis.check import Check
from diagnosis.checks import Checker
from diagnosis.replay.float64_mode import LongestSum, float64_throughout
from diagnosis.replay.module_watch import module_of, number_of, watched
from diagnosis.replay.pinned_replay import Pinning

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class LeafPlace:
    """Where a tensor lies within a call of the guilty module.

    Attributes:
        path: of the part, from the guilty module; empty for that itself.
        call: number of the call of the part, from 1.
        side: `input` or `output`.
        leaf: number of the tensor.
    """

    path: str
    call: int
    side: str
    leaf: int


@dataclass(slots=True, kw_only=True)
class Recording:
    """One call of the guilty module, to the tensor that is judged.

    Attributes:
        args: positional arguments, in float64.
        kwargs: keyword arguments.
        judged: where the guilty tensor lies; None where it was not seen.
        value: what the reference computes there, in float64.
        outputs: what each call of each part gave, where all of it is the candidate's; by path.
        pins: values of the candidate that are put in place elsewhere.
        entered: paths of the parts that ran.
    """

    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    judged: LeafPlace | None = None
    value: torch.Tensor | None = None
    outputs: dict[str, list[Any]] = field(default_factory=dict)
    pins: list[tuple[LeafPlace, torch.Tensor]] = field(default_factory=list)
    entered: list[str] = field(default_factory=list)


def record(checker: Checker, check: Check, row: int) -> Recording:
    """Run one row and record the call of the module that is to blame.

    Args:
        checker: holds the reference in float64, and the candidate's values.
        check: the guilty tensor.
        row: number of the row.
    """
    noting = _Noting(checker.pinning(row, frozenset()), check.name)
    recorder = _Recorder(check.owner, noting)
    module = checker.submodule(module_of(check.owner))
    with (
        float64_throughout(LongestSum()),
        watched(checker.wide_model, noting),
        recorder.attached(module),
    ):
        checker.wide_calls[row].run(checker.wide_model)
    return recorder.recording


class _Noting:
    """Lets the replay put values in place, and notes which tensors these are."""

    def __init__(self, pinning: Pinning, judged: str) -> None:
        self._pinning, self._judged = pinning, judged
        self.fresh: list[tuple[torch.Tensor, bool]] = []  # since a hook looked: and if unlike
        self.judged: tuple[torch.Tensor, torch.Tensor] | None = None  # in place, and computed
        self._seen = False

    def see(self, name: str, tensor: torch.Tensor, *, owner: str, caller: str) -> torch.Tensor:
        import torch

        before = tensor.clone()
        result = self._pinning.see(name, tensor, owner=owner, caller=caller)
        if name == self._judged and not self._seen:
            self._seen, self.judged = True, (result, before)
        if self._pinning.holds(name):
            self.fresh.append((result, not torch.equal(before, result)))
        return result

    def take_fresh(self) -> list[tuple[torch.Tensor, bool]]:
        fresh, self.fresh = self.fresh, []
        return fresh


class _Recorder:
    """Hooks of the guilty module and its parts, called right behind those of the replay."""

    def __init__(self, owner: str, noting: _Noting) -> None:
        self.recording = Recording()
        self._noting = noting
        self._number = number_of(owner)
        self._seen, self._active = 0, False
        self._calls: Counter[str] = Counter()

    @contextmanager
    def attached(self, module: Any) -> Iterator[None]:
        handles = [
            handle for path, part in module.named_modules() for handle in self._attach(part, path)
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _attach(self, part: Any, path: str) -> Iterator[Any]:
        def before(_: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            self._before(path, args, kwargs)

        def after(_: Any, args: Any, output: Any) -> None:
            del args
            self._after(path, output)

        yield part.register_forward_pre_hook(before, with_kwargs=True)
        yield part.register_forward_hook(after)

    def _before(self, path: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not path:
            self._seen += 1
            self._active = self._seen == self._number
            if self._active:
                self.recording.args, self.recording.kwargs = copied(args), copied(dict(kwargs))
        if not self._active:
            self._noting.take_fresh()
            return
        self._calls[path] += 1
        self._look(path, "input", tensor_leaves((args, kwargs)), pin=bool(path))
        if self._active:
            self.recording.entered.append(path)

    def _after(self, path: str, output: Any) -> None:
        if not self._active:
            self._noting.take_fresh()
            return
        leaves = tensor_leaves(output)
        fresh = [tensor for tensor, _ in self._noting.fresh]
        known = [any(leaf is tensor for tensor in fresh) for leaf in leaves]
        whole = bool(path and leaves) and self._is_known(path, known)
        self._look(path, "output", leaves, pin=not whole)
        if self._active and whole:
            self.recording.outputs.setdefault(path, []).append(copied(output))
        if not path:
            self._active = False

    @staticmethod
    def _is_known(path: str, known: list[bool]) -> bool:
        """Tell whether all that is of use is the candidate's; weights of attention are of none."""
        return all(known) or (known[0] and "attn" in path.rpartition(".")[2].lower())

    def _look(self, path: str, side: str, leaves: list[Any], *, pin: bool) -> None:
        fresh, judged = self._noting.take_fresh(), self._noting.judged
        for number, leaf in enumerate(leaves):
            place = LeafPlace(path=path, call=self._calls[path], side=side, leaf=number)
            if judged is not None and leaf is judged[0]:
                self.recording.judged, self.recording.value = place, judged[1]
                self._active = False
                return
            if pin and any(leaf is tensor and unlike for tensor, unlike in fresh):
                self.recording.pins.append((place, leaf.clone()))


def tensor_leaves(value: Any) -> list[Any]:
    """List the tensors of a nested value, as the script does."""
    import torch
    from torch.utils._pytree import tree_leaves

    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def copied(value: Any) -> Any:
    """Copy a nested value with its tensors; other objects stay."""
    return mapped(value, lambda tensor: tensor.clone())


def mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """Copy a nested value with other values for its tensors."""
    import torch

    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, dict):
        return {key: mapped(item, change) for key, item in value.items()}
    if isinstance(value, list | tuple) and type(value) in (list, tuple):
        return type(value)(mapped(item, change) for item in value)
    return value
