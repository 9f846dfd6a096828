"""Differences that are gone again further on, and so are no faults.

An engine may permute the features of q and k alike, order experts otherwise, or add a constant to
all logits of a row: the tensor differs, and nothing that is computed from it does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from comparison.numerics.dtypes import Array
from comparison.schema.diagnosis import Harmless
from diagnosis.checks import Check, Checker
from diagnosis.guilt import Limits, exceeds, is_guilty, limits_of
from diagnosis.rounding import excess_error

_ROUNDS = 12  # how far a difference may travel before it has to be gone
_SEVERAL = 4.0  # times the limits, where the rounding of several modules adds up
_LOGITS = ("lm_head", "logits")


def harmless_differences(
    checker: Checker, checks: Sequence[Check], guilty: Sequence[Check]
) -> Iterator[Harmless]:
    """Find those of the guilty tensors that do no harm.

    Args:
        checker: runs further replays.
        checks: all checks, with all of the candidate's values in place.
        guilty: those that are wrong by themselves.
    """
    constant = [check for check in guilty if _is_constant_shift(check)]
    for check in constant:
        yield Harmless(
            tensor=check.name,
            reason="a constant is added to all logits of a row, which changes no probability",
        )
    rest = [check for check in guilty if check.name not in {known.name for known in constant}]
    for scope, group in _groups(rest).items():
        where = _healed_at(checker, checks, group, scope)
        if where is not None:
            for check in group:
                yield Harmless(tensor=check.name, reason=f"the difference is gone at {where}")


def _is_constant_shift(check: Check) -> bool:
    """Tell whether a logits tensor is right but for a constant a row."""
    module = check.name.rpartition("-")[0].rpartition(".")[2]
    is_logits = module in _LOGITS or check.name.endswith("-output_logits")
    if check.floor is None or not is_logits or check.candidate.ndim < 2:
        return False
    if not np.isfinite(check.candidate).all():
        return False
    shift = np.mean(_wide(check.candidate) - check.exact, axis=-1, keepdims=True)
    without = excess_error(_wide(check.candidate) - shift, check.exact, check.floor)
    return not exceeds(without, limits_of(check))


def _groups(guilty: Sequence[Check]) -> dict[str, list[Check]]:
    """Put tensors together that one module's code combines: q and k of one attention."""
    groups: dict[str, list[Check]] = {}
    for check in guilty:
        module = check.name.rpartition("-")[0]
        scope = check.owner if check.is_input else module.rpartition(".")[0] or module
        groups.setdefault(scope, []).append(check)
    return groups


def _healed_at(
    checker: Checker, checks: Sequence[Check], group: Sequence[Check], scope: str
) -> str | None:
    """Let the reference go on with its own values, and see where the candidate is right again.

    What is wrong then only for the candidate's own values is let go of too, as long as it lies
    within the module that combines the group: a difference that leaves it is no harmless one.
    """
    known = {check.name: check for check in checks}
    if not any(name.startswith(f"{scope}-output") for name in known):
        scope = scope.rpartition(".")[0] or scope  # where its result is first seen
    innocent = {check.name for check in checks if not is_guilty(check)}
    loose = {check.name for check in group}
    for _ in range(_ROUNDS):
        again = checker.again(checks, unpinned=loose)
        spoiled = {name for name in innocent - loose if not _is_right(again[name])}
        if not spoiled:
            right = [name for name, check in again.items() if _is_right(check)]
            return _first_changed(known, again, right)
        # What comes later may be wrong only for this one.
        earliest = min(spoiled, key=lambda name: known[name].order)
        if not _within(known[earliest].owner, scope):
            return None
        loose.add(earliest)
    return None


def _within(owner: str, scope: str) -> bool:
    return owner == scope or owner.startswith(f"{scope}.")


def _is_right(check: Check) -> bool:
    """Judge a tensor that the reference computed over several of its own: rounding adds up."""
    if check.excess is None:
        return not check.unequal
    return not exceeds(check.excess, _added_up(check))


def _added_up(check: Check) -> Limits:
    limits = limits_of(check)
    return Limits(
        whole=_SEVERAL * limits.whole,
        position=_SEVERAL * limits.position,
        channel=_SEVERAL * limits.channel,
    )


def _first_changed(
    before: dict[str, Check], after: dict[str, Check], names: Iterable[str]
) -> str | None:
    """Name the first tensor that the group goes into, and that is right all the same.

    The group's difference must matter there: one that is lost in rounding is not healed.
    """
    changed = [after[name] for name in names if _matters(before[name], after[name])]
    return min(changed, key=lambda check: check.order).name if changed else None


def _matters(before: Check, after: Check) -> bool:
    if before.floor is None:
        return not np.array_equal(before.exact, after.exact)
    change = excess_error(before.exact, after.exact, before.floor)
    return exceeds(change, _added_up(before))


def _wide(values: Array) -> Array:
    return np.asarray(values).astype(np.float64)
