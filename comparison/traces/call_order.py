"""Pairs the calls that a module makes on both sides, and joins them to one order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from comparison.traces.layers import is_cut
from comparison.traces.traced_call import TraceCall


def _partners(left: Sequence[TraceCall], right: Sequence[TraceCall]) -> dict[int, int]:
    """Pair the calls of each module by their order within the module that makes them.

    The number of a call in a whole trace is no help: of two traces one may have left calls out.

    Returns:
        The place in `right` for the place in `left`, as far as there is one.
    """
    places = [_places(calls) for calls in (left, right)]
    pairs: dict[int, int] = {}
    for path, here in places[0].items():
        there = places[1].get(path, [])
        calls = [left[place] for place in here], [right[place] for place in there]
        if is_cut(*calls) or is_cut(*calls[::-1]):
            here, there = [here[0], here[-1]], [there[0], there[-1]]
        pairs |= dict(zip(here, there, strict=False))
    return pairs


def _places(calls: Sequence[TraceCall]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for place, call in enumerate(calls):
        found.setdefault(call.key[0], []).append(place)
    return found


def merge_calls(
    left: Sequence[TraceCall], right: Sequence[TraceCall]
) -> Iterator[tuple[TraceCall | None, TraceCall | None]]:
    """Give the calls of both in order; those of the right alone go before the pair behind them."""
    partners = _partners(left, right)
    paired = set(partners.values())
    position = 0
    for number, call in enumerate(left):
        place = partners.get(number)
        if place is None:
            yield call, None
            continue
        for other in range(position, place):
            if other not in paired:
                yield None, right[other]
        yield call, right[place]
        position = max(position, place + 1)
    yield from (
        (None, right[other]) for other in range(position, len(right)) if other not in paired
    )
