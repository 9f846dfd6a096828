"""Which module a wrong tensor speaks against."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from comparison.schema.diagnosis import Guilty
from diagnosis.candidate_tensors import CandidateTensors
from diagnosis.check import Check
from diagnosis.choice_checks import CHOSEN, phrases_of_choice
from diagnosis.gaps import gap_before
from diagnosis.guilt import own_error, worst
from diagnosis.location import bad_places, describe_where, spot_of
from diagnosis.rank_blame import phrases_of_ranks, wrong_rank
from diagnosis.replay.module_watch import module_of
from diagnosis.replay.reference_calls import ReferenceCall
from diagnosis.replay.reference_trace import TracedTensor


def guilty_of(
    check: Check,
    traced: Mapping[str, TracedTensor],
    candidate: CandidateTensors,
    checks: Sequence[Check],
    calls: Sequence[ReferenceCall],
) -> Guilty:
    """Say which module a wrong tensor speaks against, and where in the tensor it is wrong.

    Args:
        check: the tensor, which is wrong by itself.
        traced: the reference's tensors.
        candidate: the candidate's.
        checks: all that was judged.
        calls: the rows.
    """
    owner = _attention_of(check, traced) or check.owner
    gap = gap_before(check, checks, traced)
    owner = owner if gap is None else gap.owner
    pin = candidate.pinned(check.name)
    spot = spot_of(bad_places(check)[0], calls)
    return Guilty(
        module=module_of(owner),
        candidate_module=_candidate_module(check, owner),
        tensor=check.name,
        candidate_tensor=check.candidate_names[0],
        between=_between(check, traced, candidate, owner)
        if gap is None
        else (candidate.candidate_names(gap.last)[0], check.candidate_names[0]),
        spot=replace(spot, rank=wrong_rank(check, pin, candidate)),
        local_error=1.0 if check.excess is None else check.excess.error,
        bound=0.0 if check.excess is None else check.excess.bound,
        reference_error=own_error(check),
        excess=float("inf") if check.excess is None else worst(check.excess),
        where=(
            *describe_where(check, calls),
            *(gap.phrases if gap is not None else ()),
            *phrases_of_choice(check),
            *phrases_of_ranks(check, pin),
        ),
    )


def _between(
    check: Check, traced: Mapping[str, TracedTensor], candidate: CandidateTensors, owner: str
) -> tuple[str, str] | None:
    """Name both ends where the owner's own code is meant, and not the owner as a whole."""
    has_children = any(name.startswith(f"{owner}.") for name in traced)
    if not has_children or not check.since:
        return None
    return candidate.candidate_names(check.since[-1])[0], check.candidate_names[0]


def _attention_of(check: Check, traced: Mapping[str, TracedTensor]) -> str | None:
    """Blame a wrong mask on the attention that it is for, not on whoever hands it down."""
    if not traced[check.name].is_mask:
        return None
    module, _, slot = check.name.rpartition("-")
    inner = [name for name in traced if name.startswith(f"{module}.") and name.endswith(slot)]
    return max(inner, key=len).rpartition("-")[0] if inner else module


def _candidate_module(check: Check, owner: str) -> str | None:
    """Guess the candidate's name of a module from that of a tensor next to it."""
    reference = check.name.rpartition("-")[0]
    candidate = check.candidate_names[0].rpartition("-")[0]
    if owner == reference:
        return module_of(candidate)
    tail = reference.removeprefix(owner)
    if tail != reference and tail.startswith(".") and candidate.endswith(tail):
        return module_of(candidate.removesuffix(tail))
    depth = reference.removeprefix(owner).count(".") if reference.startswith(owner) else 0
    parts = candidate.split(".")
    return ".".join(parts[:-depth]) if 0 < depth < len(parts) else None


def merged(records: Sequence[Guilty]) -> list[Guilty]:
    """Keep one record a module, the first in order of execution.

    Chosen ones and the weights that go with them are two sides of one fault.
    """
    kept: dict[str, Guilty] = {}
    for record in records:
        first = kept.setdefault(record.module, record)
        if record is not first:
            beside = [text for text in record.where if text not in first.where and CHOSEN in text]
            kept[record.module] = replace(first, where=(*first.where, *beside))
    return list(kept.values())
