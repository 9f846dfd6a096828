"""Finds for each definition of a file those of the index that are most like it."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from utils.modular_detector.definitions import Definition
from utils.modular_detector.index import Entry, Index
from utils.modular_detector.provenance import is_before

if TYPE_CHECKING:
    import numpy.typing as npt

    from utils.modular_detector.index import Floats

    Booleans = npt.NDArray[np.bool_]

TOP: Final = 5
# Below so many nodes one structure is found everywhere, by chance.
_SMALLEST_STRUCTURE: Final = 60
_STEPS: Final = 1e4  # scores that print alike are alike


class Likeness(IntEnum):
    """What is equal besides the score, from least to most."""

    NOTHING = 0
    STRUCTURE = 1
    RENAMED = 2
    IDENTICAL = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """One definition of the index.

    Attributes:
        number: its place in the index.
        entry: where it stands.
        score: 1 for code that is the same, or the same but for names.
        likeness: what is equal.
    """

    number: int
    entry: Entry
    score: float
    likeness: Likeness


@dataclass(frozen=True, slots=True, kw_only=True)
class Matches:
    """The best matches of one definition, by each score.

    Attributes:
        definition: what was looked for.
        embedding: the best by embedding; None without embeddings.
        jaccard: the best by tokens.
    """

    definition: Definition
    embedding: Sequence[Match] | None
    jaccard: Sequence[Match]

    @property
    def intersection(self) -> list[Match]:
        """Those among the best by both scores."""
        both = {match.number for match in self.embedding or ()}
        return [match for match in self.jaccard if match.number in both]


def candidates(
    index: Index, path: Path, before: datetime.date | None = None, *, models_root: Path
) -> Booleans:
    """Tell which entries count, [N]: not those of the file itself, nor those that came too late.

    Args:
        index: the index.
        path: the file that is looked at; one of the same folders and name is itself.
        before: count only models that are older.
        models_root: the folder of the models.
    """
    resolved, root = path.resolve(), models_root.resolve()
    itself = {"/".join(resolved.parts[-depth:]) for depth in range(2, len(resolved.parts))}
    itself |= {resolved.relative_to(root).as_posix()} if resolved.is_relative_to(root) else set()
    dates = {name: source.date for name, source in index.files.items()}
    allowed = {
        file
        for file in {entry.file for entry in index.entries}
        if file not in itself and (before is None or is_before(dates.get(file, ""), before))
    }
    return np.array([entry.file in allowed for entry in index.entries], dtype=bool)


def match_definitions(
    index: Index,
    definitions: Sequence[Definition],
    allowed: Booleans,
    embeddings: Floats | None = None,
) -> list[Matches]:
    """Find the best matches of definitions.

    Args:
        index: the index of N entries.
        definitions: what is looked for, n of them.
        allowed: [N], which entries count.
        embeddings: [n, width], those of the definitions; None for Jaccard alone.
    """
    tokens = [_jaccard(index, definition) for definition in definitions]
    likeness = [_likeness(index, definition) for definition in definitions]
    favour = _favour(index, tokens, allowed)
    found: list[Matches] = []
    for number, definition in enumerate(definitions):
        ranks = _Ranks(index, definition, likeness[number], favour, allowed)
        by_embedding = None
        if embeddings is not None and index.embeddings is not None:
            by_embedding = ranks.best(index.embeddings @ embeddings[number])
        found.append(
            Matches(
                definition=definition, embedding=by_embedding, jaccard=ranks.best(tokens[number])
            )
        )
    return found


def _jaccard(index: Index, definition: Definition) -> Floats:
    """Compute the part of two sets of tokens that they share, [N]."""
    numbers = [index.vocabulary[t] for t in definition.tokens if t in index.vocabulary]
    held = np.zeros(len(index.vocabulary) + 1, dtype=np.int64)
    held[numbers] = 1
    running = np.concatenate([[0], np.cumsum(held[index.tokens])])
    shared = running[index.offsets[1:]] - running[index.offsets[:-1]]
    union = np.diff(index.offsets) + len(definition.tokens) - shared
    ratio: Floats = (shared / np.maximum(union, 1)).astype(np.float32)
    return ratio


def _likeness(index: Index, definition: Definition) -> npt.NDArray[np.int64]:
    """Tell what is equal, [N], as numbers of `Likeness`."""
    if index.prints is None:
        return np.zeros(len(index), dtype=np.int64)
    prints = definition.prints
    exact, renamed, structure, _ = index.prints.T
    is_large = prints.size >= _SMALLEST_STRUCTURE
    return np.select(
        [
            exact == prints.exact,
            renamed == prints.renamed,
            is_large & (structure == prints.structure),
        ],
        [Likeness.IDENTICAL, Likeness.RENAMED, Likeness.STRUCTURE],
        default=Likeness.NOTHING,
    ).astype(np.int64)


def _favour(index: Index, scores: Sequence[Floats], allowed: Booleans) -> Floats:
    """Tell how much each entry's model could give to the whole file, [N], from 0 to 1."""
    models = np.array([entry.model for entry in index.entries])
    _, of_entry = np.unique(models, return_inverse=True)
    sums = np.zeros(of_entry.max(initial=-1) + 1, dtype=np.float32)
    for score in scores:
        best = np.zeros_like(sums)
        np.maximum.at(best, of_entry, np.where(allowed, score, 0))
        sums += best
    favour: Floats = (sums[of_entry] / max(1, len(scores))).astype(np.float32)
    return favour


@dataclass(frozen=True, slots=True)
class _Ranks:
    index: Index
    definition: Definition
    likeness: npt.NDArray[np.int64]
    favour: Floats
    allowed: Booleans

    def best(self, scores: Floats) -> list[Match]:
        """Give the best matches by a score: what is the same first, of equals the favourite."""
        is_same = self.likeness >= Likeness.RENAMED
        shown = np.where(is_same, 1, np.clip(scores, -1, 1))
        # of what is the same but for names, these and the model together tell the likest
        ranked = np.where(is_same, scores + self.favour, np.round(scores * _STEPS) / _STEPS)
        numbers = np.flatnonzero(self.allowed)
        # the last key is the first to decide
        order = np.lexsort(
            (
                -self.favour[numbers],
                -ranked[numbers],
                -self.likeness[numbers],
            )
        )
        return [self._match(int(number), shown) for number in numbers[order[:TOP]]]

    def _match(self, number: int, scores: Floats) -> Match:
        return Match(
            number=number,
            entry=self.index.entries[number],
            score=float(scores[number]),
            likeness=Likeness(int(self.likeness[number])),
        )
