"""Faults of positions: rotary layout, frequencies, precision, and the positions themselves."""

from __future__ import annotations

from typing import Any

import torch

from tests.faults.changes import before_call, weight
from tests.faults.models import reference, with_config
from tests.faults.own_attention import change_attention, replace_forward, rotate
from tests.faults.pair import Place, Plant


def _by_pairs(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotate neighbours and not halves."""
    size = cos.shape[-1]
    turned, rest = x[..., :size], x[..., size:]
    first, second = turned[..., ::2], turned[..., 1::2]
    cos, sin = cos[..., : size // 2], sin[..., : size // 2]
    turned = torch.stack([first * cos - second * sin, second * cos + first * sin], dim=-1)
    return torch.cat([turned.flatten(-2), rest], dim=-1)


def _rotates(function: Any) -> Any:
    """Rotate q and k by another function of x, cos and sin."""

    def step(usual: Any, module: Any, q: Any, k: Any, tables: Any) -> Any:
        cos, sin = (table.unsqueeze(1) for table in tables)
        return function(q, cos, sin), function(k, cos, sin)

    return change_attention(rotate=step)


def _only_queries(usual: Any, module: Any, q: Any, k: Any, tables: Any) -> Any:
    return usual(module, q, k, tables)[0], k


def _shifted_keys(usual: Any, module: Any, q: Any, k: Any, tables: Any) -> Any:
    """Rotate keys as if each stood one place further."""
    cos, sin = tables
    half = cos.shape[-1] // 2
    step = torch.atan2(sin[:, 1:2, :half], cos[:, 1:2, :half]) - torch.atan2(
        sin[:, :1, :half], cos[:, :1, :half]
    )
    if cos.shape[1] == 1:
        return usual(module, q, k, tables)
    angles = torch.atan2(sin, cos) + torch.cat([step, step], dim=-1)
    rotated = rotate(k, angles.cos().unsqueeze(1), angles.sin().unsqueeze(1))
    return usual(module, q, k, tables)[0], rotated


def _first_half(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotate only the first half of each head."""
    size = cos.shape[-1] // 2
    cos, sin = (torch.cat([t[..., : size // 2]] * 2, dim=-1) for t in (cos, sin))
    return rotate(x, cos, sin)


def _last_part(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotate the last dimensions, and not the first."""
    size = x.shape[-1] - cos.shape[-1]
    return torch.cat([x[..., :size], rotate(x[..., size:], cos, sin)], dim=-1)


def _whole(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotate all dimensions, with the tables used twice over."""
    return rotate(x, torch.cat([cos, cos], dim=-1), torch.cat([sin, sin], dim=-1))


def _frequencies(change: Any) -> Any:
    """Change the inverse frequencies of a rotary embedding."""

    def apply(module: Any) -> None:
        for name, buffer in list(module.named_buffers()):
            if name.endswith("inv_freq") and "original" not in name:
                setattr(module, name, change(buffer.clone()))

    return apply


def _theta(wrong: float, right: float = 20000.0) -> Any:
    def change(inverse: torch.Tensor) -> torch.Tensor:
        steps = torch.arange(len(inverse)) / len(inverse)
        return inverse * (right / wrong) ** steps

    return _frequencies(change)


def _one_band(inverse: torch.Tensor) -> torch.Tensor:
    inverse[2] *= 1.05
    return inverse


def _of_config(**changes: Any) -> Any:
    """Take the frequencies of another llama3 configuration."""

    def apply(module: Any) -> None:
        parameters = {**reference("llama3").config.rope_parameters, **changes}
        other = with_config("llama3", rope_parameters=parameters)
        module.inv_freq = other.model.rotary_emb.inv_freq.clone()

    return apply


def _of_layer_type(module: Any) -> None:
    """Take the global layers' theta for the local ones, too."""
    module.sliding_attention_inv_freq = module.full_attention_inv_freq.clone()


def _table_scaled(module: Any) -> None:
    module.attention_scaling = 1.1


def _low_precision(where: str, dtype: torch.dtype) -> Any:
    """Cast positions, frequencies or angles down before they are used."""

    def cast(x: torch.Tensor, name: str) -> torch.Tensor:
        return x.to(dtype).float() if name == where else x

    def forward(self: Any, x: torch.Tensor, position_ids: torch.Tensor, *args: Any) -> Any:
        positions = cast(position_ids.float(), "positions")[..., None]
        angles = cast(positions * cast(self.inv_freq.float(), "frequencies"), "angles")
        angles = torch.cat([angles, angles], dim=-1)
        return cast(angles.cos(), "tables").to(x.dtype), cast(angles.sin(), "tables").to(x.dtype)

    return lambda module: replace_forward(module, forward)


def _positions_to_rotary(change: Any) -> Any:
    """Let the body of the model hand other positions to its rotary embedding."""

    def given(args: Any, kwargs: Any) -> Any:
        if "position_ids" in kwargs:
            return args, {**kwargs, "position_ids": change(kwargs["position_ids"])}
        return (args[0], change(args[1]), *args[2:]), kwargs

    return lambda body: before_call(given)(body.rotary_emb)


def _positions_to_table(change: Any) -> Any:
    """The same for a learned table of positions."""
    return lambda body: before_call(lambda args, kw: ((change(args[0]),), kw))(body.wpe)


def _not_from_mask(positions: torch.Tensor) -> torch.Tensor:
    """Count the padding, too: the longest row's positions for all."""
    return positions[:1].expand_as(positions)


def _from_one(positions: torch.Tensor) -> torch.Tensor:
    return positions + 1


def _stuck(positions: torch.Tensor) -> torch.Tensor:
    return positions if positions.shape[1] > 1 else torch.zeros_like(positions)


def _one_behind(positions: torch.Tensor) -> torch.Tensor:
    return positions if positions.shape[1] > 1 else positions - 1


def _stretched(positions: torch.Tensor) -> torch.Tensor:
    return positions * 2


def _table_row_lost(w: torch.Tensor) -> torch.Tensor:
    w[5] = 0
    return w


def _bert_positions(embeddings: Any) -> None:
    """Start at 2, as RoBERTa does."""
    before_call(lambda args, kw: ((args[0] + 2,), kw))(embeddings.position_embeddings)


# A table, a fault a paragraph.
# fmt: off
PLANTS: tuple[Plant, ...] = (
    # rope_layout
    Plant(kind="rope_layout", name="pairs", archs=("llama", "qwen3", "gemma3"), role="attn",
          change=_rotates(_by_pairs), cause="rope_layout", place=Place(step=0)),
    Plant(kind="rope_layout", name="pairs_first_layer", archs=("llama", "glm4_moe"), role="attn",
          layer=0, change=_rotates(_by_pairs), cause="rope_layout"),
    Plant(kind="rope_layout", name="queries_only", archs=("llama", "qwen2"), role="attn",
          change=change_attention(rotate=_only_queries), cause="rope_partial"),
    Plant(kind="rope_layout", name="cos_and_sin_swapped", archs=("granite", "qwen3_moe"),
          role="attn", change=_rotates(lambda x, cos, sin: rotate(x, sin, cos)),
          cause="rope_layout"),
    Plant(kind="rope_layout", name="keys_one_further", archs=("llama",), role="attn",
          change=change_attention(rotate=_shifted_keys), cause="rope_layout"),
    # rope_frequency
    Plant(kind="rope_frequency", name="theta_10000", archs=("llama", "qwen3", "granite"),
          role="rotary", change=_theta(10000.0), cause="rope_frequency"),
    Plant(kind="rope_frequency", name="theta_500000", archs=("qwen2", "qwen3_moe"),
          role="rotary", change=_theta(500000.0), cause="rope_frequency"),
    Plant(kind="rope_frequency", name="factor_2", archs=("llama", "glm4_moe"), role="rotary",
          change=_frequencies(lambda f: f / 2), cause="rope_frequency"),
    Plant(kind="rope_frequency", name="one_band", archs=("llama",), role="rotary",
          change=_frequencies(_one_band), cause="rope_frequency"),
    Plant(kind="rope_frequency", name="llama3_low_factor", archs=("llama3",), role="rotary",
          change=_of_config(low_freq_factor=2.0), cause="rope_frequency"),
    Plant(kind="rope_frequency", name="llama3_high_factor", archs=("llama3",), role="rotary",
          change=_of_config(high_freq_factor=8.0), cause="rope_frequency"),
    Plant(kind="rope_frequency", name="llama3_factor", archs=("llama3",), role="rotary",
          change=_of_config(factor=32.0), cause="rope_frequency"),
    Plant(kind="rope_frequency", name="local_theta_global", archs=("gemma3",), role="rotary",
          change=_of_layer_type, cause="rope_frequency"),
    Plant(kind="rope_frequency", name="tables_scaled", archs=("llama", "qwen2"), role="rotary",
          change=_table_scaled, cause="rope_frequency"),
    # rope_partial
    Plant(kind="rope_partial", name="first_half_only", archs=("llama", "qwen3"), role="attn",
          change=_rotates(_first_half), cause="rope_partial"),
    Plant(kind="rope_partial", name="last_part", archs=("glm4_moe",), role="attn",
          change=_rotates(_last_part), cause="rope_partial"),
    Plant(kind="rope_partial", name="whole", archs=("glm4_moe",), role="attn", layer=0,
          change=_rotates(_whole), cause="rope_partial"),
    # rope_precision
    Plant(kind="rope_precision", name="positions_in_bfloat16", archs=("llama", "qwen3"),
          role="rotary", change=_low_precision("positions", torch.bfloat16),
          cause="rope_precision", rows="long", place=Place(step=0, row=0, position=257)),
    Plant(kind="rope_precision", name="frequencies_in_bfloat16", archs=("llama", "qwen2"),
          role="rotary", change=_low_precision("frequencies", torch.bfloat16),
          cause="rope_precision"),
    Plant(kind="rope_precision", name="angles_in_float16", archs=("llama",), role="rotary",
          change=_low_precision("angles", torch.float16), cause="rope_precision"),
    Plant(kind="rope_precision", name="tables_in_bfloat16", archs=("granite",), role="rotary",
          change=_low_precision("tables", torch.bfloat16), cause="rope_precision"),
    # position_ids
    Plant(kind="position_ids", name="not_from_mask", archs=("gpt2",), role="top",
          change=_positions_to_table(_not_from_mask), cause="position_ids", also=("positions",),
          place=Place(step=0, row=1)),
    Plant(kind="position_ids", name="from_one", archs=("gpt2",), role="top",
          change=_positions_to_table(_from_one), cause="position_ids", also=("positions",)),
    Plant(kind="position_ids", name="stuck_in_decode", archs=("gpt2",), role="top",
          change=_positions_to_table(_stuck), cause="position_ids", also=("positions",),
          place=Place(step=1)),
    Plant(kind="position_ids", name="stuck_in_decode", archs=("llama", "qwen3"), role="top",
          layer=0, also_lean=("attn",), change=_positions_to_rotary(_stuck),
          cause="position_ids", place=Place(step=1)),
    Plant(kind="position_ids", name="one_behind_in_decode", archs=("llama", "gemma3"),
          role="top", layer=0, also_lean=("attn",), change=_positions_to_rotary(_one_behind),
          cause="position_ids",
          place=Place(step=1)),
    Plant(kind="position_ids", name="stretched", archs=("llama", "qwen2"), role="top",
          layer=0, also_lean=("attn",), change=_positions_to_rotary(_stretched),
          cause="position_ids"),
    Plant(kind="position_ids", name="from_two", archs=("bert",), role="embeddings",
          change=_bert_positions, cause="position_ids", also=("positions",)),
    Plant(kind="weights", name="position_row_lost", archs=("gpt2", "bert"), role="positions",
          change=weight(_table_row_lost), cause="weights"),
)
# fmt: on
