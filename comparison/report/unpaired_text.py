"""Tensors without counterpart, counted and folded so that hundreds do not drown the result."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator

from comparison.report.names import printable
from comparison.schema.comparison import Comparison, UnpairedTensor, lacks_step
from comparison.schema.outcome import Side

_LAYER_NUMBER = re.compile(r"(?<=\.)([0-9]{1,9})(?=[.-])")
_Place = tuple[int | None, int]  # rank and step
_Reasons = dict[str, list[UnpairedTensor]]
_NAMED = 2


def unpaired_lines(comparison: Comparison) -> Iterator[str]:
    """List all tensors without counterpart: by side and reason, layers and steps as ranges."""
    for side, reasons in _by_side(item.tensor for item in comparison.unpaired):
        yield ""
        yield _heading(side, reasons)
        for reason, group in reasons.items():
            yield f"  {len(group)}: {printable(reason)}"
            if not _lacks_its_step(group[0]):  # else these are all that there is of the step
                yield from (f"    {line}" for line in _fold(group))


def unpaired_summary(tensors: Iterable[UnpairedTensor]) -> Iterator[str]:
    """Count tensors by side and reason, a line each, and name the first ones."""
    for side, reasons in _by_side(tensors):
        yield ""
        yield _heading(side, reasons)
        for reason, group in reasons.items():
            names = [] if _lacks_its_step(group[0]) else list(_fold(group))
            shown = "; ".join(names[:_NAMED])
            more = f"; {len(names) - _NAMED} more kinds" if len(names) > _NAMED else ""
            yield f"  {len(group)}: {printable(reason)}{f' ({shown}{more})' if shown else ''}"


def _heading(side: Side, reasons: _Reasons) -> str:
    return f"Only in the {side}: {sum(map(len, reasons.values()))} tensor(s)"


def _by_side(tensors: Iterable[UnpairedTensor]) -> Iterator[tuple[Side, _Reasons]]:
    found: dict[Side, _Reasons] = {side: defaultdict(list) for side in Side}
    lacking: dict[Side, list[UnpairedTensor]] = {side: [] for side in Side}
    for item in tensors:
        if _lacks_its_step(item):
            lacking[item.side].append(item)
        else:
            found[item.side][item.reason].append(item)
    for side, items in lacking.items():
        if items:
            steps = _ranges({item.step for item in items})
            found[side][lacks_step(side.other, steps)] = items
    return ((side, reasons) for side, reasons in found.items() if reasons)


def _lacks_its_step(item: UnpairedTensor) -> bool:
    return item.reason == lacks_step(item.side.other, item.step)


def _fold(tensors: Iterable[UnpairedTensor]) -> Iterator[str]:
    """Write names that differ only in the layer and step as one line; no name is dropped."""
    places: defaultdict[tuple[str, int | None], set[_Place]] = defaultdict(set)
    for item in tensors:
        match = _LAYER_NUMBER.search(item.tensor)
        template, layer = item.tensor, None
        if match is not None:
            template = f"{item.tensor[: match.start()]}\0{item.tensor[match.end() :]}"
            layer = int(match[1])
        places[template, layer].add((item.rank, item.step))
    layers: defaultdict[tuple[str, frozenset[_Place]], list[int | None]] = defaultdict(list)
    for (template, layer), where in places.items():
        layers[template, frozenset(where)].append(layer)
    for (template, everywhere), numbers in layers.items():
        known = [number for number in numbers if number is not None]
        shown = _ranges(known) if len(known) < 2 else f"[{_ranges(known)}]"
        yield f"{printable(template.replace(chr(0), shown))}{_describe_places(everywhere)}"


def _describe_places(places: frozenset[_Place]) -> str:
    steps = {step for _, step in places}
    ranks = {rank for rank, _ in places if rank is not None}
    text = "" if steps == {0} else f", step {_ranges(steps)}"
    return text + (f", rank {_ranges(ranks)}" if ranks else "")


def _ranges(numbers: Iterable[int]) -> str:
    """Write 0, 1, 2, 5 as 0-2,5."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
