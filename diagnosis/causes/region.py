"""The guilty computation: a module of the reference, what the candidate gave it, and what came out.

It can be run again by itself, in float64, while something in it is changed.

Legend: n positions that the candidate's dump holds, of all rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from comparison.numerics.dtypes import Array
from diagnosis.causes.judging import Judged, is_lost, judged_anew, part_of, size_of
from diagnosis.causes.module_calls import (
    ModuleCall,
    RenamedPinning,
    recorded_calls,
    run_call,
)
from diagnosis.causes.routed import as_judged
from diagnosis.check import Check
from diagnosis.checks import Checker
from diagnosis.guilt import is_guilty
from diagnosis.replay.float64_mode import LongestSum, float64_throughout
from diagnosis.replay.module_watch import module_of, watched
from diagnosis.replay.pinned_replay import Taken

if TYPE_CHECKING:
    import torch


_WRONG = 15.0  # times rounding
_PROBE = 0.5  # a factor of scores that no attention overlooks


class Region:
    """The guilty module with its surroundings."""

    def __init__(self, checker: Checker, checks: Sequence[Check], first: Check) -> None:
        """Record the module's calls.

        Args:
            checker: holds the reference in float64, and the candidate's values.
            checks: all that was judged.
            first: the guilty tensor.
        """
        self.first = first
        self.owner = first.owner
        self.name = module_of(self.owner)
        self.checker = checker
        self.model = checker.wide_model
        self.module: Any = checker.submodule(self.name)
        self.checks: tuple[Check, ...] = tuple(
            check for check in checks if check.owner == self.owner and check.exact.size
        )
        self.all_checks = tuple(checks)
        self.calls = recorded_calls(checker, self.module, self.owner)
        self.running = self.calls[0] if self.calls else ModuleCall(row=0, args=(), kwargs={})

    @property
    def target(self) -> Array:
        """The candidate's values of the guilty tensor, [n, ...], in float64."""
        return np.asarray(self.first.candidate).astype(np.float64)

    @property
    def exact(self) -> Array:
        """The reference's values of the guilty tensor, [n, ...], in float64."""
        return np.asarray(self.first.exact).astype(np.float64)

    @property
    def parent(self) -> Any:
        """The module that holds this one; None for the model itself."""
        if self.name == "model":
            return None
        return self.checker.submodule(self.name.rpartition(".")[0])

    @cached_property
    def has_attention(self) -> bool:
        """Whether the module's own code computes attention, so that another scale matters."""
        from diagnosis.causes.attention_sites import AttentionChange, changed_attention

        seen: list[object] = []

        def scores(x: torch.Tensor) -> torch.Tensor:
            seen.append(x)
            return x * _PROBE

        changed = self.values(lambda: changed_attention(AttentionChange(scores=scores)))
        name = self.first.name
        return (
            bool(seen)
            and name in changed
            and not np.array_equal(changed[name], self.plain[name], equal_nan=True)
        )

    @cached_property
    def runs_by_itself(self) -> bool:
        """Whether the module alone gives what it gives within the model."""
        name = self.first.name
        return name in self.plain and np.allclose(
            self.plain[name], self.exact, rtol=1e-9, atol=1e-12, equal_nan=True
        )

    @property
    def positions(self) -> Array:
        """Row and token position of each value, [n, 2]."""
        return np.array([(place.row, place.position) for place in self.first.places])

    @cached_property
    def linear_inputs(self) -> Array | None:
        """What the module's first argument is at the positions that are judged, [n, in]."""
        return self._argument("float")

    @cached_property
    def token_ids(self) -> Array | None:
        """What an embedding looks up at the positions that are judged, [n]."""
        found = self._argument("int")
        return None if found is None else found.ravel()

    def _argument(self, kind: str) -> Array | None:
        parts = []
        for call in self.calls:
            first: Any = next(iter((*call.args, *call.kwargs.values())), None)
            if kind not in str(getattr(first, "dtype", "")):
                return None
            values = first.detach().cpu().numpy()
            values = values.reshape(-1, 1 if kind == "int" else values.shape[-1])
            parts.append(values[[p for row, p in self.positions if row == call.row]])
        return np.concatenate(parts) if parts else None

    def steps(self) -> list[Array]:
        """Return the places of each row's prefill, and of each decode step, [n of these]."""
        found: dict[tuple[int, int], list[int]] = {}
        for place, (row, position) in enumerate(self.positions):
            step = max(int(position) - self.prompt_tokens(int(row)) + 1, 0)
            found.setdefault((int(row), step), []).append(place)
        return [np.array(places) for places in found.values()]

    @cached_property
    def worst_call(self) -> tuple[ModuleCall, Array]:
        """The row that is wrong most, and the places of its values, [n of these].

        One that no batch pads where such a row is wrong: padding may have done more to others.
        """
        rows = self.positions[:, 0]
        excess = self.first.excess
        errors = np.zeros(len(rows)) if excess is None else np.nan_to_num(excess.by_position)
        totals = {call.row: float(errors[rows == call.row].sum()) for call in self.calls}
        worst = {row: float(errors[rows == row].max(initial=0.0)) for row in totals}
        call = max(
            self.calls,
            key=lambda call: (
                worst[call.row] > _WRONG and not self.padding(call.row),
                totals[call.row],
            ),
        )
        return call, np.flatnonzero(rows == call.row)

    def spans(self) -> list[slice]:
        """Return the positions of the prefill and of each decode step of the call that runs."""
        call = self.checker.wide_calls[self.running.row]
        prompt = call.prompt_tokens
        return [slice(0, prompt), *(slice(p, p + 1) for p in range(prompt, call.tokens or prompt))]

    def prompt_tokens(self, row: int) -> int:
        """Return the number of tokens of a row's prompt."""
        return self.checker.wide_calls[row].prompt_tokens

    def padding(self, row: int) -> int:
        """Return the number of tokens that a batch pads a row with."""
        lengths = [call.prompt_tokens for call in self.checker.wide_calls]
        return max(lengths) - lengths[row]

    @cached_property
    def plain(self) -> Mapping[str, Array]:
        """What the module gives when nothing is changed."""
        return self.values()

    def free_modules(self) -> Iterator[tuple[str, Any]]:
        """Yield the module and those inside whose output is the reference's own.

        What a module computes whose output the candidate's dump holds has no bearing on the rest.
        """
        pinned = {
            module_of(check.name.rpartition("-")[0])
            for check in self.all_checks
            if "-output" in check.name
        }
        shadowed: list[str] = []
        for path, module in self.module.named_modules():
            name = f"{self.name}.{path}" if path else self.name
            if any(name.startswith(f"{other}.") for other in shadowed):
                continue
            if path and name in pinned:
                shadowed.append(name)
                continue
            yield path, module

    @property
    def config(self) -> Any:
        """The model's configuration for text; None where it has none."""
        config = getattr(self.model, "config", None)
        return getattr(config, "text_config", config)

    def values(
        self,
        change: Callable[[], AbstractContextManager[object]] = nullcontext,
        *,
        calls: Sequence[ModuleCall] | None = None,
    ) -> dict[str, Array]:
        """Run the module again and give the tensors that are judged.

        Args:
            change: in force while it runs.
            calls: those of the rows that are wanted; None for all.

        Returns:
            By the reference's name, [n, ...], in float64.
        """
        found: dict[str, list[Array]] = {}
        wanted = frozenset(check.name for check in self.checks)
        with float64_throughout(LongestSum()):
            for call in self.calls if calls is None else calls:
                self.running = call
                pinning = self.checker.pinning(call.row, wanted)
                with watched(self.model, RenamedPinning(pinning, self.owner)), change():
                    run_call(self.module, call)
                for taken in pinning.taken:
                    found.setdefault(taken.name, []).append(taken.reference)
        rows = [call.row for call in (self.calls if calls is None else calls)]
        joined = {name: np.concatenate(parts) for name, parts in found.items()}
        return as_judged(joined, self.checks, rows)

    def taken(self) -> Iterator[Taken]:
        """Run the module again and give all that it computes where the candidate's dump has it."""
        with float64_throughout(LongestSum()):
            for call in self.calls:
                pinning = self.checker.pinning(call.row)
                with watched(self.model, RenamedPinning(pinning, self.owner)):
                    run_call(self.module, call)
                yield from pinning.taken

    def judge(self, values: Mapping[str, Array]) -> Judged:
        """Hold what a hypothesis gives against the candidate's values.

        Args:
            values: by name; what is missing counts as unchanged.
        """
        anew = [
            judged_anew(check, values[check.name]) for check in self.checks if check.name in values
        ]
        if not any(check.name == self.first.name for check in anew) or any(map(is_lost, anew)):
            return Judged(residual=float("inf"), explained=False)
        if not any(map(is_guilty, anew)):
            return Judged(residual=max(map(size_of, anew)), explained=True)
        cut = [part for check in anew if (part := self._in_longest_row(check)) is not None]
        if cut and any(check.name == self.first.name for check in cut):
            explained = not any(map(is_guilty, cut))
            if explained:
                return Judged(residual=max(map(size_of, cut)), explained=True, in_longest_row=True)
        return Judged(residual=max(map(size_of, anew)), explained=False)

    def _in_longest_row(self, check: Check) -> Check | None:
        """Keep the places of the row that no batch pads; None where all rows are that long."""
        lengths = [call.prompt_tokens for call in self.checker.wide_calls]
        longest = [row for row, length in enumerate(lengths) if length == max(lengths)]
        places = [i for i, place in enumerate(check.places) if place.row in longest]
        if len(longest) == len(lengths) or check.floor is None or not places:
            return None
        was_wrong = part_of(self._known[check.name], places)
        return part_of(check, places) if is_guilty(was_wrong) or not is_guilty(check) else None

    @cached_property
    def _known(self) -> Mapping[str, Check]:
        return {check.name: check for check in self.checks}
