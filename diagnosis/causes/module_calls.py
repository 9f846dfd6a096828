"""The calls of one module of the reference, recorded, and run again by themselves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from diagnosis.checks import Checker
from diagnosis.replay.copies import copied
from diagnosis.replay.float64_mode import LongestSum, float64_throughout
from diagnosis.replay.module_watch import module_of, number_of, watched
from diagnosis.replay.pinned_replay import Pinning

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleCall:
    """One call of the guilty module.

    Attributes:
        row: number of the sequence.
        args: positional arguments, with the candidate's values, in float64.
        kwargs: keyword arguments, the same.
    """

    row: int
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


def recorded_calls(checker: Checker, module: Any, owner: str) -> tuple[ModuleCall, ...]:
    """Record what a module is called with, with the candidate's values in place.

    Args:
        checker: holds the reference in float64, and the candidate's values.
        module: the module.
        owner: its call, by name: `model.act(2)` is the second one.

    Returns:
        One call a row; none where the row does not come there.
    """
    recorder = _Recorder(owner)
    with float64_throughout(LongestSum()):
        for row, call in enumerate(checker.wide_calls):
            pinning = checker.pinning(row, frozenset())
            recorder.begin(row)
            with watched(checker.wide_model, pinning), recorder.attached(module):
                call.run(checker.wide_model)
    return tuple(recorder.calls)


def run_call(module: Any, call: ModuleCall) -> None:
    """Run a module by itself."""
    import torch

    with torch.no_grad():
        module(*copied(call.args), **copied(dict(call.kwargs)))


class _Recorder:
    """Keeps the arguments of one call of a module in each row."""

    def __init__(self, owner: str) -> None:
        self.calls: list[ModuleCall] = []
        self._number = number_of(owner)
        self._row = self._seen = 0

    def begin(self, row: int) -> None:
        self._row, self._seen = row, 0

    @contextmanager
    def attached(self, module: Any) -> Iterator[None]:
        handle = module.register_forward_pre_hook(self._before, with_kwargs=True)
        try:
            yield
        finally:
            handle.remove()

    def _before(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        del module
        self._seen += 1
        if self._seen == self._number:
            self.calls.append(
                ModuleCall(row=self._row, args=copied(args), kwargs=copied(dict(kwargs)))
            )


class RenamedPinning:
    """Gives tensors of a module that runs by itself the names that they have in the whole."""

    def __init__(self, pinning: Pinning, owner: str) -> None:
        self._pinning, self._owner = pinning, owner
        self._number, self._name = number_of(owner), module_of(owner)

    def see(self, name: str, tensor: torch.Tensor, *, owner: str, caller: str) -> torch.Tensor:
        """Pass a tensor on by its name in the whole."""
        if name.startswith(f"{self._name}-input"):
            return tensor  # recorded with the candidate's values in place
        names = name, owner, caller
        if self._number > 1:
            names = tuple(map(self._numbered, names))  # type: ignore[assignment]  # three again
        return self._pinning.see(names[0], tensor, owner=names[1], caller=names[2])

    def _numbered(self, name: str) -> str:
        call, dash, slot = name.partition("-")
        return f"{call}({self._number}){dash}{slot}"
