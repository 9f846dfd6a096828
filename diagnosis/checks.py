"""Holds every tensor of the candidate against what the reference computes from its neighbours."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import numpy as np

from comparison.align.token_rows import TokenRow
from comparison.numerics.dtypes import Array
from diagnosis.candidate_tensors import CandidateTensors, Pinned
from diagnosis.check import Check, Place
from diagnosis.choice_checks import judge_by_choice
from diagnosis.replay.float64_mode import LongestSum, float64_copy, float64_throughout
from diagnosis.replay.pinned_replay import Pinning, Taken, allowed, lasting_storages, replay
from diagnosis.replay.reference_calls import ReferenceCall
from diagnosis.replay.reference_trace import TracedTensor
from diagnosis.rounding import excess_error, rounding_floor

if TYPE_CHECKING:
    import torch


class HoldsPins(Protocol):
    """Holds a candidate's values by the reference's names."""

    def pinned(self, name: str) -> Pinned | None:
        """Return the candidate's values of one of the reference's tensors."""


class Checker:
    """Runs the replays of one reference against one candidate."""

    def __init__(
        self,
        model: torch.nn.Module,
        calls: Sequence[ReferenceCall],
        traced: Mapping[str, TracedTensor],
        candidate: CandidateTensors,
    ) -> None:
        """Copy the reference in float64.

        Args:
            model: the reference in the run's dtype.
            calls: one a row.
            traced: its tensors.
            candidate: the candidate's.
        """
        self._model, self._calls, self._traced = model, calls, traced
        self._wide = float64_copy(model)
        self._wide_calls = [_widened(call) for call in calls]
        self._candidate: HoldsPins = candidate
        self._pins: dict[str, Pinned | None] = {}
        self._kept = lasting_storages(self._wide)

    @property
    def wide_model(self) -> torch.nn.Module:
        """The reference in float64."""
        return self._wide

    @property
    def wide_calls(self) -> Sequence[ReferenceCall]:
        """The rows, their inputs in float64."""
        return self._wide_calls

    def submodule(self, name: str) -> torch.nn.Module:
        """Return a module of the reference in float64 by the name that tensors have it by."""
        return self._wide.get_submodule(name.partition(".")[2])

    def pinning(self, row: int, wanted: frozenset[str] | None = None) -> Pinning:
        """Begin to take down one row in float64.

        Args:
            row: number of the row.
            wanted: the tensors to take down; None for all.
        """
        return Pinning(self._kept, self._traced, self._row, row, wanted=wanted)

    def against(self, candidate: HoldsPins) -> Checker:
        """Return a checker of another run of the same rows, with the same copy of the reference.

        Args:
            candidate: holds what that run computed.
        """
        other = copy.copy(self)
        other._candidate, other._pins = candidate, {}
        return other

    def pin(self, name: str) -> Pinned | None:
        """Return the candidate's values of a tensor."""
        if name not in self._pins:
            self._pins[name] = self._candidate.pinned(name)
        return self._pins[name]

    def checks(self, *, unpinned: Collection[str] = ()) -> tuple[Check, ...]:
        """Judge every tensor that the candidate's dump holds, in order of execution.

        Args:
            unpinned: tensors that the reference goes on with its own values of.
        """
        native = _by_name(self._native(unpinned))
        sums: dict[str, int] = {}
        exact = _by_name(self._exact(unpinned, sums))
        checks = {
            name: self._check(name, exact[name], native[name], sums.get(name, 0))
            for name in exact
            if name in native and any(part.reference.size for part in exact[name])
        }
        return tuple(self._by_choice(checks, exact, native).values())

    def again(self, checks: Sequence[Check], *, unpinned: Collection[str]) -> dict[str, Check]:
        """Judge the same tensors anew, where the reference goes on with its own values of some.

        What rounding explains stays as it was; so one run in float64 does.

        Args:
            checks: with all of the candidate's values in place.
            unpinned: tensors that the reference goes on with its own values of.
        """
        exact = _by_name(self._exact(unpinned, {}))
        anew = {check.name: self._anew(check, exact[check.name]) for check in checks}
        return self._by_choice(anew, exact, None)

    def _by_choice(
        self,
        checks: Mapping[str, Check],
        exact: Mapping[str, Sequence[Taken]],
        native: Mapping[str, Sequence[Taken]] | None,
    ) -> dict[str, Check]:
        return judge_by_choice(
            checks, exact=exact, native=native, traced=self._traced, raw=self._values
        )

    def _anew(self, check: Check, parts: Sequence[Taken]) -> Check:
        if check.floor is None:
            pin = self.pin(check.name)
            assert pin is not None  # it was judged before
            if self._traced[check.name].is_mask:
                return replace(check, unequal=self._unequal_masks(pin, parts))
            unequal = _unequal(check.candidate, _joined(parts), check.places)
            return replace(check, unequal=unequal, exact=_joined(parts))
        exact = _joined(parts)
        return replace(check, exact=exact, excess=excess_error(check.candidate, exact, check.floor))

    def _native(self, unpinned: Collection[str]) -> Iterator[Taken]:
        return replay(self._model, self._calls, self._traced, self._row, unpinned=unpinned)

    def _exact(self, unpinned: Collection[str], sums: dict[str, int]) -> Iterator[Taken]:
        longest = LongestSum()
        terms: list[int] = []
        with float64_throughout(longest):
            taken = list(
                replay(
                    self._wide,
                    self._wide_calls,
                    self._traced,
                    self._row,
                    unpinned=unpinned,
                    on_taken=lambda: terms.append(longest.take()),
                )
            )
        for value, count in zip(taken, terms, strict=True):
            sums[value.name] = max(sums.get(value.name, 0), count)
        return iter(taken)

    def _row(self, name: str, row: int) -> TokenRow | None:
        pin = self.pin(name)
        return None if pin is None else pin.rows.get(row)

    def _values(self, name: str, parts: Sequence[Taken]) -> Array:
        pin = self.pin(name)
        assert pin is not None  # it was taken down, so there are values
        values = [np.asarray(pin.rows[part.row].values) for part in parts]
        shaped = [
            value.reshape(part.reference.shape) for value, part in zip(values, parts, strict=True)
        ]
        return np.concatenate([_plain(value) for value in shaped]) if len(shaped) > 1 else shaped[0]

    def _check(
        self, name: str, exact: Sequence[Taken], native: Sequence[Taken], longest_sum: int
    ) -> Check:
        pin = self.pin(name)
        assert pin is not None
        places = tuple(
            Place(row=part.row, position=int(position))
            for part in exact
            for position in part.positions
        )
        traced = self._traced[name]
        first = exact[0]
        if traced.is_mask:
            unequal = self._unequal_masks(pin, exact)
            values = (np.zeros(0),) * 3
        else:
            values = self._values(name, exact), _joined(exact), _joined(native)
            unequal = _unequal(values[0], values[1], places) if _is_exact(traced) else ()
        floor = None
        if not traced.is_mask and not _is_exact(traced):
            floor = rounding_floor(
                native=values[2], exact=values[1], dtype=pin.dtype, longest_sum=longest_sum
            )
        return Check(
            name=name,
            owner=first.owner,
            candidate_names=pin.names,
            since=first.since,
            order=first.order,
            dtype=pin.dtype,
            places=places,
            longest_sum=longest_sum,
            floor=floor,
            excess=None if floor is None else excess_error(values[0], values[1], floor),
            unequal=unequal,
            candidate=values[0],
            exact=values[1],
            native=values[2],
        )

    @staticmethod
    def _unequal_masks(pin: Pinned, parts: Sequence[Taken]) -> tuple[Place, ...]:
        found = []
        for part in parts:
            mine = allowed(pin.rows[part.row].values)
            theirs = allowed(part.reference)[..., : mine.shape[-1]]
            for index in np.flatnonzero((mine != theirs).any(axis=-1)):
                found.append(Place(row=part.row, position=int(part.positions[index])))
        return tuple(found)


def _is_exact(traced: TracedTensor) -> bool:
    return "float" not in traced.dtype and "complex" not in traced.dtype


def _unequal(candidate: Array, reference: Array, places: Sequence[Place]) -> tuple[Place, ...]:
    differs = (candidate != reference).reshape(candidate.shape[0], -1).any(axis=-1)
    return tuple(places[int(index)] for index in np.flatnonzero(differs))


def _by_name(taken: Iterator[Taken]) -> dict[str, list[Taken]]:
    found: defaultdict[str, list[Taken]] = defaultdict(list)
    for value in taken:
        found[value.name].append(value)
    return dict(found)


def _joined(parts: Sequence[Taken]) -> Array:
    if len(parts) == 1:
        return parts[0].reference
    return np.concatenate([part.reference for part in parts])


def _plain(values: Array) -> Array:
    return values.astype(np.float32) if values.dtype.kind == "V" else values


def _widened(call: ReferenceCall) -> ReferenceCall:
    import torch

    def wide(value: object) -> object:
        if not isinstance(value, torch.Tensor):
            return value
        if value.is_complex():
            return value.to(torch.complex128)
        return value.double() if value.is_floating_point() else value

    return replace(
        call,
        args=tuple(wide(value) for value in call.args),
        kwargs={key: wide(value) for key, value in call.kwargs.items()},
    )
