"""Where an attention is wrong: in some heads, some steps, some rows or from some token on.

What heads, queries and rows give is independent of each other, so that a change that holds for some
of them gives the candidate's values there, and leaves the reference's elsewhere.

Legend: n positions, N heads, D head size.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from comparison.numerics.dtypes import Array

if TYPE_CHECKING:
    from diagnosis.causes.region import Region

_RIGHT = 20.0  # times rounding, of one head at one position
_DIFFERS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Where a change holds.

    Attributes:
        says: in words, behind what the change does.
        holds: [n, N] booleans.
        in_decode: whether it is in decode steps only.
        by_row: whether it is in some rows only.
        in_padding: whether a batch pads each of these rows.
    """

    says: str
    holds: Array
    in_decode: bool = False
    by_row: bool = False
    in_padding: bool = False


_OF_KEYS = frozenset({"mask", "sliding_window"})
_OF_ROWS = frozenset({"position_ids", "padding", "decode_cache", *_OF_KEYS})


def cause_in(scope: Scope, cause: str) -> str | None:
    """Return what a cause is that holds in a part only; None where it cannot.

    Keys that decode steps do not see are not in the cache, and those that shorter rows alone see
    are padding. What does not depend on rows is no cause in one of them.
    """
    if scope.by_row and cause not in _OF_ROWS:
        return None
    if cause in _OF_KEYS and scope.in_decode:
        return "decode_cache"
    return "padding" if cause in _OF_KEYS and scope.in_padding else cause


def head_sizes(region: Region) -> tuple[int, int] | None:
    """Return the number of heads of the guilty tensor and their size; None where it has none."""
    module = region.module
    size = getattr(module, "head_dim", None) or getattr(module, "attention_head_size", None)
    width = region.exact[0].size if region.exact.size else 0
    if not isinstance(size, int) or not size or width % size:
        return None
    return width // size, size


class Scopes:
    """The parts of the guilty attention's output that are wrong."""

    def __init__(self, region: Region, heads: int) -> None:
        """Look which parts are wrong.

        Args:
            region: the guilty attention.
            heads: how many its output has.
        """
        self._region, self._heads = region, heads
        floor = region.first.floor
        assert floor is not None  # asked before
        channels = np.asarray(floor.by_channel).reshape(heads, -1)
        by_head = np.sqrt(np.mean(channels**2, axis=1))
        self._floor = np.maximum(np.asarray(floor.by_position)[:, None], by_head)
        self.wrong = self._off(region.exact, _RIGHT)

    def _off(self, values: Array, limit: float) -> Array:
        return ~(self._error(values, self._region.target) <= limit * self._floor)

    def _error(self, one: Array, other: Array) -> Array:
        difference = (one - other).reshape(len(one), self._heads, -1)
        return np.asarray(np.sqrt(np.mean(np.square(difference), axis=-1)))

    def explained_by(self, values: Array, places: Array) -> bool:
        """Tell whether values at some places, [n of these, ...], explain what is wrong there."""
        if values.shape != self._region.target[places].shape:
            return False
        return bool(self._right(values, places)[self.wrong[places]].all())

    def right_heads(self, values: Array, places: Array) -> Array:
        """Tell which heads values at some places, [n of these, ...], explain, [N]."""
        return np.asarray(self._right(values, places).all(axis=0))

    def _right(self, values: Array, places: Array) -> Array:
        error = self._error(values, self._region.target[places])
        return np.asarray(error <= _RIGHT * self._floor[places])

    def of(self, values: Array) -> Scope | None:
        """Say where values have to hold that explain all that is wrong, [n, ...].

        None where they do not explain it, or the place has no name.
        """
        if (self.wrong & self._off(values, _RIGHT)).any():
            return None
        differs = self._error(values, self._region.exact) > _DIFFERS * self._floor
        differs |= self.wrong
        for scope in self._places:
            if np.array_equal(scope.holds & differs, self.wrong):
                return scope
        return None

    def mixed(self, scope: Scope, values: Array) -> Array:
        """Return the reference's values where a change does not hold, and other values where."""
        exact = self._region.exact
        holds = np.repeat(scope.holds, exact[0].size // self._heads, axis=1)
        return np.asarray(np.where(holds.reshape(exact.shape), values, exact))

    def taken(self, values: Array, places: Array) -> Array:
        """Return, as a flat array, those of values at some places that are where it is wrong."""
        parts = values.reshape(len(values), self._heads, -1)
        return np.asarray(parts[self.wrong[places]].ravel())

    @cached_property
    def _places(self) -> tuple[Scope, ...]:
        """Everything, then heads, steps, rows and tokens alone, then heads with one of these."""
        heads = list(self._of_heads())
        times = list(self._of_times())
        both = [
            Scope(
                says=f"{one.says}{other.says}",
                holds=one.holds & other.holds,
                in_decode=other.in_decode,
                by_row=other.by_row,
                in_padding=other.in_padding,
            )
            for one in heads
            for other in times
        ]
        return (*heads, *times, *both)

    def _of_heads(self) -> Iterator[Scope]:
        wrong = self.wrong.any(axis=0)
        if wrong.any() and not wrong.all():
            numbers = ", ".join(map(str, np.flatnonzero(wrong)))
            named = "heads" if wrong.sum() > 1 else "head"
            yield Scope(
                says=f", in {named} {numbers} of {self._heads} only",
                holds=np.broadcast_to(wrong, self.wrong.shape),
            )

    def _of_times(self) -> Iterator[Scope]:
        region = self._region
        rows, tokens = region.positions.T
        decode = np.array([p >= region.prompt_tokens(int(row)) for row, p in region.positions])
        wrong = self.wrong.any(axis=1)
        yield self._at(decode, ", in decode steps only", in_decode=True)
        yield self._at(~decode, ", in the prefill only")
        if not wrong.any():
            return
        first, last = int(tokens[wrong].min()), int(tokens[wrong].max())
        yield self._at(tokens >= first, f", from token {first} on")
        yield self._at(tokens <= last, f", up to token {last}")
        padded = tokens + np.array([region.padding(int(row)) for row in rows])
        first = int(padded[wrong].min())
        yield self._at(padded >= first, f", from token {first} on, padding counted")
        bad = np.unique(rows[wrong])
        named = f"row {', '.join(map(str, bad))} only"
        for places, says in ((np.ones_like(decode), "in"), (decode, "in decode steps of")):
            yield replace(
                self._at(np.isin(rows, bad) & places, f", {says} {named}"),
                by_row=True,
                in_padding=all(region.padding(int(row)) for row in bad),
            )

    def _at(self, places: Array, says: str, *, in_decode: bool = False) -> Scope:
        holds = np.broadcast_to(places[:, None], self.wrong.shape)
        return Scope(says=says, holds=holds, in_decode=in_decode)


def scopes_of(region: Region) -> Scopes | None:
    """Return what is wrong of an attention whose heads can be told apart, if not all is."""
    if region.first.floor is None or not region.has_attention:
        return None
    sizes = head_sizes(region)
    if sizes is None or region.target.shape != region.exact.shape:
        return None
    found = Scopes(region, sizes[0])
    tokens = region.positions[:, 1]
    # A query of one key gives its value whatever is done to scores, so that the first token tells
    # nothing.
    everywhere = bool(found.wrong[tokens > 0].all())
    return None if everywhere or not found.wrong.any() else found
