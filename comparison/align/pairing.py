"""Which tensor of one dump means the same as which of the other."""

from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from comparison.align.fused import FusedPart, fused_module_of
from comparison.align.renames import (
    CanonicalName,
    canonical_name,
    differs_by_engine,
    was_hooked,
)
from comparison.align.unpaired import UnpairedReasons
from comparison.schema.comparison import Unpaired
from comparison.schema.outcome import Side
from comparison.schema.tensor_entry import TensorEntry
from comparison.schema.tensor_names import parse_tensor_name

Place = tuple[int | None, int]  # rank and step
Key = tuple[Place, CanonicalName]
CallKey = tuple[Place, str]  # place and name of the first call


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedPair:
    """Two tensors to be compared.

    Attributes:
        reference: the reference's tensor.
        candidate: the candidate's tensor.
        reason: why they are a pair.
        fused: which part of which side is meant; None for whole tensors.
        addend: another tensor of the candidate that has to be added to it first.
    """

    reference: TensorEntry
    candidate: TensorEntry
    reason: str
    fused: FusedPart | None = None
    addend: TensorEntry | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairing:
    """Every tensor of both dumps, paired or not.

    Attributes:
        pairs: in order of execution.
        unpaired: the reference's first.
    """

    pairs: tuple[PlannedPair, ...]
    unpaired: tuple[Unpaired, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """The tensors of one dump.

    Attributes:
        entries: by step and order.
        engine: who dumped them, None where it is not known.
        order_known: whether the order is that of execution.
    """

    entries: Sequence[TensorEntry]
    engine: str | None
    order_known: bool = True


def pair_tensors(reference: Listing, candidate: Listing) -> Pairing:
    """Pair the tensors of two dumps: those of one name first, then by what the name means."""
    sides = (
        _Grouped.of(Side.REFERENCE, reference, other=candidate),
        _Grouped.of(Side.CANDIDATE, candidate, other=reference),
    )
    engines = reference.engine, candidate.engine
    across = None not in engines and engines[0] != engines[1]
    matcher = _Matcher(*sides, across=across, alike=engines[0] == engines[1])
    matcher.match_all()
    by_candidate = candidate.order_known and not reference.order_known

    def position(pair: PlannedPair) -> tuple[int, int, int, int]:
        entry = pair.candidate if by_candidate else pair.reference
        part = pair.fused.position if pair.fused else 0
        return entry.step, -1 if entry.rank is None else entry.rank, entry.order, part

    return Pairing(
        pairs=tuple(sorted(matcher.pairs, key=position)), unpaired=tuple(matcher.unpaired())
    )


def pair_lone_files(reference: TensorEntry, candidate: TensorEntry) -> Pairing:
    """Pair two tensors that were given as files, whatever their names."""
    pair = PlannedPair(reference=reference, candidate=candidate, reason="two files given alone")
    return Pairing(pairs=(pair,), unpaired=())


@dataclass(slots=True, kw_only=True)
class _Grouped:
    """One dump, by what its tensors mean."""

    side: Side
    entries: Sequence[TensorEntry]
    groups: dict[Key, list[TensorEntry]] = field(default_factory=dict)
    keys: dict[TensorEntry, Key] = field(default_factory=dict)
    places: dict[TensorEntry, Place] = field(default_factory=dict)

    @classmethod
    def of(cls, side: Side, listing: Listing, *, other: Listing) -> "_Grouped":
        grouped = cls(side=side, entries=listing.entries)
        place = _place_function(listing.entries, other.entries)
        for entry in listing.entries:
            grouped.places[entry] = place(entry)
            name = canonical_name(entry.name, engine=listing.engine, other=other.engine)
            if name is not None:
                key = (grouped.places[entry], name)
                grouped.keys[entry] = key
                grouped.groups.setdefault(key, []).append(entry)
        return grouped

    def calls(self) -> Counter[CallKey]:
        """Count the calls of each module in a step."""
        return Counter(map(self.call_key, self.entries))

    def call_key(self, entry: TensorEntry) -> CallKey:
        """Give what all calls of one module in a step have in common."""
        parsed = parse_tensor_name(entry.name)
        return self.places[entry], entry.name if parsed is None else str(replace(parsed, call=1))


class _PlaceFunction:
    """Rank and step of an entry, without what only names the sole one."""

    def __init__(self, *, sole_rank: int | None, one_step: bool) -> None:
        self._sole_rank, self._one_step = sole_rank, one_step

    def __call__(self, entry: TensorEntry) -> Place:
        rank = None if entry.rank == self._sole_rank else entry.rank
        return rank, 0 if self._one_step else entry.step


def _place_function(
    entries: Sequence[TensorEntry], others: Sequence[TensorEntry]
) -> _PlaceFunction:
    own, other = ({entry.rank for entry in side} for side in (entries, others))
    sole = _sole_rank(own, other)
    # Two dumps of one step each are held against each other, whichever step it is.
    one_step = all(len({entry.step for entry in side}) <= 1 for side in (entries, others))
    return _PlaceFunction(sole_rank=sole, one_step=one_step)


def _sole_rank(own: set[int | None], other: set[int | None]) -> int | None:
    """Choose the rank that is held against a dump of one rank, or of one process."""
    if len(own) > 1 and len(other) > 1:
        return None
    if len(own) == 1:
        return next(iter(own))
    if own & other:
        return next(iter(own & other))
    return min((rank for rank in own if rank is not None), default=None)


class _Matcher:
    def __init__(
        self, reference: _Grouped, candidate: _Grouped, *, across: bool, alike: bool
    ) -> None:
        self._reference, self._candidate = reference, candidate
        self._alike = alike  # of one engine, or of none that is known
        self._across = across  # between two engines that are known and differ
        self._calls = (reference.calls(), candidate.calls()) if across else (Counter(), Counter())
        self.pairs: list[PlannedPair] = []
        self._reasons: dict[TensorEntry, str] = {}
        self._used: dict[Side, set[TensorEntry]] = {side: set() for side in Side}

    def match_all(self) -> None:
        """Pair equal names, then groups of one meaning, then parts of fused projections."""
        self._match_equal_names()
        for key, entries in self._reference.groups.items():
            others = self._candidate.groups.get(key)
            if others:
                self._match_group(key[1], entries, others)
        self._match_fused(self._reference, self._candidate)
        self._match_fused(self._candidate, self._reference)

    def _match_equal_names(self) -> None:
        others: defaultdict[tuple[Place, str], deque[TensorEntry]] = defaultdict(deque)
        for entry in self._candidate.entries:
            others[self._candidate.places[entry], entry.name].append(entry)
        for entry in self._reference.entries:
            same = others[self._reference.places[entry], entry.name]
            if same and self._means_the_same(entry, same[0]):
                self._pair(entry, same.popleft(), reason="same name")

    def _means_the_same(self, reference: TensorEntry, candidate: TensorEntry) -> bool:
        """Tell whether two tensors of one name also mean the same."""
        if not self._across:
            return True
        own, other = self._reference, self._candidate
        calls = self._calls[0][own.call_key(reference)], self._calls[1][other.call_key(candidate)]
        if calls[0] != calls[1]:
            return False  # the last call of one is held against the other's only one
        meanings = own.keys.get(reference), other.keys.get(candidate)
        if meanings == (None, None):
            return not differs_by_engine(reference.name)
        return meanings[0] == meanings[1] or not was_hooked(reference.name)

    def _match_group(
        self, name: CanonicalName, reference: list[TensorEntry], candidate: list[TensorEntry]
    ) -> None:
        left = _by_call(self._left(Side.REFERENCE, reference))
        right = _by_call(self._left(Side.CANDIDATE, candidate))
        if not left and not right:
            return
        untouched = len(left) == len(_by_call(reference)) and len(right) == len(_by_call(candidate))
        for calls, note in _match_calls(list(left), list(right), by_number=not untouched):
            pair = _choose(left[calls[0]], right[calls[1]])
            reason = "same name" if pair[0].name == pair[1].name else f"both are {name}"
            self._pair(*pair, reason=f"{reason}; {note}" if note else reason)
        counts = len(_by_call(reference)), len(_by_call(candidate))
        self._explain(Side.REFERENCE, reference, counts)
        self._explain(Side.CANDIDATE, candidate, counts)

    def _left(self, side: Side, entries: list[TensorEntry]) -> list[TensorEntry]:
        return [entry for entry in entries if entry not in self._used[side]]

    def _explain(self, side: Side, entries: list[TensorEntry], counts: tuple[int, int]) -> None:
        """Keep why some tensors of one meaning are left over."""
        compared = {_call(entry): entry for entry in entries if entry in self._used[side]}
        for entry in self._left(side, entries):
            chosen = compared.get(_call(entry))
            self._reasons[entry] = (
                f"the module was called {counts[0]} times in the reference and {counts[1]} "
                "times in the candidate; this call has no counterpart"
                if chosen is None
                else f"a second tensor of this meaning; {chosen.name} was compared"
            )

    def _match_fused(self, separate: _Grouped, fused: _Grouped) -> None:
        """Pair parts of `separate` with blocks of fused tensors that the other side has."""
        for key, entries in list(separate.groups.items()):
            place, name = key
            whole_module = fused_module_of(name.module)
            is_first_output = name.side == "output" and name.slot == "0"
            if whole_module is None or not is_first_output:
                continue
            if any(entry in self._used[separate.side] for entry in entries):
                continue
            whole = fused.groups.get((place, _renamed(name, whole_module.name)))
            if whole:
                parts = tuple(
                    self._part(separate, (place, _renamed(name, part)))
                    for part in whole_module.parts
                )
                self._pair_part(separate, entries[-1], whole[-1], parts, whole_module.position)

    @staticmethod
    def _part(separate: _Grouped, key: Key) -> TensorEntry | None:
        entries = separate.groups.get(key)
        return entries[-1] if entries else None

    def _pair_part(
        self,
        separate: _Grouped,
        part: TensorEntry,
        whole: TensorEntry,
        parts: tuple[TensorEntry | None, ...],
        position: int,
    ) -> None:
        fused_is_candidate = separate.side is Side.REFERENCE
        block = ("first", "second", "third")[position]
        self._pair(
            part if fused_is_candidate else whole,
            whole if fused_is_candidate else part,
            reason=f"derived: {block} of {len(parts)} blocks of the fused {whole.name}",
            fused=FusedPart(position=position, parts=parts, fused_is_candidate=fused_is_candidate),
        )

    def _pair(
        self,
        reference: TensorEntry,
        candidate: TensorEntry,
        *,
        reason: str,
        fused: FusedPart | None = None,
    ) -> None:
        self.pairs.append(
            PlannedPair(reference=reference, candidate=candidate, reason=reason, fused=fused)
        )
        self._used[Side.REFERENCE].add(reference)
        self._used[Side.CANDIDATE].add(candidate)

    def unpaired(self) -> Iterator[Unpaired]:
        """Give what is left, each with its reason."""
        for own, other in (
            (self._reference, self._candidate),
            (self._candidate, self._reference),
        ):
            reasons = UnpairedReasons(
                other_side=other.side,
                other_places=set(other.places.values()),
                other_modules={(place, name.module) for place, name in other.groups},
                alike=self._alike,
            )
            for entry in own.entries:
                if entry not in self._used[own.side]:
                    key = own.keys.get(entry)
                    reason = self._reasons.get(entry) or reasons.reason(
                        entry, place=own.places[entry], name=key[1] if key else None
                    )
                    is_gap = reasons.is_gap(entry, place=own.places[entry])
                    yield Unpaired(side=own.side, entry=entry, reason=reason, is_gap=is_gap)


def _renamed(name: CanonicalName, module: str) -> CanonicalName:
    return CanonicalName(module=module, side=name.side, slot=name.slot)


def _call(entry: TensorEntry) -> int:
    parsed = parse_tensor_name(entry.name)
    return parsed.call if parsed else 1


def _by_call(entries: list[TensorEntry]) -> dict[int, list[TensorEntry]]:
    calls: defaultdict[int, list[TensorEntry]] = defaultdict(list)
    for entry in entries:
        calls[_call(entry)].append(entry)
    return dict(sorted(calls.items()))


def _match_calls(
    reference: list[int], candidate: list[int], *, by_number: bool
) -> Iterator[tuple[tuple[int, int], str]]:
    """Yield pairs of calls of a module within a step; a single call is held against the last.

    Args:
        reference: numbers of the calls, ascending.
        candidate: numbers of the calls, ascending.
        by_number: whether other calls of the module are paired already, so that only equal
            numbers mean the same.
    """
    if not reference or not candidate:
        return
    there = set(candidate)
    if by_number:
        yield from (((call, call), "") for call in reference if call in there)
    elif len(reference) == len(candidate):
        for calls in zip(reference, candidate, strict=True):
            yield calls, ""
    elif len(reference) == 1:
        note = f"the last of {len(candidate)} calls in the candidate, called once in the reference"
        yield (reference[0], candidate[-1]), note
    elif len(candidate) == 1:
        note = f"the last of {len(reference)} calls in the reference, called once in the candidate"
        yield (reference[-1], candidate[0]), note
    else:
        for call in reference:
            if call in there:
                yield (call, call), f"call {call} of {len(reference)} and of {len(candidate)}"


def _choose(
    reference: list[TensorEntry], candidate: list[TensorEntry]
) -> tuple[TensorEntry, TensorEntry]:
    """Take tensors of the same name; else the last, since parents fire after their children."""
    names = {entry.name: entry for entry in reversed(candidate)}
    for entry in reference:
        if entry.name in names:
            return entry, names[entry.name]
    return reference[-1], candidate[-1]
