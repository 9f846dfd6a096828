"""Differences that are gone again further on, and so are no faults.

An engine may permute the features of q and k alike, order experts otherwise, or add a constant to
all logits of a row: the tensor differs, and nothing that is computed from it does.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from comparison.schema.diagnosis import Harmless
from diagnosis.check import Check
from diagnosis.checks import Checker
from diagnosis.guilt import Limits, exceeds, is_guilty, limits_of
from diagnosis.not_passed_on import damage_of
from diagnosis.rounding import excess_error, widened

CONSTANT_SHIFT = "a constant is added to all logits of a row, which changes no probability"
_OTHER_LIST = (
    "the list of hidden states is another one, as where one side leaves out the embedding or the "
    "final norm"
)
_LIST = re.compile(r"-output_(\w*_)?hidden_states_\d+$")
_ROUNDS = 16  # how far a difference may travel before it has to be gone
_PLAIN = 1000.0  # times rounding; a difference of that size is not overlooked
_SEVERAL = 4.0  # times the limits, where the rounding of several modules adds up
_LOGITS = ("lm_head", "logits")


def harmless_differences(
    checker: Checker, checks: Sequence[Check], guilty: Sequence[Check]
) -> Iterator[Harmless]:
    """Yield those of the guilty tensors that do no harm.

    Args:
        checker: runs further replays.
        checks: all checks, with all of the candidate's values in place.
        guilty: those that are wrong by themselves.
    """
    constant = [check for check in guilty if _is_constant_shift(check)]
    for check in constant:
        yield Harmless(tensor=check.name, reason=CONSTANT_SHIFT)
    known = {check.name for check in constant}
    # What is no number spreads: where it did not, the record is damaged, and nothing is healed.
    guilty = [check for check in guilty if not _is_no_number(check)]
    for check in guilty:
        other = _listed_elsewhere(check, checks)
        if other is not None:
            known.add(check.name)
            yield Harmless(tensor=check.name, reason=f"{_OTHER_LIST}: this is {other}")
    rest = {check.name: check for check in guilty if check.name not in known}
    for scope, group in _groups(list(rest.values())).items():
        left = [check for check in group if check.name in rest]
        healed = _healed(checker, checks, left, scope) if left else None
        if healed is None:
            continue
        damaged = _damaged(healed, rest)
        for name in healed.tensors:
            if rest.pop(name, None) is not None:
                yield _cleared(name, healed, damaged)


def without_absorbed(harmless: Collection[Harmless]) -> tuple[Harmless, ...]:
    """Keep what does no harm even where the model's end is wrong.

    A difference that something much larger was added to seems gone behind that; where the end is
    off, and nothing else is to blame, it was not.

    Args:
        harmless: what was found.
    """
    return tuple(item for item in harmless if not item.is_absorbed)


def _damaged(healed: _Healed, known: Mapping[str, Check]) -> dict[str, str]:
    """Say of the tensors that differ which values the candidate did not go on with."""
    if not healed.is_disputed:
        return {}
    found = {
        name: damage_of(known[name])
        for name in healed.tensors
        if name in known and name not in healed.consequences
    }
    return {name: said for name, said in found.items() if said is not None}


def _cleared(name: str, healed: _Healed, damaged: Mapping[str, str]) -> Harmless:
    if name in damaged:
        reason = (
            f"{damaged[name]}: {healed.where} and what follows rest on the reference's, so the "
            "dump is wrong there and not what was computed"
        )
        return Harmless(tensor=name, reason=reason)
    if damaged and name in healed.consequences:
        first = next(iter(damaged))
        reason = f"right by itself: it rests on other values than the dump holds of {first}"
        return Harmless(tensor=name, reason=reason)
    return Harmless(
        tensor=name, reason=f"the difference is gone at {healed.where}", is_absorbed=True
    )


def _is_no_number(check: Check) -> bool:
    return check.floor is not None and bool(
        np.any(~np.isfinite(check.candidate) & np.isfinite(check.exact))
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Healed:
    """Differences that are gone.

    Attributes:
        tensors: those that differ.
        where: the first tensor that they go into and that is right.
        is_disputed: whether that is wrong for the candidate's own values of them.
        consequences: those of them that are right for the reference's own values.
    """

    tensors: tuple[str, ...]
    where: str
    is_disputed: bool = False
    consequences: frozenset[str] = frozenset()


def _listed_elsewhere(check: Check, checks: Sequence[Check]) -> str | None:
    """Name the right tensor that a list of hidden states holds in place of another, bit for bit."""
    if not _LIST.search(check.name) or check.floor is None:
        return None
    for other in checks:
        same = other.candidate.shape == check.candidate.shape and other.places == check.places
        if not same or _LIST.search(other.name) or is_guilty(other):
            continue
        if np.array_equal(other.candidate, check.candidate):
            return other.name
    return None


def _is_constant_shift(check: Check) -> bool:
    """Tell whether a logits tensor is right but for a constant a row."""
    module = check.name.rpartition("-")[0].rpartition(".")[2]
    is_logits = module in _LOGITS or check.name.endswith("-output_logits")
    if check.floor is None or not is_logits or check.candidate.ndim < 2:
        return False
    if not np.isfinite(check.candidate).all():
        return False
    shift = np.mean(widened(check.candidate) - check.exact, axis=-1, keepdims=True)
    without = excess_error(widened(check.candidate) - shift, check.exact, check.floor)
    return not exceeds(without, limits_of(check))


def _groups(guilty: Sequence[Check]) -> dict[str, list[Check]]:
    """Put tensors together that one module's code combines: q and k of one attention."""
    groups: dict[str, list[Check]] = {}
    for check in guilty:
        module = check.name.rpartition("-")[0]
        scope = check.owner if check.is_input else module.rpartition(".")[0] or module
        groups.setdefault(scope, []).append(check)
    return groups


def _healed(
    checker: Checker, checks: Sequence[Check], group: Sequence[Check], scope: str
) -> _Healed | None:
    """Let the reference go on with its own values, and see where the candidate is right again.

    What is wrong then only for the candidate's own values is let go of too, as long as it lies
    near the module that combines the group: a difference that goes further is no harmless one.
    What is guilty otherwise, and right then, is cleared as well: a norm's weight may be folded
    into the next projection.
    """
    known = {check.name: check for check in checks}
    near = scope.rpartition(".")[0] or scope
    innocent = {check.name for check in checks if not is_guilty(check)}
    loose = {check.name for check in group}
    for _ in range(_ROUNDS):
        again = checker.again(checks, unpinned=loose)
        spoiled = {name for name in innocent - loose if not _is_right(again[name])}
        if not spoiled:
            return _outcome(group, known, again, loose | innocent)
        # What comes later may be wrong only for this one.
        earliest = min(spoiled, key=lambda name: known[name].order)
        if not _within(known[earliest].owner, near):
            return None
        loose |= {name for name in spoiled if _is_alias(again[name], again[earliest])}
        # Every layer is handed the same positions.
        loose |= {name for name in innocent if _is_handed_on(known[name], known[earliest])}
    return None


def _outcome(
    group: Sequence[Check],
    before: dict[str, Check],
    after: dict[str, Check],
    expected: Collection[str],
) -> _Healed | None:
    """Say where the group's difference is gone, None where nothing shows that it is."""
    right = [check for check in after.values() if _is_right(check)]
    changed = [check for check in right if _matters(before[check.name], check)]
    cleared = [check.name for check in changed if check.name not in expected]
    if not changed and max(map(_size, group)) > _PLAIN:
        # A difference as large as this that nothing notices: one that cancels, such as q and k.
        changed = [check for check in right if _depends(before[check.name], check)]
    if not changed:
        return None
    first = min(changed, key=lambda check: check.order)
    tensors = (*(check.name for check in group), *cleared)
    return _Healed(
        tensors=tensors,
        where=first.name,
        is_disputed=is_guilty(before[first.name]),
        consequences=frozenset(name for name in tensors if _is_right(after[name])),
    )


def _is_alias(check: Check, other: Check) -> bool:
    return check.name == other.name or (
        check.exact.size > 0 and np.array_equal(check.exact, other.exact, equal_nan=False)
    )


def _is_handed_on(check: Check, other: Check) -> bool:
    """Tell an input that is, in the candidate, another tensor bit for bit."""
    return (
        check.is_input
        and check.candidate.size > 0
        and check.places == other.places
        and np.array_equal(check.candidate, other.candidate)
    )


def _size(check: Check) -> float:
    return float("inf") if check.excess is None else check.excess.whole


def _depends(before: Check, after: Check) -> bool:
    return not np.array_equal(before.exact, after.exact, equal_nan=True)


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


def _matters(before: Check, after: Check) -> bool:
    """Tell whether the group's difference is seen there, and not lost in rounding."""
    if before.floor is None:
        return not np.array_equal(before.exact, after.exact)
    change = excess_error(before.exact, after.exact, before.floor)
    return exceeds(change, _added_up(before))
