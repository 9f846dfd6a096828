"""How far the candidate's tensors are from each of the reference's, in units of rounding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from comparison.align.fingerprint import Fingerprint, fingerprint, likeness
from comparison.align.rows import Layout
from comparison.numerics.dtypes import Array
from diagnosis.drill.readings import (
    BY_KEY,
    BY_TOKEN,
    Reading,
    candidate_readings,
    reference_reading,
)
from diagnosis.drill.reference import ReferenceOperations, ReferenceOutput
from diagnosis.guilt import exceeds, limits_of_chain, worst
from diagnosis.rounding import Excess, excess_error, rounding_floor

_FAR = 0.1  # relative distance of projections of what rounding never makes alike
_BLOCKED = 0.9  # of the greatest number of a dtype: what masks add is that or infinite


@dataclass(frozen=True, slots=True, kw_only=True)
class Distance:
    """How far an output of the candidate is from one of the reference.

    Attributes:
        size: the worst of its errors, in units of rounding.
        error: relative root mean square; infinite where other places are blocked.
        bound: what rounding explains of that.
        within: whether rounding explains it.
    """

    size: float
    error: float
    bound: float
    within: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Read:
    """An output of the reference, read."""

    output: ReferenceOutput
    exact: Reading
    rounded: Reading
    print: Fingerprint | None = field(repr=False)


class ReferenceValues:
    """Looks up outputs of the reference by their values."""

    def __init__(
        self,
        operations: ReferenceOperations,
        tokens: Sequence[int | None],
        layout: Layout,
        *,
        dtype: str,
    ) -> None:
        """Read all outputs.

        Args:
            operations: the reference's.
            tokens: number of tokens of each row; None where the inputs are no token ids.
            layout: how rows lie in the candidate's step.
            dtype: name of the run's dtype, which all is judged by: a narrower one on the way is
                a cast.
        """
        self._layout, self._dtype = layout, dtype
        self._read: dict[str, _Read] = {}
        for output in operations.outputs:
            exact = reference_reading(output.exact, tokens)
            rounded = reference_reading(output.rounded, tokens)
            if exact is not None and rounded is not None and exact.size:
                self._read[output.name] = _Read(
                    output=output, exact=exact, rounded=rounded, print=_print(exact)
                )

    def matches(self, array: Array) -> Iterator[tuple[str, Distance]]:
        """Yield the outputs that an array agrees with, within rounding.

        Args:
            array: what the candidate's dump holds.
        """
        for reading in candidate_readings(array, self._layout):
            mine = _print(reading)
            for name, read in self._read.items():
                if not _comparable(reading, read.exact) or _far(mine, read.print):
                    continue
                distance = _distance(reading, read, self._dtype)
                if distance is not None and distance.within:
                    yield name, distance

    def distance(self, name: str, array: Array) -> Distance | None:
        """Hold an array against one output; None where their shapes do not fit.

        Args:
            name: of the output.
            array: what the candidate's dump holds.
        """
        read = self._read.get(name)
        if read is None:
            return None
        found = [
            _distance(reading, read, self._dtype)
            for reading in candidate_readings(array, self._layout)
            if _comparable(reading, read.exact)
        ]
        kept = [distance for distance in found if distance is not None]
        return min(kept, key=lambda distance: distance.size, default=None)


def _comparable(mine: Reading, theirs: Reading) -> bool:
    return (
        mine.kind == theirs.kind
        and mine.parts[0].values.dtype.kind != "c"  # the reference's complex ones are not kept
        and mine.size == theirs.size
        and _is_exact(mine) == _is_exact(theirs)
    )


def _print(reading: Reading) -> Fingerprint | None:
    """Project the first row; None where keys differ from step to step, or there are no numbers."""
    first = reading.parts[0]
    if reading.kind != BY_TOKEN or _is_exact(reading) or not np.isfinite(_wide(first.values)).all():
        return None
    return fingerprint(first.positions, _wide(first.values))


def _far(mine: Fingerprint | None, theirs: Fingerprint | None) -> bool:
    if mine is None or theirs is None:
        return False
    alike = likeness(mine, theirs)
    return alike is not None and alike.distance > _FAR


def _distance(mine: Reading, read: _Read, dtype: str) -> Distance | None:
    """Measure at the positions that the candidate has; None where the reference lacks some."""
    exact, rounded = _cut(read.exact, mine), _cut(read.rounded, mine)
    if exact is None or rounded is None:
        return None
    values = [part.values for part in mine.parts]
    if _is_exact(mine):
        same = all(map(np.array_equal, values, exact))
        return Distance(size=0.0 if same else np.inf, error=float(not same), bound=0.0, within=same)
    if mine.kind != BY_KEY:
        values, exact, rounded = ([np.concatenate(parts)] for parts in (values, exact, rounded))
    excesses = [
        _excess(*triple, dtype, read.output.longest_sum)
        for triple in zip(values, exact, rounded, strict=True)
    ]
    limits = limits_of_chain(dtype)
    return Distance(
        size=max(map(worst, excesses)),
        error=max(excess.error for excess in excesses),
        bound=max(excess.bound for excess in excesses),
        within=not any(exceeds(excess, limits) for excess in excesses),
    )


def _cut(theirs: Reading, mine: Reading) -> list[Array] | None:
    """Take of the reference what the candidate has."""
    found = []
    for own, part in zip(mine.parts, theirs.parts, strict=True):
        if int(own.positions[-1]) >= len(part.values):
            return None
        values = part.values[own.positions]
        if mine.kind == BY_KEY:
            if own.values.shape[-1] > values.shape[-1]:
                return None
            values = values[..., : own.values.shape[-1]]
        found.append(values)
    return found


def _excess(values: Array, exact: Array, rounded: Array, dtype: str, longest_sum: int) -> Excess:
    """Measure, where neither side is blocked by a mask."""
    mine, theirs, own = (_wide(array).reshape(len(array), -1) for array in (values, exact, rounded))
    limit = _BLOCKED * float(_greatest(dtype))
    blocked, expected = (~(np.abs(array) < limit) for array in (mine, theirs))
    mine, theirs, own = (np.where(blocked & expected, 0.0, array) for array in (mine, theirs, own))
    if (blocked != expected).any():
        mine = np.where(blocked != expected, np.inf, mine)
        theirs = np.where(blocked != expected, 0.0, theirs)
    own = np.where(np.isfinite(own), own, theirs)
    floor = rounding_floor(native=own, exact=theirs, dtype=dtype, longest_sum=longest_sum)
    with np.errstate(invalid="ignore", over="ignore"):
        return excess_error(mine, theirs, floor)


def _greatest(dtype: str) -> float:
    return 65504.0 if dtype == "float16" else 3.3e38


def _is_exact(reading: Reading) -> bool:
    return reading.parts[0].values.dtype.kind in "biu"


def _wide(values: Array) -> Array:
    return np.asarray(values).astype(np.float64)
