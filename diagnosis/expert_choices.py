"""Choices that a model makes by the greatest of its own scores, such as the experts of a token.

They are judged by rules of their own: the chosen ones as a set, in whatever order, and one that
was chosen for another does no harm where rounding decides between their scores. What the model
chose by is seen while it runs, as the argument of top-k, so that no router has to be known: with a
softmax, a sigmoid, a bias or groups before it.

Legend: n tokens, k chosen of each, E to choose from.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from comparison.numerics.dtypes import Array
from diagnosis.replay.reference_trace import TracedTensor

if TYPE_CHECKING:
    import torch

_REMEMBERED = 8  # calls of top-k; routers that choose groups first call it several times
_NOISE = 8.0  # times the reference's own rounding error, on either score
_UNIT = 2.0**-24  # a score is no more exact than this, relatively


class TopkLog:
    """What the latest calls of top-k chose from."""

    def __init__(self) -> None:
        self._calls: deque[tuple[torch.Tensor, torch.Tensor]] = deque(maxlen=_REMEMBERED)

    def note(self, scores: torch.Tensor, chosen: torch.Tensor) -> None:
        """Keep one call; both are copied, since models go on writing into them."""
        self._calls.append((scores.clone(), chosen.clone()))

    def scores_of(self, chosen: torch.Tensor) -> torch.Tensor | None:
        """Return what a tensor of chosen ones was chosen from, [..., E]; None if by no top-k."""
        import torch

        for scores, found in reversed(self._calls):
            alike = found.numel() == chosen.numel() and found.shape[-1] == chosen.shape[-1]
            if alike and torch.equal(found.reshape(chosen.shape), chosen):
                return scores
        return None


@contextmanager
def noting_topk(log: TopkLog) -> Iterator[None]:
    """Keep every call of top-k along the last dimension that the block makes."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class _Noting(TorchDispatchMode):  # a dispatch mode exists only with torch
        def __torch_dispatch__(
            self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
        ) -> Any:
            del types
            result = func(*args, **(kwargs or {}))
            if func.overloadpacket.__name__ == "topk" and result[1].dim() > 1:
                log.note(args[0], result[1])
            return result

    with _Noting():
        yield


def is_choice(traced: TracedTensor) -> bool:
    """Tell whether a tensor may hold what was chosen for each token, [T, k]."""
    return traced.dtype in ("int64", "int32") and len(traced.wanted.trailing) == 1


def weights_of(name: str, traced: Mapping[str, TracedTensor]) -> str | None:
    """Name the tensor of floats that lies beside one of chosen ones and goes with it."""
    prefix, shapes = name.rpartition("_")[0], traced[name].shapes
    for other in traced.values():
        beside = other.name.rpartition("_")[0] == prefix and other.name != name
        if beside and other.shapes == shapes and "float" in other.dtype:
            return other.name
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """How the chosen ones differ.

    Attributes:
        other: tokens for which others were chosen, though the scores say clearly which.
        tied: tokens for which others were chosen and rounding decides between them.
        reordered: number of tokens for which the same were chosen, in another order.
        margin: the clearest of the scores' differences among those that are tied.
        noise: what rounding explains of such a difference.
    """

    other: Array
    tied: Array
    reordered: int
    margin: float
    noise: float

    @property
    def harmless(self) -> str:
        """What to say of differences that do no harm; empty where there are none."""
        if self.tied.size:
            return (
                f"other ones are chosen for {self.tied.size} token(s), between which rounding "
                f"decides (margin {self.margin:.2g}, noise {self.noise:.2g}): a tie"
            )
        if self.reordered:
            return f"the same ones are chosen in another order for {self.reordered} token(s)"
        return ""


def judge_choices(candidate: Array, reference: Array, *, scores: Array, noise: float) -> Judged:
    """Compare what was chosen for each token.

    Args:
        candidate: [n, k].
        reference: [n, k].
        scores: what the reference chose from, [n, E].
        noise: by how much rounding may move the difference of two scores.
    """
    other: list[int] = []
    tied: list[int] = []
    margin = 0.0
    same = np.sort(candidate, axis=-1) == np.sort(reference, axis=-1)
    for token in np.flatnonzero(~same.all(axis=-1)):
        found = _margin(candidate[token], reference[token], scores[token])
        (tied if found <= noise else other).append(int(token))
        margin = max(margin, found) if found <= noise else margin
    moved = (candidate != reference).any(axis=-1) & same.all(axis=-1)
    return Judged(
        other=np.array(other, dtype=int),
        tied=np.array(tied, dtype=int),
        reordered=int(moved.sum()),
        margin=margin,
        noise=noise,
    )


def _margin(mine: Array, theirs: Array, scores: Array) -> float:
    """Say how far the best that was left out lies above the worst that was taken for it."""
    taken = {int(one) for one in mine}
    lost = [int(one) for one in theirs if int(one) not in taken]
    gained = taken - {int(one) for one in theirs}
    possible = all(0 <= one < scores.shape[-1] for one in gained)
    if len(taken) < mine.size or not possible or not gained:
        return float("inf")  # one twice, or one that does not exist
    margin = float(scores[lost].max() - scores[sorted(gained)].min())
    return margin if np.isfinite(margin) else float("inf")


def noise_of_scores(native: Array, exact: Array) -> float:
    """Say by how much rounding may move the difference of two scores, both [n, E]."""
    finite = np.isfinite(native) & np.isfinite(exact)
    if not finite.any():
        return 0.0
    error = native[finite] - exact[finite]
    size = float(np.abs(exact[finite]).max())
    return _NOISE * max(float(np.sqrt(np.mean(np.square(error)))), _UNIT * size)


def by_id(values: Array, ids: Array, *, like: Array, default: Array) -> Array:
    """Bring values that go with chosen ones into the order of others that were chosen.

    Args:
        values: [n, k].
        ids: what they go with, [n, k].
        like: the order to bring them to, [n, k].
        default: the values of those that are not among the ids, [n, k].
    """
    place = ids[:, None, :] == like[:, :, None]  # [n, wanted k, k]
    found = np.take_along_axis(values, place.argmax(axis=-1), axis=-1)
    return np.where(place.any(axis=-1), found, default)


def in_order_of(ids: Array, like: Array) -> Array:
    """Order chosen ones as others, for tokens for which the same were chosen; both [n, k]."""
    same = (np.sort(ids, axis=-1) == np.sort(like, axis=-1)).all(axis=-1)
    return np.where(same[:, None], like, ids)


def any_choice(traced: Iterable[TracedTensor]) -> bool:
    """Tell whether a model may choose anything."""
    return any(is_choice(tensor) for tensor in traced)
