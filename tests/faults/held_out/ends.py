"""Held-out faults before and behind the layers, of inputs, and of sums over ranks."""

from __future__ import annotations

from typing import Any

import torch

from tests.faults.changes import attribute, changed_input, changed_output, scaled
from tests.faults.held_out.steps import computing
from tests.faults.models import with_config
from tests.faults.pair import Plant

Tensor = torch.Tensor


def _plant(kind: str, name: str, archs: str, role: str, change: Any, **more: Any) -> Plant:
    values = {"cause": kind, **more}
    return Plant(
        kind=kind, name=name, archs=tuple(archs.split()), role=role, change=change, **values
    )


def _of_config(**values: Any) -> Any:
    """Let the model read another value than its configuration's."""

    def apply(model: Any) -> None:
        for name, value in values.items():
            setattr(model.config, name, value)

    return apply


def _changed_logits(change: Any) -> Any:
    def apply(model: Any) -> None:
        def of(_: Any, __: Any, output: Any) -> Any:
            output.logits = change(output.logits)
            return output

        model.register_forward_hook(of)

    return apply


def _other_config(arch: str, **values: Any) -> Plant:
    name = "_".join(values)
    return _plant("config", name, arch, "root", lambda _: with_config(arch, **values),
                  own_config=True, blames=False)  # fmt: skip


def _without_positions(self: Any, input_ids: Tensor, **_: Any) -> Tensor:
    types = self.token_type_embeddings(torch.zeros_like(input_ids))
    return self.LayerNorm(self.word_embeddings(input_ids) + types)


def _token_rows(*rows: Any) -> dict[str, Any]:
    return {
        "role": "root", "change": lambda _: None, "blames": False, "cause": "tokens",
        "candidate_rows": tuple(tuple(row) for row in rows),
    }  # fmt: skip


_FIRST, _SECOND = tuple(range(2, 15)), (40, 41, 7, 9, 33, 60, 5, 21, 22)
PLANTS = (
    _plant("scale", "embedding_multiplier", "granite", "top",
           attribute(embedding_multiplier=1.0)),
    _plant("scale", "embedding_of_rounded_root", "gemma2", "embed", scaled(1.003)),
    _plant("scale", "embedding_scaled", "olmo2", "embed", scaled(32**0.5)),
    _plant("scale", "logit_scale", "cohere", "root", attribute(logit_scale=0.0625)),
    _plant("scale", "logits_scaling", "granite", "root", _of_config(logits_scaling=8.0)),
    _plant("soft_cap", "other_final_cap", "gemma2", "root",
           _of_config(final_logit_softcapping=9.0)),
    _plant("soft_cap", "final_cap_missing", "gemma2", "root",
           _of_config(final_logit_softcapping=None)),
    _plant("soft_cap", "final_cap_where_none_is", "gemma3", "root",
           _changed_logits(lambda y: 5.0 * (y / 5.0).tanh())),
    _plant("clip", "logits_clamped", "llama", "root",
           _changed_logits(lambda y: y.clamp(-3.0, 3.0))),
    _plant("permutation", "logits_rolled", "qwen2", "root",
           _changed_logits(lambda y: y.roll(1, -1))),
    _plant("reduction", "mlp_on_each_rank", "starcoder2 cohere", "mlp", scaled(2.0)),
    _plant("reduction", "one_rank_of_mlp", "phi3", "down",
           changed_input(lambda x: torch.cat([x[..., :24], 0 * x[..., 24:]], -1))),
    _plant("reduction", "attention_by_four_ranks", "olmo2", "attn", scaled(0.25), layer=2),
    _plant("reduction", "one_rank_of_attention", "cohere", "o",
           changed_input(lambda x: torch.cat([0 * x[..., :32], x[..., 32:]], -1)), layer=0),
    _plant("reduction", "norm_gathered_wrong", "starcoder2", "norm2",
           changed_output(lambda y: torch.cat([y[..., 16:], y[..., :16]], -1)),
           cause="permutation"),

    _plant("inputs", "positions_missing", "bert", "embeddings", computing(_without_positions),
           cause="unknown"),
    _plant("inputs", "begin_added", "olmo2", **_token_rows((1, *_FIRST), (1, *_SECOND))),
    _plant("inputs", "last_lost", "phi3", **_token_rows(_FIRST[:-1], _SECOND)),
    _plant("inputs", "rows_exchanged", "starcoder2", **_token_rows(_SECOND, _FIRST)),
    _plant("inputs", "one_token", "cohere",
           **_token_rows(_FIRST, (*_SECOND[:4], 34, *_SECOND[5:]))),
    _other_config("olmo2", rope_parameters={"rope_type": "default", "rope_theta": 1e4}),
    _other_config("cohere", layer_norm_eps=1e-2),
    _other_config("starcoder2", hidden_act="relu"),
    _other_config("phi3", num_hidden_layers=2),
)  # fmt: skip
