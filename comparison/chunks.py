"""Prompts that an engine computed in part or in pieces: cached prefixes, chunked prefills.

Which tokens a step computed is what the manifest says, or else what the dump itself shows: the
token ids and positions that the model was given. A model that is called several times in a step
was given a chunk each time; every call becomes a step of its own here.
"""

import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise, takewhile

import numpy as np

from comparison.align.rows import Layout
from comparison.align.token_rows import row_readings
from comparison.numerics.dtypes import Array
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


def with_stretches(dump: Dump) -> Dump:
    """Say of each step which tokens it computed, where that is not the usual.

    Args:
        dump: one whose manifest holds the rows' token ids; any other is returned as it is.

    Returns:
        The dump with `stretches` in its manifest, a step a call of the model, and a note.
    """
    if dump.manifest is None or not dump.manifest.rows:
        return dump
    apart = dump if dump.manifest.stretches else _one_call_a_step(dump)
    if apart.manifest is None:
        return dump
    stretches = apart.manifest.stretches or _observed(apart)
    if not stretches:
        return dump
    manifest = replace(apart.manifest, stretches=stretches, steps=len(stretches))
    notes = _notes([len(row.token_ids) for row in manifest.rows], stretches)
    return replace(apart, manifest=manifest, notes=(*dump.notes, *notes))


def _one_call_a_step(dump: Dump) -> Dump:
    """Give every call of the whole model a step of its own."""
    forwards = {step: _forwards(entries) for step, entries in _by_step(dump).items()}
    if max(forwards.values(), default=1) < 2:
        return dump
    first = dict(zip(forwards, np.cumsum([0, *forwards.values()]).tolist(), strict=False))
    calls = {step: _calls(entries) for step, entries in _by_step(dump).items()}
    moved = {
        entry: _moved(entry, calls[entry.step], forwards[entry.step], first[entry.step])
        for entry in dump.entries
    }
    problems = {moved[entry]: why for entry, why in dump.problems.items()}
    return replace(dump, entries=tuple(moved.values()), problems=problems)


def _by_step(dump: Dump) -> dict[int, list[TensorEntry]]:
    found: defaultdict[int, list[TensorEntry]] = defaultdict(list)
    for entry in dump.entries:
        found[entry.step].append(entry)
    return dict(sorted(found.items()))


def _calls(entries: Sequence[TensorEntry]) -> Counter[str]:
    """Count the calls of each module in a step."""
    found: Counter[str] = Counter()
    for entry in entries:
        parsed = parse_tensor_name(entry.name)
        if parsed is not None:
            found[parsed.module] = max(found[parsed.module], parsed.call)
    return found


def _forwards(entries: Sequence[TensorEntry]) -> int:
    """Return how often most of the modules were called."""
    return Counter(_calls(entries).values()).most_common(1)[0][0] if _calls(entries) else 1


def _moved(entry: TensorEntry, calls: Counter[str], forwards: int, first: int) -> TensorEntry:
    """Put a call into the forward that it belongs to."""
    parsed = parse_tensor_name(entry.name)
    if parsed is None:
        return replace(entry, step=first)
    per_forward, rest = divmod(calls[parsed.module], forwards)
    if rest or not per_forward:
        return replace(entry, step=first)
    forward, call = divmod(parsed.call - 1, per_forward)
    return replace(entry, step=first + forward, name=str(replace(parsed, call=call + 1)))


@dataclass(slots=True, kw_only=True)
class _Given:
    """What a step's model was given, one list a row of the batch.

    Attributes:
        ids: token ids; empty where they were not dumped.
        positions: token positions; empty where they were not dumped.
    """

    ids: list[list[int]] = field(default_factory=list)
    positions: list[list[int]] = field(default_factory=list)


def _observed(dump: Dump) -> tuple[Step, ...]:
    """Read off which tokens each step computed; nothing where that is the usual, or not known."""
    assert dump.manifest is not None  # asked for before
    rows = [(*row.token_ids, *row.generated) for row in dump.manifest.rows]
    lengths = [len(row.token_ids) for row in dump.manifest.rows]
    done = [0] * len(rows)
    found: list[Step] = []
    usual = True
    for step, entries in _by_step(dump).items():
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


def _by_row(steps: Sequence[Step]) -> dict[int, list[Stretch]]:
    found: defaultdict[int, list[Stretch]] = defaultdict(list)
    for step in steps:
        for stretch in step:
            found[stretch.row].append(stretch)
    return found


def _notes(lengths: Sequence[int], steps: Sequence[Step]) -> Iterator[str]:
    """Say what was not computed, and what came in pieces."""
    by_row = _by_row(steps)
    for row, length in enumerate(lengths):
        prompt = [stretch for stretch in by_row.get(row, ()) if stretch.first < length]
        missing = ", ".join(_not_computed(length, prompt))
        which = f"of sequence {row} " if len(lengths) > 1 else ""
        if missing:
            yield f"rows {missing} {which}not computed (cached)"
        if len(prompt) > 1:
            sizes = ", ".join(str(stretch.count) for stretch in prompt)
            yield f"{len(prompt)} chunks {which}({sizes} tokens) were joined"


def _not_computed(length: int, prompt: Sequence[Stretch]) -> Iterator[str]:
    """Spell the tokens of a prompt that no stretch has as ranges, such as 0-3, 8."""
    begin = 0
    for first, count in [*sorted((s.first, s.count) for s in prompt), (length, 0)]:
        if begin < first:
            yield f"{begin}-{first - 1}" if first - begin > 1 else f"{begin}"
        begin = max(begin, first + count)


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedDump(Dump):
    """A dump whose prompt lies in pieces, read as if it were in one.

    Attributes:
        pieces: for each tensor of the prompt, its pieces with the steps that they are of.
    """

    pieces: dict[TensorEntry, tuple[TensorEntry, ...]] = field(default_factory=dict)
    steps: tuple[Step, ...] = ()

    def read(self, entry: TensorEntry) -> Array:
        """Read one tensor; pieces are laid one after the other, row by row.

        Raises:
            BadInputError: a piece cannot be read, or holds no value for each token.
        """
        pieces = self.pieces.get(entry)
        if pieces is None:
            return Dump.read(self, entry)
        return _laid_out([(piece.step, Dump.read(self, piece)) for piece in pieces], self)


def joined_chunks(dump: Dump) -> Dump:
    """Join the pieces of each prompt into step 0, so that steps mean the same in every dump.

    Args:
        dump: any; one whose steps are the usual ones is returned as it is.
    """
    found = with_stretches(dump)
    if found.manifest is None or not found.manifest.stretches:
        return dump
    lengths = [len(row.token_ids) for row in found.manifest.rows]
    steps = found.manifest.stretches
    leading = takewhile(lambda step: all(s.first < lengths[s.row] for s in step), steps)
    prompt = _without_empty_end(tuple(leading))
    count = len(prompt)
    of_prompt = _by_row(prompt)
    joined = tuple(_in_one(of_prompt.get(row, ())) for row in range(len(lengths)))
    if not count or any(stretch is None for stretch in joined):
        return dump
    pieces: defaultdict[tuple[int | None, str], list[TensorEntry]] = defaultdict(list)
    later: list[TensorEntry] = []
    for entry in found.entries:
        if entry.step < count:
            pieces[entry.rank, entry.name].append(entry)
        else:
            later.append(replace(entry, step=entry.step - count + 1))
    wholes = {replace(own[-1], step=0): tuple(own) for own in pieces.values()}
    first = tuple(stretch for stretch in joined if stretch is not None)
    manifest = replace(
        found.manifest, padding=Padding.RAGGED, stretches=(first, *steps[count:]), steps=0
    )
    return JoinedDump(
        path=found.path,
        manifest=manifest,
        entries=(*wholes, *later),
        problems={
            whole: found.problems[own[0]]
            for whole, own in wholes.items()
            if own[0] in found.problems
        },
        complete=found.complete,
        order_known=found.order_known,
        rank_folders=found.rank_folders,
        notes=found.notes,
        pieces=wholes,
        steps=prompt,
    )


def _without_empty_end(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    while steps and not steps[-1]:
        steps = steps[:-1]
    return steps


def skipped_tokens(dump: Dump) -> tuple[int, ...]:
    """Return how many tokens at each row's start the joined prompt lacks; empty for none."""
    if not isinstance(dump, JoinedDump) or dump.manifest is None:
        return ()
    first = tuple(stretch.first for stretch in dump.manifest.stretches[0])
    return first if any(first) else ()


def _in_one(own: Sequence[Stretch]) -> Stretch | None:
    """Join one row's stretches; None where they do not follow each other."""
    if any(b.first != a.first + a.count for a, b in pairwise(own)) or not own:
        return None
    count = sum(stretch.count for stretch in own)
    return Stretch(row=own[0].row, first=own[0].first, count=count)


def _laid_out(pieces: Sequence[tuple[int, Array]], dump: JoinedDump) -> Array:
    assert dump.manifest is not None  # pieces are known by it
    lengths = tuple(len(row.token_ids) for row in dump.manifest.rows)
    parts = []
    for step, array in pieces:
        if not dump.steps[step]:  # it computed nothing
            continue
        layout = Layout(
            padding=dump.manifest.padding, lengths=lengths, step=step, stretches=dump.steps[step]
        )
        rows = next(row_readings(array, layout), None)
        if rows is None:  # such as what one decode step alone has
            return pieces[-1][1]
        parts.append(rows)
    values = [part[row].values for row in range(len(lengths)) for part in parts]
    if len({value.shape[1:] for value in values}) > 1:  # masks grow from chunk to chunk
        return pieces[-1][1]
    return np.concatenate(values)
