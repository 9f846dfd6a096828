"""A factor that is wrong, doubled or left out: of attention scores, an output, an attribute."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from diagnosis.causes.attention_sites import AttentionChange, changed_attention
from diagnosis.causes.changes import with_attributes
from diagnosis.causes.leaf import is_summed_over_ranks
from diagnosis.causes.rope import makes_tables
from diagnosis.causes.trial import FittedTrial, OutputTrial, RunTrial, Trial

if TYPE_CHECKING:
    import torch

    from diagnosis.causes.region import Region

_FACTORS = (2.0, 0.5, 2.0**0.5, 0.5**0.5, 4.0, 0.25, 8.0, 0.125, 32.0, 1 / 32)
_MULTIPLIER = re.compile(r"(scal|multiplier|normalizer)")
_NOT_A_FACTOR = re.compile(r"(rope|_type|attention_scaling|routed)")
_LENGTHS = (8.0, 64.0, 512.0, 4096.0)
_RANKS = (2.0, 4.0, 8.0)


def trials(region: Region) -> Iterator[Trial]:
    """Change named factors, then the attention scores, then the whole output."""
    yield from _attributes(region)
    if region.has_attention:
        yield FittedTrial(
            cause="scale",
            says="multiplies the attention scores by {value} times the right factor",
            change=_scores_times,
            starts=_FACTORS,
            neutral=1.0,
        )
        yield from _by_length(region)
    if not makes_tables(region):  # of which rope_frequency says more
        yield from _output(region)


def _by_length(region: Region) -> Iterator[Trial]:
    """Let the scale grow with the number of keys, as for contexts longer than the training's."""
    ways: dict[str, Callable[[torch.Tensor, float], torch.Tensor]] = {
        "multiplies the scores of n keys by log(n) / log({value}) where n is greater": (
            lambda n, length: (n.log() / math.log(length)).clamp(min=1.0)
        ),
        "multiplies the scores of n keys by log(n) / log({value})": (
            lambda n, length: n.log() / math.log(length)
        ),
        "multiplies the scores of n keys by 1 + 0.1 log(1 + n // {value})": (
            lambda n, length: 1.0 + 0.1 * (1.0 + (n // length)).log()
        ),
    }
    for says, factor in ways.items():
        for counted in (False, True) if "greater" in says else (False,):
            yield FittedTrial(
                cause="scale",
                says=says + ", padding counted" * counted,
                change=partial(_scores_by_length, region, counted, factor),
                starts=_LENGTHS,
            )


def _scores_by_length(
    region: Region,
    counted: bool,
    factor: Callable[[torch.Tensor, float], torch.Tensor],
    length: float,
) -> AbstractContextManager[None]:
    def operands(q: torch.Tensor, k: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        import torch

        before = region.padding(region.running.row) if counted else 0
        keys = torch.arange(1, q.shape[-2] + 1, dtype=q.dtype) + before
        return q * factor(keys, length)[:, None], k

    return changed_attention(AttentionChange(operands=operands))


def _attributes(region: Region) -> Iterator[Trial]:
    for owner, name, value in _factors(region):
        yield RunTrial(
            cause="scale",
            says=f"leaves {name} out",
            expects=f"{name} is {value:.6g}",
            change=partial(with_attributes, owner, {name: 1.0}),
        )
        yield FittedTrial(
            cause="scale",
            says=f"takes {{value}} for {name}",
            expects=f"{name} is {value:.6g}",
            change=partial(_with, owner, name),
            starts=(1.0, value * 2, value / 2, value**2, value**0.5),
            neutral=value,
        )


def _factors(region: Region) -> Iterator[tuple[Any, str, float]]:
    """Find numbers that are factors by their name: of the module, and of the configuration."""
    own: Mapping[str, Any] = vars(region.module)
    holders = [(region.module, own)]
    if region.config is not None and region.parent is None:
        holders.append((region.config, vars(region.config)))
    for owner, values in holders:
        for name, value in values.items():
            is_factor = _MULTIPLIER.search(name) and not _NOT_A_FACTOR.search(name)
            if is_factor and isinstance(value, float) and value > 0:
                yield owner, name, value


def _with(owner: Any, name: str, value: float) -> AbstractContextManager[None]:
    return with_attributes(owner, {name: value})


def _scores_times(factor: float) -> AbstractContextManager[None]:
    return changed_attention(AttentionChange(operands=lambda q, k: (q * factor, k)))


def _output(region: Region) -> Iterator[Trial]:
    exact, target = region.exact, region.target
    finite = np.isfinite(exact) & np.isfinite(target)
    square = float(np.sum(exact[finite] ** 2))
    if square == 0.0:
        return
    factor = float(np.sum(exact[finite] * target[finite])) / square
    near = round(factor, 4)
    factor = near if abs(factor - near) < 1e-6 else factor
    if abs(factor - 1.0) < 1e-4:
        return
    if factor in _RANKS and is_summed_over_ranks(region):
        yield OutputTrial(
            cause="shard",
            says=f"gives {factor:.0f} times the output, as where {factor:.0f} ranks that each hold "
            "all of it are summed",
            predict=lambda y: y * factor,
            value=factor,
        )
        return
    yield OutputTrial(
        cause="scale",
        says=f"multiplies the output by {factor:.6g}",
        predict=lambda y: y * factor,
        numbers=1,
        value=factor,
    )
