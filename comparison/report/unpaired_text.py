"""Tensors without counterpart, counted and folded so that hundreds do not drown the result."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator

from comparison.report.names import printable
from comparison.schema.comparison import Comparison, Unpaired
from comparison.schema.outcome import Side
from comparison.schema.tensor_entry import TensorEntry

_LAYER_NUMBER = re.compile(r"(?<=\.)([0-9]{1,9})(?=[.-])")
_Place = tuple[int | None, int]  # rank and step


def unpaired_lines(comparison: Comparison) -> Iterator[str]:
    """List all tensors without counterpart: by side and reason, layers and steps as ranges."""
    for side in Side:
        items = [item for item in comparison.unpaired if item.side is side]
        if not items:
            continue
        yield ""
        yield f"Only in the {side}: {len(items)} tensor(s)"
        by_reason: defaultdict[str, list[Unpaired]] = defaultdict(list)
        for item in items:
            by_reason[item.reason].append(item)
        for reason, group in by_reason.items():
            yield f"  {len(group)}: {printable(reason)}"
            yield from (f"    {line}" for line in _fold(item.entry for item in group))


def _fold(entries: Iterable[TensorEntry]) -> Iterator[str]:
    """Write names that differ only in the layer and step as one line; no name is dropped."""
    places: defaultdict[tuple[str, int | None], set[_Place]] = defaultdict(set)
    for entry in entries:
        match = _LAYER_NUMBER.search(entry.name)
        template, layer = entry.name, None
        if match is not None:
            template = f"{entry.name[: match.start()]}\0{entry.name[match.end() :]}"
            layer = int(match[1])
        places[template, layer].add((entry.rank, entry.step))
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
