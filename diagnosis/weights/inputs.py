"""What unlike weights mean for a verdict: not given alike, and maybe the cause."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from comparison.numerics.weight_record import WeightRecord
from comparison.schema.diagnosis import Cause, Culprit, InputDifference
from comparison.store.dump import Dump
from comparison.store.weights_file import WEIGHTS_NAME, is_weights_record, read_weights
from diagnosis.weights.compare import compare_weights
from diagnosis.weights.finding import WeightComparison, WeightFinding, WeightKind, owner_of

if TYPE_CHECKING:
    import torch

_CAUSES = {
    WeightKind.TRANSPOSED: "transpose",
    WeightKind.PERMUTED_ROWS: "permutation",
    WeightKind.PERMUTED_COLUMNS: "permutation",
    WeightKind.TIED: "tied_weights",
    WeightKind.DUPLICATED_SHARD: "shard",
}
_OF_BIASES = {WeightKind.MISSING, WeightKind.SCALED, WeightKind.OFFSET}
_OTHER_CAUSE = "weights"
_LIKE_ANOTHER_WEIGHT = frozenset({"scale", "bias"})  # what these give, a weight gives as well


def weights_against(model: torch.nn.Module, dump: Dump) -> WeightComparison | None:
    """Compare the weights of a reference in hand with those that a dump tells.

    Args:
        model: the reference.
        dump: the candidate's.

    Returns:
        None where the dump does not tell its weights.

    Raises:
        BadInputError: its record of weights cannot be read.
    """
    from test_common.weight_recorder import weights_of_module

    theirs = _told(dump)
    return None if theirs is None else compare_weights(weights_of_module(model), theirs)


def dumped_weights(reference: Dump, candidate: Dump) -> WeightComparison | None:
    """Compare the weights that two dumps tell, None where one of them does not.

    Raises:
        BadInputError: a record of weights cannot be read.
    """
    ours, theirs = _told(reference), _told(candidate)
    return None if ours is None or theirs is None else compare_weights(ours, theirs)


def _told(dump: Dump) -> WeightRecord | None:
    """Read a dump's record; what only has its name in a folder made by hand is none."""
    path = dump.path / WEIGHTS_NAME
    if dump.manifest is None and path.exists() and not is_weights_record(path):
        return None
    return read_weights(dump.path)


def weight_differences(weights: WeightComparison | None) -> Iterator[InputDifference]:
    """Yield what differs, one a kind; none of it alone makes a run wrong."""
    by_kind: dict[WeightKind, list[WeightFinding]] = {}
    for finding in () if weights is None else weights.findings:
        by_kind.setdefault(finding.kind, []).append(finding)
    for kind, findings in by_kind.items():
        first = findings[0]
        more = f" and {len(findings) - 1} more" if len(findings) > 1 else ""
        yield InputDifference(
            kind="weights",
            what=str(kind),
            reference=f"{', '.join(first.reference)}{more}",
            candidate=f"{first.candidate or 'nowhere'}: {first.evidence}",
            decisive=False,
        )


def weight_cause(
    weights: WeightComparison | None, culprit: Culprit | None, judged: Collection[str]
) -> Cause | None:
    """Say that a module is wrong for its weights, where these differ.

    Args:
        weights: what differs.
        culprit: the first module that is wrong by itself.
        judged: modules whose output was judged; one that was, and is right, has right weights.

    Returns:
        None where the culprit's weights are the reference's, or are not known.
    """
    if weights is None or culprit is None:
        return None
    found = [*weights.findings, *weights.conventions]
    for finding in found:
        if _is_of(finding.module, culprit.module, judged):
            names = " and ".join(finding.reference)
            other = finding.candidate if finding.candidate not in finding.reference else None
            where = f" ({other})" if other else ""
            return Cause(
                id=_cause_id(finding),
                evidence=f"runs with other weights: {names}{where} is {finding.kind}: "
                f"{finding.evidence}",
            )
    for name in weights.absent:
        if _is_of(owner_of(name), culprit.module, judged):
            return Cause(
                id=_OTHER_CAUSE,
                evidence=f"lacks {name}: it has no weight of that name or value",
            )
    return None


def weights_first(cause: Cause, module: torch.nn.Module | None) -> Cause:
    """Advise on the weights before all else, where they are not known and may be the cause.

    Args:
        cause: of the culprit, whose weights the candidate's dump does not tell.
        module: the culprit in the reference; None where there is none of that name.
    """
    owns = module is not None and any(True for _ in module.parameters(recurse=False))
    if not owns or cause.id not in _LIKE_ANOTHER_WEIGHT:
        return cause
    more = f"; then {cause.advice}" if cause.advice else ""
    first = "the module's own weights, which the candidate's dump does not tell"
    return replace(cause, advice=f"{first}{more}")


def ruled_out(weights: WeightComparison | None, module: str) -> frozenset[str]:
    """Return the causes that cannot be: other weights, where a module's are the reference's.

    Args:
        weights: what both sides loaded; None where one of them does not tell.
        module: by the reference's name.
    """
    if weights is None:
        return frozenset()
    odd = [item.module for item in (*weights.findings, *weights.conventions)]
    odd += map(owner_of, weights.absent)
    same = module in map(owner_of, weights.same) and module not in odd
    return frozenset({_OTHER_CAUSE, "tied_weights"}) if same else frozenset()


def _cause_id(finding: WeightFinding) -> str:
    if finding.kind in _OF_BIASES and all(name.endswith(".bias") for name in finding.reference):
        return "bias"
    return _CAUSES.get(finding.kind, _OTHER_CAUSE)


def _is_of(owner: str, culprit: str, judged: Collection[str]) -> bool:
    """Tell whether a weight's module is the culprit, or a part of it that is not seen by itself."""
    if owner == culprit:
        return True
    if not owner.startswith(f"{culprit}."):
        return False
    inner = owner.removeprefix(f"{culprit}.").split(".")
    between = (".".join([culprit, *inner[: n + 1]]) for n in range(len(inner)))
    return not any(module in judged for module in between)
