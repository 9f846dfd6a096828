"""Other tokens and other configurations: no module is to be blamed for these."""

from __future__ import annotations

from typing import Any

from tests.faults.models import SHORT_ROWS, with_config
from tests.faults.third_part.planted import Planted, fault

_FIRST, _SECOND = SHORT_ROWS


def _same(root: Any) -> None:
    """Leave the copy as it is."""


def _tokens(name: str, where: str, rows: tuple[tuple[int, ...], ...]) -> Planted:
    return fault("tokens", name, where, "root", _same, blames=False, candidate_rows=rows)


def _config(name: str, where: str, **changes: Any) -> Planted:
    arch = where.partition("/")[0]
    return fault(
        "config", name, where, "root", lambda root: with_config(arch, **changes),
        blames=False, own_config=True,
    )  # fmt: skip


PLANTS: tuple[Planted, ...] = (
    _tokens("begin_twice", "qwen2_odd/P", ((1, *_FIRST), (1, *_SECOND))),
    _tokens("end_cut_off", "gemma/S", (_FIRST[:-1], _SECOND)),
    _tokens("split_otherwise", "opt/R", (_FIRST, (*_SECOND[:3], 11, 12, *_SECOND[4:]))),
    _tokens("rows_exchanged", "roberta/P", (_SECOND, _FIRST)),
    _config("theta", "mistral/P", rope_parameters={"rope_type": "default", "rope_theta": 1e6}),
    _config("activation", "granite_odd/P", hidden_act="gelu"),
    _config("eps", "qwen3_odd/P", rms_norm_eps=1e-6),
    _config("logit_scale", "cohere2/P", logit_scale=0.0625),
)
