"""Which of several ranks is wrong, and whether one went on with a summand of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from diagnosis.candidate_tensors import CandidateTensors, Pinned
from diagnosis.check import Check
from diagnosis.finding import Finding
from diagnosis.guilt import exceeds, limits_of
from diagnosis.location import bad_channels
from diagnosis.rounding import excess_error

_NEVER = 1 << 60


def wrong_rank(check: Check, pin: Pinned | None, candidate: CandidateTensors) -> int | None:
    """Name the rank that holds what is wrong, None where that is not known or several do.

    Args:
        check: a guilty one.
        pin: the candidate's values of it.
        candidate: as it was looked at, with the copies of one rank.
    """
    if check.name in candidate.ranks.unlike:
        return candidate.ranks.rank
    if pin is None or len(pin.shares) < 2:
        return None
    channels = bad_channels(check)
    ranks = {
        share.rank
        for share in pin.shares
        if ((channels >= share.start) & (channels < share.stop)).any()
    }
    return ranks.pop() if len(ranks) == 1 else None


def phrases_of_ranks(check: Check, pin: Pinned | None) -> Iterator[str]:
    """Say that the sum over ranks would be right, where each went on with its own summand."""
    if pin is None or not pin.summed or check.floor is None:
        return
    rows = dict.fromkeys(place.row for place in check.places)
    if not set(rows) <= set(pin.summed):
        return
    values = np.concatenate([np.asarray(pin.summed[row].values) for row in rows])
    if values.size != check.exact.size:
        return
    excess = excess_error(values.reshape(check.exact.shape), check.exact, check.floor)
    if not exceeds(excess, limits_of(check)):
        yield "the sum over the ranks is right, one rank's summand alone is not: never summed up"


def earliest(findings: Sequence[Finding]) -> Finding:
    """Choose what goes wrong first, of findings with the copies of each rank."""

    def order(finding: Finding) -> int:
        return min((check.order for check in finding.guilty.values()), default=_NEVER)

    return min(findings, key=order)
