"""Where inside a tensor the error lies: steps, rows, positions, channels."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from comparison.numerics.dtypes import Array
from comparison.schema.diagnosis import Spot
from diagnosis.check import Check, Place
from diagnosis.replay.reference_calls import ReferenceCall

_BAD = 5.0  # times rounding; clean positions reach 3.5
_FAR_ABOVE = 0.01  # of the worst: what is below may be spill-over of the measure itself
_LISTED = 8


def bad_places(check: Check) -> tuple[Place, ...]:
    """Return the positions that are wrong; the worst one where none stands out."""
    if check.excess is None:
        return check.unequal
    errors = np.nan_to_num(check.excess.by_position, nan=np.inf, posinf=np.inf)
    bad = np.flatnonzero(errors > _BAD)
    if bad.size == 0:
        bad = np.array([int(np.argmax(errors))])
    return tuple(check.places[index] for index in bad)


def spot_of(place: Place, calls: Sequence[ReferenceCall]) -> Spot:
    """Give the step of a position."""
    call = calls[place.row]
    if call.tokens is None:
        return Spot(step=0, row=place.row, position=None)
    behind = place.position - call.prompt_tokens + 1
    return Spot(step=max(behind, 0), row=place.row, position=place.position)


def describe_where(check: Check, calls: Sequence[ReferenceCall]) -> tuple[str, ...]:
    """Say in phrases where a tensor is wrong."""
    bad = bad_places(check)
    return tuple([*_tokens(check, bad, calls), *_channels(check)])


def _tokens(check: Check, bad: Sequence[Place], calls: Sequence[ReferenceCall]) -> Iterator[str]:
    if any(calls[place.row].tokens is None for place in check.places):
        return
    every, wrong = _by_row(check.places), _by_row(bad)
    if set(wrong) != set(every):
        yield f"only in row {_listing(sorted(wrong))} of {len(every)}"
    steps = {spot_of(place, calls).step for place in bad}
    if min(steps) > 0:
        yield f"only in decode steps, from step {min(steps)} on"
    yield from dict.fromkeys(_positions(every[row], wrong[row]) for row in sorted(wrong))


def _by_row(places: Sequence[Place]) -> dict[int, list[int]]:
    rows: defaultdict[int, list[int]] = defaultdict(list)
    for place in places:
        rows[place.row].append(place.position)
    return dict(rows)


def _positions(every: Sequence[int], wrong: Sequence[int]) -> str:
    if len(wrong) == len(every):
        return "at all tokens"
    from_first = [position for position in every if position >= wrong[0]]
    if list(wrong) == from_first:
        return f"from token {wrong[0]} on, exact before"
    return f"at tokens {_listing(wrong)}"


def bad_channels(check: Check) -> Array:
    """Return the numbers of the channels of a flattened token value that are wrong, [n]."""
    if check.excess is None:
        return np.zeros(0, dtype=int)
    errors = np.nan_to_num(check.excess.by_channel, nan=np.inf, posinf=np.inf)
    return np.flatnonzero(errors > max(_BAD, _FAR_ABOVE * float(np.max(errors, initial=0.0))))


def _channels(check: Check) -> Iterator[str]:
    if check.excess is None:
        return
    bad, total = bad_channels(check), check.excess.by_channel.size
    if 0 < bad.size < total / 2:
        first, last = int(bad[0]), int(bad[-1])
        if bad.size == last - first + 1 and bad.size > 1:
            yield f"in channels {first} to {last} of {total}"
        else:
            yield f"in channels {_listing(bad.tolist())} of {total}"


def _listing(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:_LISTED]))
    more = len(numbers) - _LISTED
    return f"{shown} and {more} more" if more > 0 else shown
