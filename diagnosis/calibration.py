"""How much an engine differs from itself: the candidate run again, held against its first run.

What counts is the local error of each tensor, not its value: what a run inherits from a difference
earlier on is in the reference's replay of that run as well. A fault that is there in every run is
in both errors alike and so is never taken for jitter. Neither is a difference far beyond rounding:
a batch may be wrong where its rows alone are right.

Legend: n positions of a tensor, F features of one position.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from comparison.align.token_rows import TokenRow
from comparison.numerics.dtypes import Array
from comparison.schema.diagnosis import Calibration, Jitter
from comparison.schema.manifest import Manifest
from comparison.store.dump import Dump
from diagnosis.candidate_tensors import Pinned
from diagnosis.check import Check, Place
from diagnosis.checks import Checker, HoldsPins
from diagnosis.guilt import Limits, limits_of
from diagnosis.rounding import Floor, widened

_SAFETY = 2.0  # times the greatest difference seen in a few runs
# A limit is raised to at most this many times itself; more is a fault that comes and goes.
_MOST = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rerun:
    """A further run of the candidate.

    Attributes:
        what: `once more`, `in another order`, `row 0 alone`.
        dump: its tensors.
        rows: for each of its rows the number of that row in the first run.
    """

    what: str
    dump: Dump
    rows: tuple[int, ...]


class RerunTensors:
    """A further run's values by the rows of the first one, as far as both saw the same tokens."""

    def __init__(self, rerun: Rerun, first: Manifest, tensors: HoldsPins) -> None:
        """Hold both runs' rows against each other.

        Args:
            rerun: the further run.
            first: the manifest of the first.
            tensors: the further run's tensors.
        """
        self._rows, self._tensors = rerun.rows, tensors
        again = () if rerun.dump.manifest is None else rerun.dump.manifest.rows
        self._seen = [
            _same_tokens(
                (*first.rows[number].token_ids, *first.rows[number].generated[:-1]),
                (*row.token_ids, *row.generated[:-1]),
            )
            for number, row in zip(rerun.rows, again, strict=True)
        ]

    def pinned(self, name: str) -> Pinned | None:
        """Return its values of one of the reference's tensors."""
        pin = self._tensors.pinned(name)
        if pin is None or not self._rows:  # tensors that are no rows of token ids
            return pin
        rows = {
            self._rows[number]: _until(row, self._seen[number]) for number, row in pin.rows.items()
        }
        return replace(pin, rows=rows)


def _same_tokens(left: Sequence[int], right: Sequence[int]) -> int:
    """Count the tokens that two rows begin with alike."""
    pairs = zip(left, right, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(left), len(right)))


def _until(row: TokenRow, end: int) -> TokenRow:
    kept = np.asarray(row.positions) < end
    if kept.all():
        return row
    return TokenRow(positions=row.positions[kept], values=row.values[kept])


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What further runs told.

    Attributes:
        limits: of the tensors whose limits are raised, by name.
        calibration: the same for a reader.
    """

    limits: Mapping[str, Limits]
    calibration: Calibration


def calibrated(
    checker: Checker,
    checks: Sequence[Check],
    reruns: Sequence[Rerun],
    first: Manifest,
    tensors_of: Callable[[Dump], HoldsPins],
) -> tuple[tuple[Check, ...], Calibration]:
    """Raise the limits of tensors to what the candidate's own jitter explains.

    Args:
        checker: of the first run.
        checks: its checks.
        reruns: further runs of the same engine.
        first: the manifest of the first run.
        tensors_of: pairs a further run's dump with the reference.
    """
    again = [
        (rerun.what, checker.against(RerunTensors(rerun, first, tensors_of(rerun.dump))).checks())
        for rerun in reruns
    ]
    measured = measure_jitter(checks, again)
    return tuple(_raised(check, measured.limits) for check in checks), measured.calibration


def _raised(check: Check, limits: Mapping[str, Limits]) -> Check:
    new = limits.get(check.name)
    return check if new is None else replace(check, raised=(new.whole, new.position, new.channel))


def measure_jitter(
    first: Sequence[Check], again: Sequence[tuple[str, Sequence[Check]]]
) -> Measured:
    """Say by how much the candidate's local errors differ from run to run.

    Args:
        first: the checks of the first run.
        again: what each further run was, and its checks.
    """
    runs = [{check.name: check for check in checks} for _, checks in again]
    records: list[tuple[Jitter, Limits, Limits]] = []
    for check in first:
        if check.floor is not None:
            seen = [_spread(check, run[check.name]) for run in runs if check.name in run]
            records += _record(check, [spread for spread in seen if spread is not None])
    moved = [record for record, _, _ in records if record.worst > 0]
    beyond = [record for record, now, wanted in records if _is_beyond(now, wanted)]
    raised = [item for item in records if item[0].raised > item[0].limit and item[0] not in beyond]
    return Measured(
        limits={record.tensor: wanted for record, _, wanted in raised},
        calibration=Calibration(
            runs=tuple(what for what, _ in again),
            tensors=len(records),
            greatest=max(moved, key=lambda item: item.worst, default=None),
            raised=tuple(record for record, _, _ in raised),
            beyond=tuple(replace(record, raised=record.limit) for record in beyond),
        ),
    )


def _record(check: Check, spreads: Sequence[Limits]) -> Iterator[tuple[Jitter, Limits, Limits]]:
    """Give the greatest spread of a tensor, its limits, and those that jitter explains."""
    if not spreads:
        return
    greatest = Limits(
        whole=max(spread.whole for spread in spreads),
        position=max(spread.position for spread in spreads),
        channel=max(spread.channel for spread in spreads),
    )
    now = limits_of(check)
    wanted = Limits(
        whole=max(now.whole, _SAFETY * greatest.whole),
        position=max(now.position, _SAFETY * greatest.position),
        channel=max(now.channel, _SAFETY * greatest.channel),
    )
    jitter = Jitter(
        tensor=check.name,
        whole=greatest.whole,
        worst=max(greatest.whole, greatest.position, greatest.channel),
        limit=now.whole,
        raised=wanted.whole,
    )
    yield jitter, now, wanted


def _is_beyond(now: Limits, wanted: Limits) -> bool:
    fits = (
        wanted.whole <= _MOST * now.whole
        and wanted.position <= _MOST * now.position
        and wanted.channel <= _MOST * now.channel
    )
    return not fits  # not a number fits no limit


def _spread(first: Check, again: Check) -> Limits | None:
    """Measure how much a tensor's local error differs, in units of what rounding explains."""
    mine, theirs = _shared(first.places, again.places)
    if not mine or first.floor is None or first.candidate.shape[1:] != again.candidate.shape[1:]:
        return None
    difference = _error(again)[theirs] - _error(first)[mine]  # [n, F]
    return _in_units(difference, first.floor, mine)


def _shared(first: Sequence[Place], again: Sequence[Place]) -> tuple[list[int], list[int]]:
    """Return where the places that both have lie in each."""
    numbers = {place: index for index, place in enumerate(first)}
    pairs = [(numbers[place], index) for index, place in enumerate(again) if place in numbers]
    return [mine for mine, _ in pairs], [theirs for _, theirs in pairs]


def _error(check: Check) -> Array:
    error = widened(check.candidate) - check.exact
    return np.asarray(error.reshape(error.shape[0], -1))


def _in_units(difference: Array, floor: Floor, rows: Sequence[int]) -> Limits:
    squares = np.square(np.abs(difference))
    return Limits(
        whole=float(np.sqrt(squares.mean())) / floor.whole,
        position=float(np.max(np.sqrt(squares.mean(axis=1)) / floor.by_position[list(rows)])),
        channel=float(np.max(np.sqrt(squares.mean(axis=0)) / floor.by_channel)),
    )
