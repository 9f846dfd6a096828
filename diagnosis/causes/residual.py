"""Sums of a layer that are put together in another way: residuals lost, doubled or normed.

A tensor that a layer computes is a sum of tensors that are known: what goes into the layer and what
its parts give. The sum that gives the candidate's values is sought by least squares among the
smallest sets of these.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from comparison.numerics.dtypes import Array
from diagnosis.causes.trial import OutputTrial, Trial
from diagnosis.rounding import widened

if TYPE_CHECKING:
    from diagnosis.causes.region import Region

_MOST_PARTS = 10
_EXACT = 1e-5  # relative; the candidate's own rounding is below that
_ROUND = (-1.0, 0.5, 1.0, 2.0, 3.0, 4.0)


def trials(region: Region) -> Iterator[Trial]:
    """Seek the sum that the candidate computes."""
    if not any(True for _ in region.module.children()):
        return
    parts = _parts(region)
    right = _sum_of(region.exact, parts)
    wrong = _sum_of(region.target, parts)
    if right is None or wrong is None or right == wrong:
        return
    terms = dict(wrong)
    says = f"computes {_spelled(wrong)}"
    yield OutputTrial(
        cause=_cause(region, right, wrong, parts),
        says=says,
        expects=f"it is {_spelled(right)}",
        predict=lambda y: sum(
            (factor * parts[name] for name, factor in terms.items()), np.zeros_like(y)
        ),
    )


def _parts(region: Region) -> dict[str, Array]:
    """List tensors of the same shape that the candidate had before, by name."""
    shape = region.exact.shape
    found: dict[str, Array] = {}
    for check in region.all_checks:
        inside = check.name.startswith(f"{region.owner}.") or check.name.startswith(
            f"{region.owner}-input"
        )
        if not inside or check.order >= region.first.order or check.candidate.shape != shape:
            continue
        values = widened(check.candidate)
        if np.iscomplexobj(values):
            continue
        if not np.isfinite(values).all():
            continue
        if any(np.array_equal(values, other) for other in found.values()):
            continue
        if check.places == region.first.places:
            found[check.name] = values
    return dict(list(found.items())[-_MOST_PARTS:])


Terms = tuple[tuple[str, float], ...]


def _sum_of(target: Array, parts: Mapping[str, Array]) -> Terms | None:
    """Find the smallest sum with round factors that gives the target, else any factors."""
    if not np.isfinite(target).all():
        return None
    flat = {name: values.ravel() for name, values in parts.items()}
    for count in (1, 2, 3):
        for names in combinations(flat, count):
            found = _fit(target.ravel(), flat, names)
            if found is not None:
                return found
    return None


def _fit(target: Array, parts: Mapping[str, Array], names: Sequence[str]) -> Terms | None:
    matrix = np.stack([parts[name] for name in names], axis=1)
    factors, *_ = np.linalg.lstsq(matrix, target, rcond=None)
    if np.any(np.abs(factors) < 1e-6):
        return None
    error = float(np.sqrt(np.mean((matrix @ factors - target) ** 2)))
    if error > _EXACT * float(np.sqrt(np.mean(target**2))):
        return None
    return tuple(zip(names, map(_rounded, factors), strict=True))


def _rounded(factor: float) -> float:
    near = min(_ROUND, key=lambda value: abs(value - factor))
    return near if abs(near - factor) < 1e-4 else float(factor)


def _spelled(terms: Terms) -> str:
    return " + ".join(
        name if factor == 1.0 else f"{factor:.6g} * {name}" for name, factor in terms
    ).replace("+ -1 * ", "- ")


def _cause(region: Region, right: Terms, wrong: Terms, parts: Mapping[str, Array]) -> str:
    """Tell sums that norm something else from those that lose or double something."""
    mine, theirs = {name for name, _ in right}, {name for name, _ in wrong}
    if any("expert" in name for name in mine | theirs):
        return "moe_routing"
    if any(_is_normed(name) for name in theirs - mine):
        return "norm_order"
    if _feeds_a_norm(region) and len(mine) == 1 and len(theirs) > 1:
        return "norm_order"  # a sum is normed where an output was meant
    if theirs < mine and _comes_back(region, mine - theirs):
        return "norm_order"  # as where attention and MLP get the same hidden states
    if theirs == mine and not all(factor in _ROUND for _, factor in (*wrong, *right)):
        return "scale"
    return "residual"


def _is_normed(name: str) -> bool:
    return "norm" in name.rpartition("-")[0].rpartition(".")[2].lower() or ".ln_" in name


def _feeds_a_norm(region: Region) -> bool:
    return _is_normed(region.first.name) and region.first.is_input


def _comes_back(region: Region, lost: set[str]) -> bool:
    """Tell whether what is lost here is added to a later tensor of the same layer."""
    for check in region.checks:
        if check.order <= region.first.order or check.exact.shape != region.exact.shape:
            continue
        error = widened(check.candidate) - check.exact
        for name in lost:
            known = next((c for c in region.all_checks if c.name == name), None)
            if known is not None and np.allclose(
                error, widened(known.candidate), rtol=1e-3, atol=1e-4
            ):
                return True
    return False
