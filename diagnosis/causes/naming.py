"""From what was tried on a guilty computation to the cause that is named."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from comparison.schema.diagnosis import Cause
from diagnosis.causes.advice import ADVICE
from diagnosis.causes.confidence import of_finding, share_of
from diagnosis.causes.region import Region
from diagnosis.causes.search import Explanation, explain
from diagnosis.causes.table import SIGNS, TRIALS
from diagnosis.causes.trying import CANNOT_RUN, Finding
from diagnosis.check import Check
from diagnosis.checks import Checker

# What other weights may look like from behind.
_OF_OUTPUTS = frozenset({"scale", "bias"})
_RECORDED = 0.95  # a weight that differs by its recorded values, of a module that is wrong


def cause_of(
    checker: Checker,
    checks: Sequence[Check],
    first: Check,
    *,
    ruled_out: Collection[str] = (),
) -> Cause:
    """Say why a tensor is wrong by itself.

    Args:
        checker: holds the reference in float64, and the candidate's values.
        checks: all that was judged.
        first: the guilty tensor.
        ruled_out: causes that something else disproves, so that neither a sign of them is named
            nor a change that gives the candidate's values.
    """
    try:
        return _sought(checker, checks, first, ruled_out)
    except CANNOT_RUN as error:  # the verdict stands without a cause, and says why there is none
        return Cause(evidence=f"cannot be explained, since its module cannot be run again: {error}")


def _sought(
    checker: Checker, checks: Sequence[Check], first: Check, ruled_out: Collection[str]
) -> Cause:
    if np.iscomplexobj(first.candidate) or np.iscomplexobj(first.exact):
        return Cause(evidence="cannot be explained: its values are complex, and nothing is tried")
    region = Region(checker, checks, first)
    if not region.runs_by_itself and first.floor is not None:
        return Cause(evidence="the module cannot be run again by itself")
    return named(explain(region, TRIALS, SIGNS), ruled_out=ruled_out)


def _is_disproved(found: Finding, ruled_out: Collection[str]) -> bool:
    """Tell a change of a weight that is recorded as it was."""
    if found.needs_other_weight is None:
        return found.cause in ruled_out
    return found.needs_other_weight and "weights" in ruled_out


def _as_if(found: Finding, explanation: Explanation) -> Cause:
    """Tell what the values look like, where the weight that would give them is not to blame."""
    return Cause(
        evidence=f"gives what a module would that {found.says}; but the recorded weights are "
        "equal: look at what is done to the product with them",
        unexplained=explanation.unexplained,
    )


def likelier(tried: Cause | None, recorded: Cause | None) -> Cause:
    """Choose between what the replays say and what the recorded weights say.

    Args:
        tried: by the replays; None where none were made.
        recorded: by the weights that both sides loaded; None where these do not differ.
    """
    if tried is None:
        return recorded or Cause()
    if recorded is None:
        return tried
    of_outputs = tried.id in _OF_OUTPUTS
    if tried.residual is not None and tried.id == recorded.id:
        more = f", and {recorded.evidence}" if of_outputs else ""
        return replace(tried, evidence=f"{tried.evidence}{more}", confidence=_RECORDED)
    if tried.residual is not None and not of_outputs:
        return tried  # one that gives the candidate's values says more
    return replace(recorded, confidence=_RECORDED, advice=ADVICE.get(recorded.id, ""))


def named(found: Explanation, *, ruled_out: Collection[str] = ()) -> Cause:
    """Take the likeliest of what was found.

    Args:
        found: what gives the candidate's values, and what its pattern shows.
        ruled_out: as for `cause_of`.
    """
    kept = tuple(item for item in found.reproducing if not _is_disproved(item, ruled_out))
    if found.reproducing and not kept:
        return _as_if(found.reproducing[0], found)
    nearest = found.nearest
    if nearest is not None and _is_disproved(nearest, ruled_out):
        nearest = None
    left = tuple(sign for sign in found.signs if sign.cause not in ruled_out)
    return _likeliest(replace(found, reproducing=kept, signs=left, nearest=nearest))


def _likeliest(found: Explanation) -> Cause:
    if found.reproducing:
        return _reproduced(found.reproducing[0], found)
    if found.signs:
        sign = found.signs[0]
        if sign.cause == "unknown":
            return Cause(evidence=sign.says, unexplained=found.unexplained)
        return Cause(
            id=sign.cause,
            evidence=sign.says,
            confidence=round(min(sign.weight, share_of(sign.cause)), 2),
            advice=ADVICE.get(sign.cause, ""),
        )
    nearest = "" if found.nearest is None else f"; the nearest: it {found.nearest.says}"
    return Cause(
        evidence=f"gives what none of the {found.tried} things that were tried gives{nearest}",
        unexplained=found.unexplained,
    )


def _reproduced(best: Finding, found: Explanation) -> Cause:
    others = dict.fromkeys(
        f"{other.cause}: it {other.says}"
        for other in found.reproducing
        if other.cause != best.cause
    )
    return Cause(
        id=best.cause,
        evidence=best.says,
        expected=best.expects,
        residual=best.residual,
        unexplained=found.unexplained,
        confidence=of_finding(best, alternatives=len(others)),
        value=best.value,
        alternatives=tuple(others),
        advice=ADVICE.get(best.cause, ""),
    )
