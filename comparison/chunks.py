"""Prompts that an engine computed in part or in pieces: cached prefixes, chunked prefills.

Which tokens a step computed is what the manifest says, or else what the dump itself shows: the
token ids and positions that the model was given. A model that is called several times in a step
was given a chunk each time; every call becomes a step of its own here.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise, takewhile

import numpy as np

from comparison.align.rows import Layout
from comparison.align.token_rows import row_readings
from comparison.numerics.dtypes import Array
from comparison.observed_stretches import Step, entries_by_step, observed_stretches
from comparison.schema.manifest import Padding, Stretch
from comparison.schema.tensor_entry import TensorEntry
from comparison.schema.tensor_names import parse_tensor_name
from comparison.store.dump import Dump


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
    stretches = apart.manifest.stretches or observed_stretches(apart)
    if not stretches:
        return dump
    manifest = replace(apart.manifest, stretches=stretches, steps=len(stretches))
    notes = _notes([len(row.token_ids) for row in manifest.rows], stretches)
    return replace(apart, manifest=manifest, notes=(*dump.notes, *notes))


def _one_call_a_step(dump: Dump) -> Dump:
    """Give every call of the whole model a step of its own."""
    forwards = {step: _forwards(entries) for step, entries in entries_by_step(dump).items()}
    if max(forwards.values(), default=1) < 2:
        return dump
    first = dict(zip(forwards, np.cumsum([0, *forwards.values()]).tolist(), strict=False))
    calls = {step: _calls(entries) for step, entries in entries_by_step(dump).items()}
    moved = {
        entry: _moved(entry, calls[entry.step], forwards[entry.step], first[entry.step])
        for entry in dump.entries
    }
    problems = {moved[entry]: why for entry, why in dump.problems.items()}
    return replace(dump, entries=tuple(moved.values()), problems=problems)


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
