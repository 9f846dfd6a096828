"""A mask that the model's body builds and hands to its layers, held against the reference's.

Legend: n queries that the dump holds, T keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from comparison.numerics.dtypes import Array
from diagnosis.causes.trial import Sign
from diagnosis.replay.pinned_replay import allowed

if TYPE_CHECKING:
    from diagnosis.causes.region import Region


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """The keys that queries see.

    Attributes:
        number: of the row.
        reference: [n, T] booleans.
        candidate: [n, T] booleans.
        far: how far each key lies before its query, [n, T].
    """

    number: int
    reference: Array
    candidate: Array
    far: Array


def signs(region: Region) -> Iterator[Sign]:
    """Say what a wrong mask shows or hides."""
    if region.first.floor is not None or "mask" not in region.first.name:
        return
    rows = list(_rows(region))
    wrong = [row for row in rows if (row.reference != row.candidate).any()]
    if not wrong:
        return
    right, other = _window(rows, "reference"), _window(rows, "candidate")
    if right != other and _is_window(rows, other):
        yield Sign(
            cause="sliding_window",
            says=f"hands down a mask with {_told(other)}; the reference has {_told(right)}",
            weight=0.95,
        )
        return
    shown = sum(int((row.candidate & ~row.reference).sum()) for row in wrong)
    hidden = sum(int((row.reference & ~row.candidate).sum()) for row in wrong)
    lengths = [call.prompt_tokens for call in region.checker.wide_calls]
    padded = {number for number, length in enumerate(lengths) if length < max(lengths)}
    yield Sign(
        cause="padding" if {row.number for row in wrong} <= padded else "mask",
        says=f"hands down a mask that shows {shown} keys which the reference hides, and hides "
        f"{hidden} which it shows",
        weight=0.95,
    )


def _rows(region: Region) -> Iterator[_Row]:
    pin = region.checker.pin(region.first.name)
    for taken in region.taken():
        if pin is None or taken.name != region.first.name or taken.row not in pin.rows:
            continue
        candidate = allowed(pin.rows[taken.row].values)
        reference = allowed(taken.reference)[..., : candidate.shape[-1]]
        if reference.shape != candidate.shape:
            continue
        far = taken.positions[:, None] - np.arange(candidate.shape[-1])
        yield _Row(number=taken.row, reference=reference, candidate=candidate, far=far)


def _window(rows: list[_Row], side: str) -> int | None:
    """Return the least distance that is hidden, None where no earlier key is."""
    far = [row.far[(row.far >= 0) & ~getattr(row, side)] for row in rows]
    every = np.concatenate(far) if far else np.zeros(0)
    return int(every.min()) if every.size else None


def _is_window(rows: list[_Row], size: int | None) -> bool:
    return all(
        np.array_equal(row.candidate, (row.far >= 0) & (row.far < (size or row.far.max() + 1)))
        for row in rows
    )


def _told(window: int | None) -> str:
    return "no window" if window is None else f"a window of {window} tokens"
