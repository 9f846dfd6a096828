"""What it means where the rows of a weight were found."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from diagnosis.weights.finding import WeightKind
from diagnosis.weights.strips import Located, Strip


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """Where one matrix of the reference is in the candidate.

    Attributes:
        kind: how it differs; None where it is there as it is.
        evidence: what shows it; empty where it is there as it is.
        holder: the candidate's weight that holds most of it, None where none holds anything.
        share: how much of it was found, 0 to 1.
        is_interleaved: whether its rows lie between those of others, in their order.
    """

    kind: WeightKind | None
    evidence: str = ""
    holder: str | None = None
    share: float = 1.0
    is_interleaved: bool = False


def placed_vector(located: Located, block: Strip | None) -> Placed:
    """Judge where the values of a vector were found, of which some may be equal by chance.

    Args:
        located: where each was found.
        block: a strip that has them one behind the other; None where none does.
    """
    if block is not None:
        return Placed(kind=None, holder=block.weight)
    if located.is_block or (located.is_ascending and len(located.strips) == 1):
        holder = located.strips[0].weight
        return Placed(kind=None, holder=holder, is_interleaved=not located.is_block)
    evidence = "its values are nowhere in the candidate"
    return Placed(kind=WeightKind.DIFFERENT, evidence=evidence, share=0.0)


def placed(located: Located, *, of_rows: bool, is_square: bool) -> Placed:
    """Judge where the rows or the columns of a matrix were found.

    Args:
        located: where each was found.
        of_rows: whether these are the rows, or else the columns.
        is_square: whether a transposed matrix would not be noticed by its shape.
    """
    what = "rows" if of_rows else "columns"
    holder = located.strips[0].weight if located.strips else None
    if not located.is_whole:
        missing = int(np.count_nonzero(located.strip < 0))
        return Placed(
            kind=WeightKind.DIFFERENT,
            evidence=f"{missing} of {len(located.strip)} {what} are nowhere in the candidate",
            holder=holder,
            share=1.0 - missing / max(len(located.strip), 1),
        )
    if len(located.strips) > 1:  # pieces of several
        return Placed(kind=None, holder=holder)
    strip = located.strips[0]
    if not located.is_ascending:
        return _permuted(located, of_rows=of_rows)
    if strip.is_rows != of_rows and is_square and located.is_block:
        return Placed(
            kind=WeightKind.TRANSPOSED,
            evidence=f"its {what} are the {'columns' if of_rows else 'rows'} of {holder}",
            holder=holder,
        )
    return Placed(kind=None, holder=holder, is_interleaved=not located.is_block)


def _permuted(located: Located, *, of_rows: bool) -> Placed:
    first = int(located.row.min())
    moved = np.flatnonzero(located.row - first != np.arange(len(located.row)))
    what = "row" if of_rows else "column"
    return Placed(
        kind=WeightKind.PERMUTED_ROWS if of_rows else WeightKind.PERMUTED_COLUMNS,
        evidence=(
            f"{len(moved)} of {len(located.row)} {what}s are elsewhere: {what} {int(moved[0])} is "
            f"the candidate's {what} {int(located.row[moved[0]])}"
        ),
        holder=located.strips[0].weight,
    )
