"""Numbers too great for their dtype: infinities that the reference does not have, seen or not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from diagnosis.causes.changes import with_forward
from diagnosis.causes.leaf import matrix_of
from diagnosis.causes.norm import Norm, norms_of
from diagnosis.causes.trial import RunTrial, Sign, Trial

if TYPE_CHECKING:
    import torch

    from diagnosis.causes.region import Region

_GREATEST = {"float16": 65504.0, "bfloat16": 3.3895e38, "float32": 3.4028e38}
_NEAR = 0.01  # of the least of these: what stays below that overflows in none of them
_MOST = 700.0  # whose exponential float64 can hold


def trials(region: Region) -> Iterator[Trial]:
    """Square in float16 what a norm divides by: the root of infinity makes zeros of all."""
    for norm in norms_of(region):
        yield RunTrial(
            cause="overflow",
            says="takes the squares of a norm in float16, where they are infinite, and gives zeros",
            expects=f"squares beyond {_GREATEST['float16']:.6g} are taken in a wider dtype",
            change=partial(with_forward, norm.module, _Squared(norm)),
        )


@dataclass(frozen=True, slots=True)
class _Squared:
    """A norm whose squares are infinite where float16 cannot hold them."""

    norm: Norm

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Compute the norm of x, [..., H]."""
        centred = x - x.mean(dim=-1, keepdim=True) if self.norm.is_centred else x
        lost = (centred.abs() > _GREATEST["float16"] ** 0.5).any(dim=-1, keepdim=True)
        return self.norm(x).masked_fill(lost, 0.0)


def signs(region: Region) -> Iterator[Sign]:
    """Find the first value that is no number; it is no overflow where all on the way is small."""
    target, exact = region.target, region.exact
    bad = np.argwhere(~np.isfinite(target) & np.isfinite(exact))
    if not bad.size:
        return
    infinite = np.argwhere(np.isinf(target) & np.isfinite(exact))
    place = tuple((infinite if infinite.size else bad)[0])
    row, position = region.positions[place[0]]
    limit = _GREATEST.get(region.first.dtype)
    beyond = limit is not None and abs(exact[place]) > limit
    says = (
        f"has {target[place]} at row {row}, token {position}, channel "
        f"{', '.join(map(str, place[1:]))}, where the reference has {exact[place]:.6g}"
    )
    if beyond:
        says += f", which is beyond {region.first.dtype}'s greatest number, {limit:.6g}"
    reach = _reach(region)
    if limit is not None and reach is not None and reach < _NEAR * min(_GREATEST.values()):
        says += f"; that is no overflow, since nothing on the way is greater than {reach:.3g}"
        yield Sign(cause="unknown", says=says, weight=0.9)
        return
    yield Sign(cause="overflow", says=says, weight=0.97 if beyond else 0.9)


def _reach(region: Region) -> float | None:
    """Bound what a leaf can meet on its way to the output: sums, squares, cubes, exponentials.

    Returns:
        None where modules inside, or inputs that are not known, forbid a bound.
    """
    inputs = region.linear_inputs
    if inputs is None or any(True for _ in region.module.children()):
        return None
    given, matrix = np.abs(inputs), matrix_of(region)
    found = [array[np.isfinite(array)] for array in (given, region.exact, region.target)]
    peak = max(float(np.abs(array).max(initial=0.0)) for array in found)
    if matrix is not None:
        weight = np.abs(matrix.values.double().cpu().numpy())
        fits = given.ndim == 2 and given.shape[1] == weight.shape[1]
        return max(peak, float((given @ weight.T).max(initial=0.0))) if fits else None
    return max(given.shape[-1] * peak**2, peak**3, float(np.exp(min(peak, _MOST))))
