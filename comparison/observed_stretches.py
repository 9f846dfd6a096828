"""Which tokens each step computed, read off what the model was given: token ids and positions."""

import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from comparison.schema.errors import BadInputError
from comparison.schema.manifest import Padding, Stretch
from comparison.schema.tensor_entry import TensorEntry
from comparison.schema.tensor_names import parse_tensor_name
from comparison.store.dump import Dump

Step = tuple[Stretch, ...]

# More than any step is given: ids are looked at one by one.
_MOST_TOKENS = 1 << 22
_IDS = ("input_ids", "tokens", "token_ids")
_POSITIONS = ("position_ids", "positions")


def entries_by_step(dump: Dump) -> dict[int, list[TensorEntry]]:
    """Group a dump's tensors by their step, the first step first."""
    found: defaultdict[int, list[TensorEntry]] = defaultdict(list)
    for entry in dump.entries:
        found[entry.step].append(entry)
    return dict(sorted(found.items()))


@dataclass(slots=True, kw_only=True)
class _Given:
    """What a step's model was given, one list a row of the batch.

    Attributes:
        ids: token ids; empty where they were not dumped.
        positions: token positions; empty where they were not dumped.
    """

    ids: list[list[int]] = field(default_factory=list)
    positions: list[list[int]] = field(default_factory=list)


def observed_stretches(dump: Dump) -> tuple[Step, ...]:
    """Read off which tokens each step computed.

    Args:
        dump: one whose manifest holds the rows' token ids, each call of the model a step.

    Returns:
        A step's stretches; nothing at all where these are the usual ones, or not known.
    """
    assert dump.manifest is not None  # asked for before
    rows = [(*row.token_ids, *row.generated) for row in dump.manifest.rows]
    lengths = [len(row.token_ids) for row in dump.manifest.rows]
    done = [0] * len(rows)
    found: list[Step] = []
    usual = True
    for step, entries in entries_by_step(dump).items():
        given = _given(dump, entries)
        stretches = _match(given, rows, done, dump.manifest.padding)
        expected = tuple(
            Stretch(row=row, first=0 if step == 0 else n + step - 1, count=n if step == 0 else 1)
            for row, n in enumerate(lengths)
        )
        if stretches is None:
            if usual and step != len(found):
                return ()
            stretches = expected if usual else _one_token_each(done)
        elif step > 0 and _anew(stretches, expected):
            stretches = expected
        usual = usual and stretches == expected
        for stretch in stretches:
            done[stretch.row] = stretch.first + stretch.count
        found.append(stretches)
    return () if usual else tuple(found)


def _anew(stretches: Step, expected: Step) -> bool:
    """Tell a step that computes all tokens so far once more, of which only the newest count."""
    ends = [[stretch.first + stretch.count for stretch in step] for step in (stretches, expected)]
    return ends[0] == ends[1] and all(stretch.first == 0 for stretch in stretches)


def _one_token_each(done: Sequence[int]) -> Step:
    return tuple(Stretch(row=row, first=first, count=1) for row, first in enumerate(done))


def _given(dump: Dump, entries: Sequence[TensorEntry]) -> _Given:
    """Find the token ids and positions that the model got, by the shortest name."""
    given = _Given()
    for slots, into in ((_IDS, given.ids), (_POSITIONS, given.positions)):
        named = [entry for entry in entries if _slot(entry) in slots]
        for entry in sorted(named, key=lambda entry: entry.name.count(".")):
            try:
                array = np.asarray(dump.read(entry))
            except BadInputError:  # it is listed among the dump's problems
                continue
            if array.dtype.kind not in "iu" or not 0 < array.size <= _MOST_TOKENS:
                continue
            if 1 <= array.ndim <= 3:
                plain = array.reshape(-1, *array.shape[-2:])[0] if array.ndim == 3 else array
                into += [[int(value) for value in row] for row in np.atleast_2d(plain)]
                break
    return given


def _slot(entry: TensorEntry) -> str:
    parsed = parse_tensor_name(entry.name)
    return (parsed.slot or "") if parsed is not None and parsed.side == "input" else ""


def _match(
    given: _Given, rows: Sequence[Sequence[int]], done: Sequence[int], padding: Padding
) -> Step | None:
    """Find the stretches that a step was given; None where they cannot be told for certain."""
    flat = given.ids or given.positions
    if not flat or (given.ids and given.positions and _sizes(given.ids) != _sizes(given.positions)):
        return None
    if len(flat) == len(rows) and (len(rows) > 1 or padding is not Padding.RAGGED):
        if len(rows) > 1 and padding in (Padding.LEFT, Padding.RIGHT):
            return None  # padded rows are of another length each; the usual is left as it is
        parts = list(zip(range(len(rows)), *_pairs(given, flat), strict=True))
    else:
        if len(flat) != 1:
            return None
        parts = list(_segments(given, len(rows)))
    if not parts:
        return None
    found = [_stretch(row, ids, positions, rows, done) for row, ids, positions in parts]
    return None if any(stretch is None for stretch in found) else tuple(s for s in found if s)


def _sizes(values: Sequence[Sequence[int]]) -> list[int]:
    return [len(row) for row in values]


def _pairs(
    given: _Given, flat: Sequence[list[int]]
) -> tuple[Sequence[list[int]], Sequence[list[int]]]:
    nothing: list[list[int]] = [[] for _ in flat]
    return given.ids or nothing, given.positions or nothing


def _segments(given: _Given, count: int) -> Iterator[tuple[int, list[int], list[int]]]:
    """Cut a flat batch where positions do not go on; without positions it must be one row."""
    ids, positions = (values[0] if values else [] for values in (given.ids, given.positions))
    if not positions:
        if count == 1:
            yield 0, ids, []
        return
    ends = [i for i in range(1, len(positions)) if positions[i] != positions[i - 1] + 1]
    bounds = [0, *ends, len(positions)]
    if len(bounds) - 1 > count:
        return
    for row, (start, stop) in enumerate(pairwise(bounds)):
        yield row, ids[start:stop], positions[start:stop]


def _stretch(
    row: int,
    ids: list[int],
    positions: list[int],
    rows: Sequence[Sequence[int]],
    done: Sequence[int],
) -> Stretch | None:
    """Place one row's tokens; ids alone have to fit in one place only."""
    count = max(len(ids), len(positions))
    if positions:
        first = positions[0]
        if positions != list(range(first, first + count)):
            return None
        fits = not ids or list(rows[row][first : first + count]) == ids
        return Stretch(row=row, first=first, count=count) if fits else None
    whole = list(rows[row])
    if whole[done[row] : done[row] + count] == ids:  # it goes on where the step before ended
        return Stretch(row=row, first=done[row], count=count)
    place = _only_place(whole, ids)
    return None if place is None else Stretch(row=row, first=place, count=count)


def _only_place(whole: Sequence[int], ids: Sequence[int]) -> int | None:
    """Find the one place where a row has certain tokens; None where there is none, or several."""
    letters: dict[int, str] = {}
    if len(set(whole)) + len(set(ids)) > sys.maxunicode:
        return None
    # Text is searched in a time that grows with the lengths, and not with their product.
    text, part = (
        "".join([letters.setdefault(token, chr(len(letters))) for token in side])
        for side in (whole, ids)
    )
    place = text.find(part)
    return place if place >= 0 and text.find(part, place + 1) < 0 else None
