"""Differences of what the two runs were given: tokens and configurations. No module is to blame."""

from __future__ import annotations

from typing import Any

from tests.faults.models import SHORT_ROWS, with_config
from tests.faults.pair import Plant, Rows

_LLAMA = ("llama", "qwen3")


def _other_config(arch: str, **changes: Any) -> Any:
    return lambda root: with_config(arch, **changes)


def _unchanged(root: Any) -> None:
    """Leave the model as it is."""


def _tokens(*edits: tuple[int, int, int]) -> Rows:
    """Replace tokens: number of the row, place, new token."""
    rows = [list(row) for row in SHORT_ROWS]
    for row, place, token in edits:
        rows[row][place] = token
    return tuple(tuple(row) for row in rows)


def _tokens_fault(name: str, archs: tuple[str, ...], rows: Rows) -> Plant:
    return Plant(
        kind="inputs",
        name=name,
        archs=archs,
        change=_unchanged,
        cause="tokens",
        blames=False,
        candidate_rows=rows,
    )


def _config_fault(name: str, arch: str, **changes: Any) -> Plant:
    return Plant(
        kind="config",
        name=name,
        archs=(arch,),
        change=_other_config(arch, **changes),
        cause="config",
        blames=False,
        own_config=True,
    )


PLANTS: tuple[Plant, ...] = (
    _tokens_fault("one_token", ("llama", "bert", "gpt2"), _tokens((0, 3, 50))),
    _tokens_fault("begin_token_lost", _LLAMA, (SHORT_ROWS[0][1:], SHORT_ROWS[1])),
    _tokens_fault("begin_token_added", ("gemma3",), tuple((1, *row) for row in SHORT_ROWS)),
    _tokens_fault("last_token_of_second_row", ("qwen2", "bloom"), _tokens((1, 8, 3))),
    _tokens_fault("rows_swapped", ("llama",), SHORT_ROWS[::-1]),
    _config_fault("theta", "llama", rope_parameters={"rope_type": "default", "rope_theta": 1e4}),
    _config_fault("eps", "qwen3", rms_norm_eps=1e-3),
    _config_fault("window", "gemma3", sliding_window=6),
    _config_fault("activation", "gemma3", hidden_activation="silu"),
    _config_fault("experts_per_token", "qwen3_moe", num_experts_per_tok=1),
    _config_fault("layers", "llama", num_hidden_layers=2),
    _config_fault("multiplier", "granite", residual_multiplier=1.0),
    _config_fault("soft_cap", "gemma2", attn_logit_softcapping=50.0),
)
