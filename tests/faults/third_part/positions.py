"""Faults of positions and of their rotation."""

from __future__ import annotations

from typing import Any

import torch

from tests.faults.changes import attribute
from tests.faults.own_attention import change_attention, replace_forward, rotate
from tests.faults.pair import Place
from tests.faults.third_part.planted import Planted, fault
from tests.faults.third_part.steps import (
    Step,
    Tensor,
    configured,
    counting,
    rotating,
    rounded,
)


def _halves(x: Tensor) -> Tensor:
    """Sort even dimensions before odd ones."""
    return torch.cat([x[..., 0::2], x[..., 1::2]], dim=-1)


def _neighbours(x: Tensor) -> Tensor:
    """Undo `_halves`."""
    return torch.stack(x.chunk(2, dim=-1), dim=-1).flatten(-2)


def _laid_out(before: Step, after: Step) -> Step:
    """Let the rotation pair other dimensions, of those that it turns."""

    def change(usual: Step, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> Any:
        size = cos.shape[-1]

        def moved(x: Tensor, order: Step) -> Tensor:
            return torch.cat([order(x[..., :size]), x[..., size:]], dim=-1)

        turned = usual(moved(q, before), moved(k, before), cos, sin)
        return tuple(moved(x, after) for x in turned)

    return change


_PAIRS_NEIGHBOURS = rotating(_laid_out(_halves, _neighbours))
_PAIRS_HALVES = rotating(_laid_out(_neighbours, _halves))

LAYOUTS: tuple[Planted, ...] = (
    fault("rope_layout", "pairs_neighbours", "hunyuan/P", "attn", _PAIRS_NEIGHBOURS,
          all_layers=True),
    fault("rope_layout", "pairs_halves", "glm4/S", "attn", _PAIRS_HALVES, all_layers=True),
    fault("rope_layout", "pairs_halves", "cohere2/R", "attn", _PAIRS_HALVES, layer=1),
    fault("rope_layout", "pairs_neighbours", "phi/X", "attn", _PAIRS_NEIGHBOURS, all_layers=True),
    fault("rope_layout", "pairs_halves", "deepseek_v3/P", "attn",
          configured(rope_interleave=False), at="root", layer=0),
)  # fmt: skip


def _frequencies(change: Any, name: str = "inv_freq") -> Any:
    """Replace the frequencies of a rotary embedding, `change(rotary, usual)`."""

    def apply(rotary: Any) -> None:
        usual = getattr(rotary, name)
        setattr(rotary, name, change(rotary, usual.clone()).to(usual.dtype))

    return apply


def _of(theta: float, dim: int, size: int) -> Tensor:
    return 1.0 / theta ** (torch.arange(0, size, 2).float() / dim)


FREQUENCIES: tuple[Planted, ...] = (
    fault("rope_frequency", "usual_theta", "mistral/P", "rotary",
          _frequencies(lambda rotary, f: _of(10000.0, 14, 14))),
    fault("rope_frequency", "yarn_left_out", "llama_yarn/S", "rotary",
          _frequencies(lambda rotary, f: _of(30000.0, 8, 8)), rows="long"),
    fault("rope_frequency", "theta_of_full_layers", "gemma3_odd/R", "rotary",
          _frequencies(lambda rotary, f: rotary.full_attention_inv_freq,
                       "sliding_attention_inv_freq")),
    fault("rope_frequency", "hidden_by_heads", "exaone4/F", "rotary",
          _frequencies(lambda rotary, f: _of(30000.0, 7, 12))),
    fault("rope_frequency", "head_for_turned_dims", "stablelm/P", "rotary",
          _frequencies(lambda rotary, f: _of(30000.0, 8, 4))),
    fault("rope_frequency", "linear_scaling", "smollm3/X", "rotary",
          _frequencies(lambda rotary, f: f / 2.0)),
)  # fmt: skip


def _last_dims(usual: Step, module: Any, q: Tensor, k: Tensor, tables: Any) -> Any:
    """Turn the last dimensions, and not the first."""
    size = tables[0].shape[-1]
    cos, sin = (table.unsqueeze(1) for table in tables)
    return tuple(rotate(x.roll(size, -1), cos, sin).roll(-size, -1) for x in (q, k))


def _four_dims(usual: Step, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> Any:
    """Turn four of six dimensions."""
    cos, sin = (torch.cat([table[..., :2], table[..., 3:5]], dim=-1) for table in (cos, sin))
    return usual(q, k, cos, sin)


PARTS: tuple[Planted, ...] = (
    fault("rope_partial", "whole_head", "glm4/P", "rotary",
          _frequencies(lambda rotary, f: _of(30000.0, 12, 12))),
    fault("rope_partial", "whole_head", "gpt_neox/R", "rotary",
          _frequencies(lambda rotary, f: _of(30000.0, 12, 12))),
    fault("rope_partial", "last_dims", "stablelm/S", "attn", change_attention(rotate=_last_dims),
          all_layers=True),
    fault("rope_partial", "fewer_dims", "nemotron/R", "attn", rotating(_four_dims),
          all_layers=True),
    fault("rope_partial", "layer_without_rope_turned", "smollm3/F", "attn",
          attribute(use_rope=1)),
)  # fmt: skip


def _angles_in(dtype: torch.dtype) -> Any:
    """Compute angles, sine and cosine in a dtype that cannot hold the angles."""

    def apply(rotary: Any) -> None:
        def forward(self: Any, x: Tensor, position_ids: Tensor) -> Any:
            frequencies = self.inv_freq.to(dtype)
            angles = position_ids[..., None].to(dtype) * frequencies  # [B, S, D / 2]
            angles = torch.cat([angles, angles], dim=-1)
            scale = self.attention_scaling
            return (angles.cos() * scale).to(x.dtype), (angles.sin() * scale).to(x.dtype)

        replace_forward(rotary, forward)

    return apply


def _positions_in(dtype: torch.dtype) -> Any:
    def apply(rotary: Any) -> None:
        usual = rotary.forward
        replace_forward(
            rotary, lambda self, x, position_ids: usual(x, position_ids.to(dtype).float())
        )

    return apply


def _tables_in(dtype: torch.dtype) -> Any:
    def apply(rotary: Any) -> None:
        usual = rotary.forward
        rounding = rounded(dtype)
        replace_forward(
            rotary, lambda self, *args, **kw: tuple(rounding(table) for table in usual(*args, **kw))
        )

    return apply


PRECISIONS: tuple[Planted, ...] = (
    fault("rope_precision", "angles_in_bfloat16", "llama_odd/P", "rotary",
          _angles_in(torch.bfloat16), rows="long"),
    fault("rope_precision", "positions_in_bfloat16", "qwen3_odd/S", "rotary",
          _positions_in(torch.bfloat16), rows="long"),
    fault("rope_precision", "angles_in_float16", "helium/R", "rotary",
          _angles_in(torch.float16), rows="long"),
    fault("rope_precision", "tables_in_bfloat16", "ernie4_5/F", "rotary",
          _tables_in(torch.bfloat16)),
)  # fmt: skip


def _from_zero(module: Any) -> None:
    """Number tokens from zero, where padding is."""

    def number(ids: Tensor, padding: int, *_: Any) -> Tensor:
        real = ids.ne(padding).long()
        return (real.cumsum(1) - 1).clamp(min=0) * real

    module.create_position_ids_from_input_ids = number


def _by_column(positions: Tensor) -> Tensor:
    """Number the columns of a batch, padding included; later ones go on from there."""
    if positions.shape[1] > 1:
        return torch.arange(positions.shape[1]).expand_as(positions)
    return positions.max().expand_as(positions)


COUNTS: tuple[Planted, ...] = (
    fault("position_ids", "offset_forgotten", "opt/P", "positions", attribute(offset=0)),
    fault("position_ids", "from_zero", "roberta/S", "embeddings", _from_zero),
    fault("position_ids", "padding_counted", "gpt_bigcode/P", "top", counting(_by_column),
          place=Place(row=1)),
    fault("position_ids", "decoded_one_late", "llama_tied/S", "top",
          counting(lambda p: p + 1 if p.shape[1] == 1 else p), layer=0, also_lean=("attn",),
          place=Place(step=1)),
    fault("position_ids", "decoded_from_zero", "nemotron/P", "top",
          counting(lambda p: p * 0 if p.shape[1] == 1 else p), place=Place(step=1)),
    fault("position_ids", "end_of_table", "hunyuan/X", "top",
          counting(lambda p: p.clamp(max=9)), layer=0, also_lean=("attn",)),
)  # fmt: skip

PLANTS: tuple[Planted, ...] = (
    *LAYOUTS, *FREQUENCIES, *PARTS, *PRECISIONS, *COUNTS
)  # fmt: skip
