"""Faults that lie not in the candidate: a reference that looks ahead, a run changed by capture."""

from __future__ import annotations

from typing import Any

import torch

from tests.faults.changes import noise_like
from tests.faults.own_attention import wrap_forward
from tests.faults.pair import Plant

_AHEAD = ("llama_ahead", "gemma2_ahead", "gpt2_ahead")


def _as_it_should_be(attention: Any) -> None:
    """Let the copy see no later tokens; the reference goes on to."""
    attention.__class__ = type(attention).__mro__[1]


def _shy(change: Any, *, when_watched: bool) -> Any:
    """Change what a module returns only with hooks on it, or only without."""

    def of(module: Any, y: Any) -> Any:
        return change(y) if bool(module._forward_hooks) is when_watched else y

    return lambda module: wrap_forward(module, of)


def _observer(name: str, archs: tuple[str, ...], role: str, change: Any) -> Plant:
    return Plant(
        kind="observer", name=name, archs=archs, role=role, change=change, cause="observer",
        blames=False,
    )  # fmt: skip


def _noisy(y: torch.Tensor) -> torch.Tensor:
    return y + noise_like(y)


PLANTS: tuple[Plant, ...] = (
    Plant(
        kind="reference_not_causal", name="mask_dropped", archs=_AHEAD, role="attn",
        change=_as_it_should_be, cause="reference_not_causal",
    ),
    _observer("right_while_watched", ("llama", "bloom"), "mlp",
              _shy(lambda y: 1.3 * y, when_watched=False)),
    _observer("wrong_while_watched", ("qwen3", "bert"), "down", _shy(_noisy, when_watched=True)),
    _observer("norm_skipped_while_watched", ("gemma3",), "norm2",
              _shy(lambda y: 0.5 * y, when_watched=True)),
)  # fmt: skip
