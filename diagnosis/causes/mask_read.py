"""The mask that a candidate's attention had, read off what the attention gave.

With weights p of all keys, and 0 or 1 for each key in m, a query's output is
y = sum(m p v) / sum(m p), so that sum(m p (v - y)) = 0: a linear system for m with one equation for
each head and channel. It has one solution where there are more of these than keys.

Legend: N heads, S queries, T keys, D head size.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from comparison.numerics.dtypes import Array
from diagnosis.causes.attention_sites import AttentionChange
from diagnosis.causes.mask_words import told
from diagnosis.causes.masks import distances, keys_there, scoring
from diagnosis.causes.scopes import head_sizes

if TYPE_CHECKING:
    import torch

    from diagnosis.causes.region import Region

_MOST_KEYS = 512  # a system of that size is solved for each query
_LEAST_WEIGHT = 1e-5  # of a key that can be told from rounding
_ALONE = 0.02  # the least singular value against the next, where there is one solution
_NOT_BOOLEAN = 0.1
_BAD = 15.0  # times rounding


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadMasks:
    """The keys that each query of the candidate seems to have seen.

    Attributes:
        says: in words, what is other than in the reference.
        cause: id of the cause.
        rows: by row, [S, T] booleans.
    """

    says: str
    cause: str
    rows: Mapping[int, Array]

    def seen(self, region: Region, seen: torch.Tensor, far: torch.Tensor) -> torch.Tensor:
        """Return what is to be seen in the row that runs; the reference's where none was read."""
        import torch

        del far
        found = self.rows.get(region.running.row)
        return seen if found is None else torch.from_numpy(found).expand_as(seen)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """What an attention computes of one row.

    Attributes:
        weights: of all keys that are there, [N, S, T].
        values: [N, T, D].
        seen: by the reference's mask, [S, T].
        there: when the query is computed, [S, T].
    """

    weights: Array
    values: Array
    seen: Array
    there: Array


def read_masks(region: Region) -> ReadMasks | None:
    """Read the masks of all rows.

    None where the attention is no plain sum of values, has too many keys, or no row can be read.
    """
    sizes, excess = head_sizes(region), region.first.excess
    if sizes is None or excess is None or region.target.shape != region.exact.shape:
        return None
    bad = ~(excess.by_position <= _BAD)
    found: dict[int, Array] = {}
    right: dict[int, _Parts] = {}
    for call in region.calls:
        places = np.flatnonzero(region.positions[:, 0] == call.row)
        parts = _parts(region, call)
        if parts is None or not len(places) or not _is_plain(region, parts, places, sizes):
            continue
        mask = _read(region, parts, places[bad[places]], sizes)
        if mask is not None:
            found[call.row], right[call.row] = mask, parts
    other = {row: (found[row] != right[row].seen).any(axis=-1) for row in found}
    if not any(map(np.any, other.values())):
        return None
    longest = min((row for row in found if other[row].any()), key=region.padding)
    says = told(found[longest], right[longest].seen, right[longest].there)
    return ReadMasks(says=says, cause=_cause(region, other), rows=found)


def _cause(region: Region, other: Mapping[int, Array]) -> str:
    """Say what a mask is that is wrong for some queries, [S] booleans by row."""
    if not any(queries[: region.prompt_tokens(row)].any() for row, queries in other.items()):
        return "decode_cache"  # what a decode step does not see it did not get
    padded = all(region.padding(row) for row, queries in other.items() if queries.any())
    return "padding" if padded else "mask"


def _parts(region: Region, call: object) -> _Parts | None:
    kept: dict[str, torch.Tensor] = {}

    def rescore(scores: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        import torch

        there = keys_there(region, distances(scores))
        kept.update(seen=seen, there=there)
        return scores.masked_fill(~there, -torch.inf)

    def values(weights: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        kept.update(weights=weights, values=v)
        return weights, v

    change = AttentionChange(values=values)
    region.values(lambda: scoring(region, rescore, change), calls=[call])  # type: ignore[list-item]
    if len(kept) != 4 or kept["weights"].shape[-1] > _MOST_KEYS:
        return None
    weights, v = (_of_heads(kept[name]) for name in ("weights", "values"))
    seen = kept["seen"].reshape(-1, *weights.shape[1:]).all(dim=0).numpy()
    return _Parts(weights=weights, values=v, seen=seen, there=kept["there"].numpy())


def _of_heads(x: torch.Tensor) -> Array:
    return np.asarray(x.detach().reshape(-1, *x.shape[-2:]).double().numpy())


def _is_plain(region: Region, parts: _Parts, places: Array, sizes: tuple[int, int]) -> bool:
    """Tell whether the reference's output is the sum of values under its mask."""
    if len(parts.weights) != sizes[0] or parts.values.shape != (
        sizes[0], parts.weights.shape[-1], sizes[1]
    ):  # fmt: skip
        return False
    queries = region.positions[places, 1]
    weights = parts.weights * parts.seen
    weights = weights / weights.sum(axis=-1, keepdims=True)
    made = (weights @ parts.values).swapaxes(0, 1)[queries]
    return np.allclose(made.reshape(len(places), -1), region.exact[places].reshape(len(places), -1))


def _read(region: Region, parts: _Parts, places: Array, sizes: tuple[int, int]) -> Array | None:
    """Return [S, T] booleans; None where a query that is wrong has no solution."""
    mask = parts.seen & parts.there
    for place in places:
        query = int(region.positions[place, 1])
        keys = np.flatnonzero(parts.there[query])
        y = region.target[place].reshape(sizes)
        found = _solved(parts.weights[:, query, keys], parts.values[:, keys], y)
        if found is None:
            return None
        known = np.isfinite(found)
        mask[query, keys[known]] = found[known] > 0.5
    return mask


def _solved(weights: Array, values: Array, y: Array) -> Array | None:
    """Find which keys a query saw, [T], NaN where a weight is too small to tell."""
    greatest = weights.max(axis=0)
    tellable = greatest > _LEAST_WEIGHT
    share = weights[:, tellable] / greatest[tellable]
    system = (share[:, :, None] * (values[:, tellable] - y[:, None])).swapaxes(1, 2)
    system = system.reshape(-1, system.shape[-1])
    if system.shape[1] < 2 or len(system) < system.shape[1] or not np.isfinite(system).all():
        return None
    _, singular, vectors = np.linalg.svd(system, full_matrices=False)
    if not singular[-1] <= _ALONE * singular[-2]:
        return None
    solution = vectors[-1] / greatest[tellable]
    solution = solution / solution[np.argmax(np.abs(vectors[-1]))]
    if (np.minimum(np.abs(solution), np.abs(solution - 1)) > _NOT_BOOLEAN).any():
        return None
    found = np.full(len(greatest), np.nan)
    found[tellable] = solution
    return found
