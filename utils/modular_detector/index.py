"""The index: what is known of every definition, as arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from utils.modular_detector.provenance import Provenance

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy.typing as npt

    Floats = npt.NDArray[np.float32]
    Integers = npt.NDArray[np.int64]


class Entry(NamedTuple):
    """Where a definition stands."""

    file: str  # relative to the folder of models, with slashes
    name: str

    @property
    def model(self) -> str:
        """The model's folder."""
        return self.file.partition("/")[0]

    def __str__(self) -> str:
        return f"{self.model}::{self.name}"


class SourceFile(NamedTuple):
    """An indexed file."""

    digest: str
    date: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingInfo:
    """How the embeddings were made.

    Attributes:
        model: the model's name.
        pooling: how a text's vectors became one.
        width: of that one.
    """

    model: str
    pooling: str
    width: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """All definitions of a folder of models.

    Attributes:
        entries: the N definitions.
        provenance: where they come from; None for an index that does not say.
        files: the files, by relative path.
        embedding: how `embeddings` came about; None without.
        embeddings: [N, width], rows of length 1; None for Jaccard alone.
        vocabulary: the number of each token.
        tokens: the numbers of the tokens of all definitions, one after the other.
        offsets: [N + 1], where those of each begin.
        prints: [N, 4] as in `Prints`; None for an index that has none.
        lines: [N, 2], first and last line; None likewise.
    """

    entries: Sequence[Entry]
    provenance: Provenance | None
    files: Mapping[str, SourceFile]
    embedding: EmbeddingInfo | None
    embeddings: Floats | None
    vocabulary: Mapping[str, int]
    tokens: Integers
    offsets: Integers
    prints: Integers | None
    lines: Integers | None

    def __len__(self) -> int:
        return len(self.entries)


def number_tokens(
    rows: Iterable[Iterable[str]],
) -> tuple[dict[str, int], Integers, Integers]:
    """Number the tokens of rows.

    Args:
        rows: the tokens of each definition.

    Returns:
        The vocabulary, the numbers of all rows, and the offsets of the rows.
    """
    vocabulary: dict[str, int] = {}
    numbers: list[int] = []
    offsets = [0]
    for row in rows:
        numbers += [vocabulary.setdefault(token, len(vocabulary)) for token in sorted(row)]
        offsets.append(len(numbers))
    return vocabulary, np.array(numbers, dtype=np.int64), np.array(offsets, dtype=np.int64)
