"""The candidate's values by the reference's names: rows cut out, steps joined, parts put together.

Everything that is known of the candidate comes from its dump.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import numpy as np

from comparison.align.fused import FusedPart, slice_of_part
from comparison.align.layer_shift import Stack, shifted, uneven_stack
from comparison.align.pairing import Listing, Pairing, PlannedPair, pair_tensors
from comparison.align.shards import sizes_on_rank
from comparison.align.structure import Placed
from comparison.align.token_rows import TokenRow, Wanted, token_rows
from comparison.numerics.dtypes import Array
from comparison.schema.errors import BadInputError, CorruptFileError, MissingPathError
from comparison.schema.tensor_entry import TensorEntry
from comparison.store.dump import Dump
from diagnosis.dump_layout import layout_of
from diagnosis.name_map import NameMap, with_map
from diagnosis.rank_tensors import RankTensors, Rows, Share, Together
from diagnosis.replay.reference_trace import TracedTensor
from diagnosis.residual_sums import with_residual_sums
from diagnosis.structure_pairs import with_structure

_CACHED_TENSORS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Pinned:
    """What the candidate's dump holds for one tensor of the reference.

    Attributes:
        rows: by number of the call; positions and values.
        names: the candidate's names of it.
        dtype: numpy's name of its dtype.
        shares: where several ranks hold parts, which channels each holds.
        summed: where every rank went on with a summand of its own, the sum; by number of the call.
    """

    rows: Mapping[int, TokenRow]
    names: tuple[str, ...]
    dtype: str
    shares: tuple[Share, ...] = ()
    summed: Mapping[int, TokenRow] = field(default_factory=dict)


class _MisshapenError(BadInputError):
    """A tensor has another size than its counterpart."""


class CandidateTensors:
    """Looks up the candidate's values of the reference's tensors."""

    def __init__(
        self,
        dump: Dump,
        traced: Mapping[str, TracedTensor],
        *,
        engine: str,
        place: Callable[[], Sequence[Placed]],
        names: NameMap | None = None,
        rank: int | None = None,
    ) -> None:
        """Pair the dump with the traced tensors.

        Args:
            dump: the candidate's.
            traced: the reference's tensors by name.
            engine: the engine of the reference.
            place: gives the reference's tensors with their values, where names do not do.
            names: pairs that the user gives, instead of those found.
            rank: of several, the one whose copies count; None for the first.

        Raises:
            BadInputError: the user's pairs name tensors that do not exist.
        """
        self._dump, self._traced = dump, traced
        reference = _reference_entries(dump, traced)
        by_name = pair_tensors(
            Listing(entries=reference, engine=engine),
            Listing(entries=dump.entries, engine=dump.engine, order_known=dump.order_known),
        )
        found = with_residual_sums(
            with_structure(by_name, dump, place, reference_engine=engine), dump, reference
        )
        self._reference = reference
        self._take(with_map(found, names or {}, reference, dump.entries))
        manifest = dump.manifest
        rows = () if manifest is None else manifest.rows
        self._lengths = tuple(len(row.token_ids) for row in rows)
        self.ranks = RankTensors(dump, rank=rank)
        self._read = lru_cache(maxsize=_CACHED_TENSORS)(dump.read)
        self.unusable: dict[str, str] = {}
        self.misshapen: dict[str, str] = {}
        self.unreadable: dict[str, str] = {entry.name: why for entry, why in dump.problems.items()}

    def _take(self, pairing: Pairing) -> None:
        self.pairing = pairing
        self._pairs: defaultdict[str, list[PlannedPair]] = defaultdict(list)
        for pair in pairing.pairs:
            self._pairs[pair.reference.name].append(pair)

    def uneven_stack(self) -> Stack | None:
        """Return the stack of which both sides have another number of layers, if there is one."""
        return uneven_stack(self.pairing, self._reference, self._dump.entries)

    def with_layers(self, stack: Stack, layers: Mapping[int, int]) -> CandidateTensors:
        """Pair the layers of a stack otherwise.

        Args:
            stack: the stack.
            layers: the reference's layer by the candidate's.
        """
        other = copy(self)
        other.ranks = RankTensors(self._dump, rank=self.ranks.rank)
        other.unusable, other.unreadable = {}, dict(self.unreadable)
        entries = self._reference, self._dump.entries
        other._take(shifted(self.pairing, *entries, stack=stack, layers=layers))
        return other

    def names(self) -> Sequence[str]:
        """Return the reference's tensors that have a counterpart."""
        return list(self._pairs)

    def candidate_names(self, name: str) -> tuple[str, ...]:
        """Return what the candidate calls a tensor of the reference."""
        return tuple(dict.fromkeys(pair.candidate.name for pair in self._pairs.get(name, ())))

    def pinned(self, name: str) -> Pinned | None:
        """Return the candidate's values of one of the reference's tensors.

        Why there are none for a tensor that has a counterpart is kept in `unusable`, and
        in `unreadable` as well where its file is damaged, or gone by now.
        """
        pairs = self._pairs.get(name)
        if not pairs:
            return None
        try:
            return self._joined(name, pairs)
        except (CorruptFileError, MissingPathError) as error:
            self.unreadable[name] = self.unusable[name] = str(error)
            return None
        except _MisshapenError as error:
            self.unusable[name] = str(error)
            if "-output" in name and not _counts_keys(self._traced[name]):
                self.misshapen[name] = str(error)
            return None
        except BadInputError as error:
            self.unusable[name] = str(error)
            return None

    def _joined(self, name: str, pairs: Sequence[PlannedPair]) -> Pinned:
        by_row: defaultdict[int, list[TokenRow]] = defaultdict(list)
        summed: defaultdict[int, list[TokenRow]] = defaultdict(list)
        dtype = ""
        shares: tuple[Share, ...] = ()
        for step, group in _by_step(pairs).items():
            arrays = {rank: self._array(name, own) for rank, own in _by_rank(group).items()}
            dtype = next(iter(arrays.values())).dtype.name
            found = self._together(name, arrays, group[0], step)
            shares = found.shares
            for rows, into in ((found.rows, by_row), (found.summed, summed)):
                for number, row in rows.items():
                    into[number].append(row)
        return Pinned(
            rows={number: _concatenated(found) for number, found in by_row.items()},
            names=self.candidate_names(name),
            dtype=dtype,
            shares=shares,
            summed={number: _concatenated(found) for number, found in summed.items()},
        )

    def _together(
        self, name: str, arrays: Mapping[int | None, Array], pair: PlannedPair, step: int
    ) -> Together:
        if len(self.ranks.ranks) < 2:
            return Together(rows=self._rows(name, next(iter(arrays.values())), step))
        return self.ranks.join(
            name,
            {rank: array for rank, array in arrays.items() if rank is not None},
            entry=pair.candidate,
            wanted=self._traced[name].wanted,
            copies=lambda array: self._rows(name, array, step),
            cut=lambda array, wanted: (
                self._cut(array, wanted, step) if self._traced[name].is_regular else None
            ),
            from_parts=lambda: self._from_parts(name),
        )

    def _cut(self, array: Array, wanted: Wanted, step: int) -> Rows | None:
        rows = token_rows(array, layout_of(self._dump, step), wanted)
        return None if rows is None else dict(enumerate(rows))

    def _from_parts(self, name: str) -> bool:
        """Tell whether what a module got lies in parts on the ranks."""
        module, _, side = name.rpartition("-")
        if not side.startswith("output"):
            return False
        inputs = [other for other in self._pairs if other.startswith(f"{module}-input")]
        found = [self.pinned(other) for other in inputs]
        return any(pin is not None and pin.shares for pin in found)

    def _array(self, name: str, group: Sequence[PlannedPair]) -> Array:
        """Read one step's tensor, a part of a fused one, or several parts as one."""
        first = group[0]
        if first.addend is not None:
            return _sum(self._read(first.candidate), self._read(first.addend))
        if first.fused is None:
            return self._read(first.candidate)
        if first.fused.fused_is_candidate:
            return self._part(first.fused, self._read(first.candidate))
        parts = {pair.fused.position: pair for pair in group if pair.fused is not None}
        if len(parts) != len(first.fused.parts):
            raise BadInputError(f"not all parts of the fused {name} were dumped")
        return np.concatenate(
            [np.asarray(self._read(parts[i].candidate)) for i in sorted(parts)], axis=-1
        )

    def _part(self, fused: FusedPart, whole: Array) -> Array:
        sizes = [None if part is None else _last(self._traced[part.name]) for part in fused.parts]
        ranks = max(len(self.ranks.ranks), 1)
        if ranks > 1:
            sizes = list(sizes_on_rank(sizes, whole.shape[-1], ranks=ranks))
        place = slice_of_part(sizes, fused.position, whole.shape[-1])
        if isinstance(place, str):
            raise BadInputError(place)
        return whole[..., place]

    def _rows(self, name: str, array: Array, step: int) -> dict[int, TokenRow]:
        traced = self._traced[name]
        if not self._lengths:
            return {0: _whole(name, array, traced)}
        layout = layout_of(self._dump, step)
        if traced.token_axis is None and not traced.is_mask:
            if array.shape[:1] == (1,) and set(traced.shapes.values()) == {array.shape}:
                array = np.broadcast_to(array, (len(self._lengths), *array.shape[1:]))
            if array.shape[:1] != (len(self._lengths),):
                raise BadInputError(f"{list(array.shape)} holds no value a row")
            return {
                row: TokenRow(positions=np.array([0]), values=array[row : row + 1])
                for row in range(len(self._lengths))
                if step == 0
            }
        if not traced.is_mask and not traced.is_regular:
            raise BadInputError(
                "what it holds of a token has another shape in each row of the batch, such as one "
                "value for each earlier token"
            )
        rows = token_rows(array, layout, traced.wanted)
        if rows is None:
            raise _MisshapenError(
                f"{list(array.shape)} cannot be cut into rows of {list(traced.wanted.trailing)} "
                f"a token in step {step}"
            )
        return dict(enumerate(rows))


def _sum(left: Array, right: Array) -> Array:
    """Add in float32 and round once, as an engine that keeps them apart adds them."""
    if left.shape != right.shape:
        raise BadInputError(f"{list(left.shape)} and {list(right.shape)} cannot be added")
    wide = np.promote_types(left.dtype, np.float32) if left.dtype.kind in "fc" else np.float32
    return np.asarray(left.astype(wide) + right.astype(wide)).astype(left.dtype)


def _counts_keys(traced: TracedTensor) -> bool:
    """Tell masks and attention weights, whose keys are fewer in chunks and windows."""
    shape, axis = traced.shapes[min(traced.shapes)], traced.token_axis
    if traced.is_mask or axis is None:
        return traced.is_mask
    rest = shape[:axis] + shape[axis + 1 :]
    return len(shape) == 4 and shape[axis] in rest


def _whole(name: str, array: Array, traced: TracedTensor) -> TokenRow:
    shape = traced.shapes[min(traced.shapes)]
    if array.size != int(np.prod(shape)):
        raise _MisshapenError(f"{name}: {list(shape)} in the reference, {list(array.shape)} here")
    return TokenRow(positions=np.array([0]), values=array.reshape(1, *shape))


def _by_step(pairs: Sequence[PlannedPair]) -> dict[int, list[PlannedPair]]:
    steps: defaultdict[int, list[PlannedPair]] = defaultdict(list)
    for pair in pairs:
        steps[pair.candidate.step].append(pair)
    return dict(sorted(steps.items()))


def _by_rank(pairs: Sequence[PlannedPair]) -> dict[int | None, list[PlannedPair]]:
    ranks: defaultdict[int | None, list[PlannedPair]] = defaultdict(list)
    for pair in pairs:
        ranks[pair.candidate.rank].append(pair)
    return dict(ranks)


def _last(traced: TracedTensor) -> int | None:
    shape = traced.shapes[min(traced.shapes)]
    return shape[-1] if shape else None


def _concatenated(rows: Sequence[TokenRow]) -> TokenRow:
    if len(rows) == 1:
        return rows[0]
    trailing = rows[0].values.shape[1:]
    values = [row.values for row in rows if row.values.shape[1:] == trailing]
    if len(values) != len(rows):  # masks grow from step to step
        return rows[0]
    return TokenRow(
        positions=np.concatenate([row.positions for row in rows]), values=np.concatenate(values)
    )


def _reference_entries(dump: Dump, traced: Mapping[str, TracedTensor]) -> tuple[TensorEntry, ...]:
    """List the reference's tensors as if they had been dumped, for each step of the candidate."""
    ranks_and_steps = sorted({(entry.rank, entry.step) for entry in dump.entries}, key=str)
    return tuple(
        TensorEntry(name=name, step=step, order=order, path=Path(), rank=rank)
        for rank, step in ranks_and_steps
        for order, name in enumerate(traced)
    )
