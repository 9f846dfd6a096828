"""How well a hypothesis gives the candidate's values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from comparison.numerics.dtypes import Array
from diagnosis.check import Check
from diagnosis.guilt import worst
from diagnosis.rounding import Floor, excess_error

_TINY = 1e-300


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """How well a hypothesis gives the candidate's values.

    Attributes:
        residual: what is left over at the worst tensor, in units of rounding.
        explained: whether rounding explains all that is left over.
        in_longest_row: whether it does in the longest row only; shorter ones may be padded.
    """

    residual: float
    explained: bool
    in_longest_row: bool = False


def judged_anew(check: Check, exact: Array) -> Check:
    """Hold the candidate's values against others than the reference's."""
    if check.floor is None:
        differs = (check.candidate != exact).reshape(len(exact), -1).any(axis=-1)
        places = tuple(place for place, bad in zip(check.places, differs, strict=True) if bad)
        return replace(check, unequal=places, exact=exact)
    floor = _grown(check.floor, _size_of_values(exact) / max(_size_of_values(check.exact), _TINY))
    return replace(
        check, exact=exact, floor=floor, excess=excess_error(check.candidate, exact, floor)
    )


def _grown(floor: Floor, factor: float) -> Floor:
    """Let what is larger than the reference's values have larger rounding."""
    if not factor > 1.0 or not np.isfinite(factor):
        return floor
    return replace(
        floor,
        whole=floor.whole * factor,
        by_position=floor.by_position * factor,
        by_channel=floor.by_channel * factor,
    )


def _size_of_values(values: Array) -> float:
    """Return the root mean square of the values that are numbers."""
    finite = np.where(np.isfinite(values), values, 0.0)
    return float(np.sqrt(np.mean(np.square(np.abs(finite), dtype=np.float64))))


def is_lost(check: Check) -> bool:
    """Tell whether a hypothesis gives no number where the candidate has one."""
    return bool(np.any(~np.isfinite(check.exact) & np.isfinite(check.candidate)))


def part_of(check: Check, places: Sequence[int]) -> Check:
    """Cut a check to some of its places."""
    assert check.floor is not None  # asked before
    index = np.array(places)
    floor = replace(check.floor, by_position=check.floor.by_position[index])
    candidate, exact = check.candidate[index], check.exact[index]
    return replace(
        check,
        places=tuple(check.places[i] for i in places),
        candidate=candidate,
        exact=exact,
        native=check.native[index],
        floor=floor,
        excess=excess_error(candidate, exact, floor),
    )


def size_of(check: Check) -> float:
    """Return the error at the worst place, in units of rounding."""
    if check.excess is None:
        return float("inf") if check.unequal else 0.0
    return worst(check.excess)
