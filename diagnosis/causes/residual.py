"""Sums of a layer that are put together in another way: residuals lost, doubled or normed.

A tensor that a layer computes is a sum of tensors that are known: what goes into the layer and what
its parts give. The sum that gives the candidate's values is sought by least squares among the
smallest sets of these.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from comparison.numerics.dtypes import Array
from diagnosis.causes.trial import OutputTrial, Trial
from diagnosis.rounding import widened

if TYPE_CHECKING:
    from diagnosis.causes.region import Region
    from diagnosis.check import Check

_MOST_PARTS = 10
_EXACT = 1e-5  # relative; the candidate's own rounding is below that
_ROUND = (-1.0, 0.5, 1.0, 2.0, 3.0, 4.0)
_RANKS = (2.0, 4.0, 8.0)
_OF_MEANS = (0.5, 0.7071)


def trials(region: Region) -> Iterator[Trial]:
    """Seek the sum that the candidate computes."""
    if not any(True for _ in region.module.children()):
        return
    parts, later = known_parts(region), later_parts(region)
    right = _sum_of(region.exact, parts)
    wrong = _sum_of(region.target, parts) or _sum_with_later(region.target, parts, later)
    if right is None or wrong is None or right == wrong:
        return
    every, terms = {**parts, **later}, dict(wrong)
    first, *others = causes_of_sum(region, right, wrong)
    for cause in (first, *others):
        yield OutputTrial(
            cause=cause,
            says=f"computes {_spelled(wrong)}",
            expects=f"it is {_spelled(right)}",
            predict=lambda y: sum(
                (factor * every[name] for name, factor in terms.items()), np.zeros_like(y)
            ),
        )


def known_parts(region: Region) -> dict[str, Array]:
    """List tensors of the same shape that the candidate had before, by name."""
    found: dict[str, Array] = {}
    for check in region.all_checks:
        inside = check.name.startswith(f"{region.owner}.") or check.name.startswith(
            f"{region.owner}-input"
        )
        if inside and check.order < region.first.order:
            _add(found, region, check)
    return dict(list(found.items())[-_MOST_PARTS:])


def later_parts(region: Region) -> dict[str, Array]:
    """List what parts of the module gave that come later in the reference.

    A candidate that runs them in another order has these before. What a layer gives in the end is
    not among them, since the tensor in question is a part of that.
    """
    found: dict[str, Array] = {}
    for check in region.all_checks:
        if (
            check.name.startswith(f"{region.owner}.")
            and check.order > region.first.order
            and "-output" in check.name
            and not np.array_equal(check.candidate, region.first.candidate)
        ):
            _add(found, region, check)
    return dict(list(found.items())[:_MOST_PARTS])


def _add(found: dict[str, Array], region: Region, check: Check) -> None:
    if check.candidate.shape != region.exact.shape or check.places != region.first.places:
        return
    values = widened(check.candidate)
    if np.iscomplexobj(values) or not np.isfinite(values).all():
        return
    if not any(np.array_equal(values, other) for other in found.values()):
        found[check.name] = values


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


def _sum_with_later(
    target: Array, parts: Mapping[str, Array], later: Mapping[str, Array]
) -> Terms | None:
    """Find a sum of at most one later tensor, taken once, and of those before."""
    if not np.isfinite(target).all():
        return None
    flat = {name: values.ravel() for name, values in {**parts, **later}.items()}
    for count in (0, 1, 2):
        for name in later:
            for names in combinations(parts, count):
                found = _fit(target.ravel(), flat, (*names, name))
                if found is not None and all(factor == 1.0 for _, factor in found):
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


def causes_of_sum(region: Region, right: Terms, wrong: Terms) -> tuple[str, ...]:
    """Tell whose fault another sum is, the likeliest first."""
    mine, theirs = dict(right), dict(wrong)
    changed = {name for name in mine | theirs if mine.get(name) != theirs.get(name)}
    if any("expert" in name for name in changed):
        return ("moe_routing",)
    if mine.keys() == theirs.keys():
        return _of_factors(region, mine, theirs)
    if len(mine) == len(theirs) == 1:
        return (_of_other_input(region, next(iter(mine)), next(iter(theirs))),)
    cause = _of_other_terms(region, mine, theirs)
    if any(_is_normed(name) for name in theirs.keys() - mine.keys()):
        return cause, "norm_order" if cause == "residual" else "residual"  # it may be called either
    return (cause,)


def _of_factors(
    region: Region, mine: Mapping[str, float], theirs: Mapping[str, float]
) -> tuple[str, ...]:
    """Tell factors of the same terms: of ranks, of all terms alike, or of one."""
    ratios = {round(theirs[name] / factor, 4) for name, factor in mine.items()}
    ratio = next(iter(ratios))
    if len(mine) == 1:
        is_copy = set(mine.values()) == {1.0} and not region.first.is_input
        if is_copy and ratio in _RANKS:
            return ("shard", "reduction", "scale")
        if is_copy and 1.0 / ratio in _RANKS:
            return ("reduction", "scale")
        return ("scale",)
    if len(ratios) == 1 and ratio in _OF_MEANS:
        return ("residual", "scale")
    is_round = all(factor in _ROUND for factor in (*mine.values(), *theirs.values()))
    return ("residual",) if is_round else ("scale", "residual")


def _of_other_input(region: Region, mine: str, theirs: str) -> str:
    """Tell which tensor is handed on where it is another one."""
    if _is_normed(mine):
        return "norm_order"  # what the norm gave is not used
    is_hidden = region.first.name.endswith(("-input_0", "-input_hidden_states"))
    return "norm_order" if _is_normed(theirs) and is_hidden else "residual"


def _of_other_terms(region: Region, mine: Mapping[str, float], theirs: Mapping[str, float]) -> str:
    """Tell sums that norm something else from those that lose or double something."""
    lost, new = mine.keys() - theirs.keys(), theirs.keys() - mine.keys()
    if any(_is_normed(name) for name in new):
        # The stream goes on behind a norm: in the middle of a layer that is a wrong residual, at
        # its end the norm is where layers have it that norm behind their parts.
        is_other = bool(lost) and all(map(_is_stream, lost)) and region.first.is_input
        return "residual" if is_other else "norm_order"
    if _feeds_a_norm(region) and len(mine) == 1:
        return "norm_order"  # a sum is normed where an output was meant
    if lost and not new and _comes_back(region, lost):
        return "norm_order"  # as where attention and MLP get the same hidden states
    return "residual"


def _is_stream(name: str) -> bool:
    """Tell the residual stream, which parts get, from what a part gives."""
    return "-input" in name


def _is_normed(name: str) -> bool:
    return "norm" in name.rpartition("-")[0].rpartition(".")[2].lower() or ".ln_" in name


def _feeds_a_norm(region: Region) -> bool:
    return _is_normed(region.first.name) and region.first.is_input


def _comes_back(region: Region, lost: Iterable[str]) -> bool:
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
