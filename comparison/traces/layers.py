"""The layers of a block, and which of them a trace leaves out."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from comparison.traces.traced_call import TraceCall

_LAYER = re.compile(r"(?:(?P<block>.*)\.)?(?P<number>[0-9]{1,9})", re.DOTALL)
_NUMBER = re.compile(r"[0-9]{1,9}")
_KEPT = 2  # of the layers of a block by pruning: the first and the last


def layer_number(part: str) -> int | None:
    """Give the number of a layer in the list that it is in.

    Args:
        part: of a module path, between two dots; None comes of one that is no layer's.
    """
    return int(part) if _NUMBER.fullmatch(part) is not None else None


def left_out_by(call: TraceCall, other: TraceCall) -> Callable[[str], bool]:
    """Return what tells whether a trace leaves a call out that was made inside of `call`.

    Pruning leaves the first and the last layer of a block, and may not say so. One layer that is
    called again and again is a block, too.

    Args:
        call: of the trace that lacks calls.
        other: its counterpart, which has them.
    """
    named = {path.partition(".")[2] for path in call.pruned}
    numbers: dict[str, set[int]] = {}
    for child in call.children:
        found = _LAYER.fullmatch(child.key[0])
        if found is not None:
            numbers.setdefault(found["block"] or "", set()).add(int(found["number"]))
    own, others = _by_module(call.children), _by_module(other.children)

    def left_out(path: str) -> bool:
        found = _LAYER.fullmatch(path)
        if path in named or found is None:
            return path in named
        if is_cut(own.get(path, []), others.get(path, [])):
            return True
        kept = numbers.get(found["block"] or "", set())
        return len(kept) == _KEPT and min(kept) < int(found["number"]) < max(kept)

    return left_out


def _by_module(calls: Sequence[TraceCall]) -> dict[str, list[TraceCall]]:
    found: dict[str, list[TraceCall]] = {}
    for call in calls:
        found.setdefault(call.key[0], []).append(call)
    return found


def is_cut(calls: Sequence[TraceCall], others: Sequence[TraceCall]) -> bool:
    """Tell whether of one layer's calls only the first and the last are there."""
    is_layer = bool(calls) and _LAYER.fullmatch(calls[0].key[0]) is not None
    return is_layer and len(calls) == _KEPT < len(others) and bool(calls[0].children)
