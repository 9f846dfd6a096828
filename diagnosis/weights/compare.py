"""Compares the weights that two sides loaded, by value, through renames, fusion and transposition.

    found = compare_weights(reference, candidate)
    found.findings, found.absent, found.equal

What is found is no fault by itself: an engine may permute the rows of q and k alike, or fold the
weight of a norm into the next projection. Where the module that owns the weight is wrong too, its
weight says why.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from comparison.align.fused import fused_module_of
from comparison.align.renames import canonical_module
from comparison.numerics.dtypes import Array
from comparison.numerics.weight_record import WeightRecord, WeightSketch
from diagnosis.weights.finding import WeightComparison, WeightFinding, WeightKind, owner_of
from diagnosis.weights.lines import Lines, difference, same_lines
from diagnosis.weights.places import Placed, placed, placed_vector
from diagnosis.weights.strips import StripIndex, strips_of

_REARRANGED = (WeightKind.TRANSPOSED, WeightKind.PERMUTED_ROWS, WeightKind.PERMUTED_COLUMNS)
_ENOUGH = 16  # values of a vector, to tell it from others


def weight_findings(reference: WeightRecord, candidate: WeightRecord) -> tuple[WeightFinding, ...]:
    """Return the weights that differ, as `compare_weights` finds them."""
    return compare_weights(reference, candidate).findings


def compare_weights(reference: WeightRecord, candidate: WeightRecord) -> WeightComparison:
    """Hold the weights of two runs against each other.

    Args:
        reference: what the reference loaded.
        candidate: what the candidate loaded.
    """
    return _Comparing(reference, candidate).result()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """What of the candidate should be one of the reference's weights, by its name.

    Attributes:
        weight: the candidate's weight.
        first: its first row that is meant.
        count: how many rows are.
        is_fused: whether other rows are others' weights.
    """

    weight: WeightSketch
    first: int = 0
    count: int
    is_fused: bool = False

    @property
    def name(self) -> str:
        """The candidate's name of it."""
        return self.weight.name

    def lines(self) -> Lines | None:
        """Return what is known of it, None where its values are not."""
        if self.weight.rows is None:
            return None
        rows = self.weight.rows[:, self.first : self.first + self.count]
        return _lines(self.weight, rows, None if self.is_fused else self.weight.columns)


class _Comparing:
    def __init__(self, reference: WeightRecord, candidate: WeightRecord) -> None:
        self._sides = {"reference": reference, "candidate": candidate}
        self._mine = [weight for weight in reference.weights if weight.rows is not None]
        self._by_name = {_canonical(weight.name): weight for weight in reversed(self._mine)}
        self._named = {_canonical(w.name): w for w in reversed(candidate.weights)}
        theirs = [strip for weight in candidate.weights for strip in strips_of(weight)]
        self._theirs = StripIndex(theirs)
        mine = (strip for weight in self._mine for strip in strips_of(weight))
        self._rows_of_mine = StripIndex(strip for strip in mine if strip.is_rows)
        self._findings: list[WeightFinding] = []
        self._conventions: list[WeightFinding] = []
        self._absent: list[str] = []
        self._same: list[str] = []
        self._unknown = 0

    def result(self) -> WeightComparison:
        for weight in self._mine:
            self._judge(weight)
        odd = len(self._findings) + len(self._absent) + self._unknown
        return WeightComparison(
            findings=tuple(self._findings),
            conventions=tuple(self._conventions),
            absent=tuple(self._absent),
            equal=len(self._mine) - odd,
            same=tuple(self._same),
            not_compared=tuple(self._unreadable()),
        )

    def _unreadable(self) -> Iterator[str]:
        for role, record in self._sides.items():
            for weight in record.weights:
                if weight.unreadable:
                    yield f"{weight.name} of the {role}: {weight.unreadable}"

    def _judge(self, weight: WeightSketch) -> None:
        part = self._part(weight)
        theirs = None if part is None else part.lines()
        ours = _lines_of(weight)
        if part is not None and theirs is None:
            self._unknown += 1
        elif part is None or theirs is None or theirs.shape != ours.shape:
            self._judge_by_value(weight)
        elif same_lines(ours, theirs):
            self._same.append(weight.name)
        else:
            self._judge_against(weight, part, ours, theirs)

    def _judge_by_value(self, weight: WeightSketch) -> None:
        """Judge a weight that the candidate has under no name that is known."""
        places = self._places(weight)
        odd = [place for place in places if place.kind is not None]
        if not odd:
            self._note_interleaved(weight, places)
        elif not any(place.share for place in places):
            self._absent.append(weight.name)
        else:
            first = odd[0]
            of = f"{len(odd)} of {len(places)} matrices differ; " if len(places) > 1 else ""
            kind = first.kind or WeightKind.DIFFERENT
            self._note(weight, first.holder, kind, of + first.evidence)

    def _judge_against(self, weight: WeightSketch, part: _Part, ours: Lines, theirs: Lines) -> None:
        """Judge a weight whose namesake has other values."""
        places = self._places(weight)
        moved = [p for p in places if p.kind in _REARRANGED and p.holder == part.name]
        if moved:
            self._note(weight, part.name, moved[0].kind or WeightKind.DIFFERENT, moved[0].evidence)
            return
        if part.is_fused and self._is_interleaved(places, part):
            self._note_interleaved(weight, places)
            return
        seen = difference(ours, theirs)
        if seen.kind is None:
            return
        held = None if seen.kind is WeightKind.MISSING else self._held(weight, theirs)
        if held is not None:
            self._note_held(weight, part, held)
        elif part.weight.supplied is False:
            evidence = "the model computes with the values it was made with, no checkpoint's"
            self._note(weight, part.name, WeightKind.UNTOUCHED, evidence)
        elif _is_one_added(weight, seen.offset):
            self._conventions.append(_finding(weight, part.name, seen.kind, seen.evidence))
        else:
            self._note(weight, part.name, seen.kind, seen.evidence)

    def _held(self, weight: WeightSketch, theirs: Lines) -> WeightSketch | None:
        """Find the other weight of the reference whose values the candidate's part holds."""
        held = set()
        for line in theirs.rows:
            if np.ptp(line) == 0 or (theirs.is_vector and len(line) < _ENOUGH):
                return None
            found = self._rows_of_mine.locate(line, length=theirs.width, besides=weight.name)
            if not (found.is_block and len(found.strips) == 1):
                rounded = self._rows_of_mine.rounded(
                    line, length=theirs.width, dtype=theirs.dtype, besides=weight.name
                )
                if rounded is None:
                    return None
                found = rounded
            held.add(found.strips[0].weight)
        return self._by_name.get(_canonical(held.pop())) if len(held) == 1 else None

    def _note_held(self, weight: WeightSketch, part: _Part, held: WeightSketch) -> None:
        theirs = self._part(held)
        lines = None if theirs is None else theirs.lines()
        both = lines is not None and same_lines(_lines_of(held), lines)
        evidence = f"it holds the values of {held.name}"
        if not both:
            self._note(weight, part.name, WeightKind.EXCHANGED, evidence)
        elif theirs is not None and theirs.name == part.name:
            evidence = f"its rows in {part.name} are those of {held.name} once more"
            self._note(weight, part.name, WeightKind.DUPLICATED_SHARD, evidence)
        else:
            evidence += ", which the candidate has at its own place too"
            self._note(weight, part.name, WeightKind.TIED, evidence)

    def _note_interleaved(self, weight: WeightSketch, places: list[Placed]) -> None:
        between = next((place for place in places if place.is_interleaved), None)
        if between is not None:
            evidence = f"its rows lie in {between.holder}, in their order, with others between them"
            kind = WeightKind.PERMUTED_ROWS
            self._conventions.append(_finding(weight, between.holder, kind, evidence))

    def _is_interleaved(self, places: list[Placed], part: _Part) -> bool:
        return all(place.kind is None and place.holder == part.name for place in places)

    def _note(
        self, weight: WeightSketch, candidate: str | None, kind: WeightKind, evidence: str
    ) -> None:
        tied = [
            other.name
            for other in self._mine
            if weight.storage is not None and other.storage == weight.storage
        ]
        if len(tied) > 1 and kind not in (WeightKind.TIED, *_REARRANGED):
            others = ", ".join(name for name in tied if name != weight.name)
            evidence += f"; the reference's is one with {others}"
        self._findings.append(_finding(weight, candidate, kind, evidence))

    def _places(self, weight: WeightSketch) -> list[Placed]:
        """Find each matrix of a weight in the candidate, wherever it is."""
        assert weight.rows is not None
        if weight.is_vector:
            (line,) = weight.rows
            block = self._theirs.block(line, length=1)
            if block is None:
                rounded = self._theirs.rounded(line, length=1, dtype=weight.dtype)
                block = None if rounded is None else rounded.strips[0]
            return [placed_vector(self._theirs.locate(line, length=1), block)]
        return [self._place(weight, number) for number in range(len(weight.rows))]

    def _place(self, weight: WeightSketch, number: int) -> Placed:
        _, rows, columns = weight.matrix
        assert weight.rows is not None
        assert weight.columns is not None
        square = rows == columns
        by_row = self._theirs.locate(weight.rows[number], length=columns)
        place = placed(by_row, of_rows=True, is_square=square)
        if place.kind is not WeightKind.DIFFERENT:
            return place
        by_column = self._theirs.locate(weight.columns[number], length=rows)
        other = placed(by_column, of_rows=False, is_square=square)
        if other.kind is not WeightKind.DIFFERENT:
            return other
        rounded = self._theirs.rounded(weight.rows[number], length=columns, dtype=weight.dtype)
        return place if rounded is None else placed(rounded, of_rows=True, is_square=square)

    def _part(self, weight: WeightSketch) -> _Part | None:
        """Find what of the candidate a weight should be, by its name."""
        name = _canonical(weight.name)
        if name in self._named:
            theirs = self._named[name]
            return _Part(weight=theirs, count=theirs.matrix[1])
        module, _, leaf = name.rpartition(".")
        fused = fused_module_of(module)
        whole = None if fused is None else self._named.get(f"{fused.name}.{leaf}")
        if fused is None or whole is None:
            return None
        if whole.rows is None:
            return _Part(weight=whole, count=0, is_fused=True)
        parts = [self._by_name.get(f"{part}.{leaf}") for part in fused.parts]
        sizes = [part.matrix[1] for part in parts if part is not None]
        if len(sizes) != len(parts) or sum(sizes) != whole.matrix[1]:
            return None
        first = sum(sizes[: fused.position])
        return _Part(weight=whole, first=first, count=weight.matrix[1], is_fused=True)


def _lines_of(weight: WeightSketch) -> Lines:
    assert weight.rows is not None
    return _lines(weight, weight.rows, weight.columns)


def _lines(weight: WeightSketch, rows: Array, columns: Array | None) -> Lines:
    return Lines(
        rows=rows,
        columns=columns,
        dtype=weight.dtype,
        width=weight.matrix[2],
        is_vector=weight.is_vector,
    )


def _finding(
    weight: WeightSketch, candidate: str | None, kind: WeightKind, evidence: str
) -> WeightFinding:
    return WeightFinding(
        reference=(weight.name,),
        candidate=candidate,
        kind=kind,
        evidence=evidence,
        module=owner_of(weight.name),
    )


def _canonical(name: str) -> str:
    """Bring the names of all engines to one form; a rank's folder in front is no part of it."""
    module, _, leaf = name.rpartition("/")[2].rpartition(".")
    return f"{canonical_module(module)}.{leaf}"


def _is_one_added(weight: WeightSketch, offset: float | None) -> bool:
    """Tell the two ways to keep the weight of a norm: as the factor, or less 1."""
    is_norm = "norm" in owner_of(weight.name).rpartition(".")[2].lower()
    return is_norm and offset is not None and abs(abs(offset) - 1.0) < 1e-3
