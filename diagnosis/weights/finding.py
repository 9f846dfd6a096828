"""What a comparison of weights finds."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class WeightKind(StrEnum):
    """How a weight differs."""

    MISSING = "missing"  # zero where the reference's is not
    UNTOUCHED = "untouched"  # what the model was made with, not what the checkpoint holds
    TRANSPOSED = "transposed"
    PERMUTED_ROWS = "permuted rows"
    PERMUTED_COLUMNS = "permuted columns"
    DUPLICATED_SHARD = "duplicated shard"
    TIED = "tied"  # one with another weight, where the reference's is not, or the other way round
    EXCHANGED = "exchanged"  # the values of another weight
    SCALED = "scaled"
    OFFSET = "offset"
    DIFFERENT = "different"


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightFinding:
    """A weight that is not the reference's.

    Attributes:
        reference: the reference's name of it, and of those that are one with it.
        candidate: the candidate's name of what should be it, or holds it; None where none does.
        kind: how it differs.
        evidence: what shows it, in words.
        module: the module that owns it, by the reference's name.
    """

    reference: tuple[str, ...]
    candidate: str | None
    kind: WeightKind
    evidence: str
    module: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightComparison:
    """What two records have in common, and what not.

    Attributes:
        findings: weights that differ, in the reference's order.
        conventions: weights that are kept in a way that some engines choose: a norm's weight with
            1 added, projections interleaved in one matrix.
        absent: the reference's weights of which the candidate shows nothing, neither by name nor
            by value: not used by it, folded into another one, or never read.
        equal: how many of the reference's weights the candidate has.
        same: which of them it has with equal values under the name that means the same; by the
            reference's names.
        not_compared: weights of either side without values, each with its reason.
    """

    findings: tuple[WeightFinding, ...]
    conventions: tuple[WeightFinding, ...] = ()
    absent: tuple[str, ...] = ()
    equal: int = 0
    same: tuple[str, ...] = ()
    not_compared: tuple[str, ...] = ()


def owner_of(weight: str) -> str:
    """Return the module that owns a weight: `model.norm` of `model.norm.weight`."""
    return weight.rpartition(".")[0]
