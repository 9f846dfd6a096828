"""Pairs of the third part in which nothing is wrong: other code or weights, the same function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from tests.faults.changes import Change, bias, changed_output, weight
from tests.faults.models import SHORT_ROWS, path_of
from tests.faults.own_attention import change_attention, change_residual, replace_forward
from tests.faults.pair import Pair
from tests.faults.third_part.planted import DISGUISES, in_all_layers, layers_of
from tests.faults.third_part.steps import Tensor, attending, counting, masking


def _same(root: Any) -> None:
    """Leave the copy as it is."""


def _part(arch: str, role: str, change: Change) -> Change:
    return lambda root: change(root.get_submodule(path_of(arch, role, 1)))


def _in_double(module: Any) -> None:
    """Compute a linear layer in float64."""

    def forward(self: Any, x: Tensor) -> Tensor:
        offset = None if self.bias is None else self.bias.double()
        return F.linear(x.double(), self.weight.double(), offset).to(x.dtype)

    replace_forward(module, forward)


def _by_shards(count: int) -> Change:
    """Add up a row-parallel product shard by shard, the last one taking what is left."""

    def apply(module: Any) -> None:
        def forward(self: Any, x: Tensor) -> Tensor:
            parts = zip(x.chunk(count, -1), self.weight.chunk(count, 1), strict=True)
            total = sum(part @ w.T for part, w in parts)
            return total if self.bias is None else total + self.bias

        replace_forward(module, forward)

    return apply


def _fast_attention(module: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    groups = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(groups, dim=1) for x in (k, v))
    mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=module.scaling)
    return mixed.transpose(1, 2).flatten(2)


class _Fused:
    """Attention by the fused kernel of Torch, whose rows of padding may differ."""

    def __call__(self, module: Any) -> None:
        held: dict[str, Any] = {}

        def keep_mask(usual: Any, module: Any, scores: Tensor, mask: Tensor | None) -> Tensor:
            held["mask"] = mask
            return usual(module, scores, mask)

        def keep(usual: Any, module: Any, q: Tensor, k: Tensor) -> Tensor:
            held["q"], held["k"] = q, k
            return usual(module, q, k)

        def repeat(usual: Any, module: Any, k: Tensor, v: Tensor) -> Any:
            held["v"] = v
            return usual(module, k, v)

        def merge(usual: Any, module: Any, mixed: Tensor) -> Tensor:
            groups = held["q"].shape[1] // held["v"].shape[1]
            keys = held["k"][:, ::groups]
            return _fast_attention(module, held["q"], keys, held["v"], held["mask"])

        change_attention(mask=keep_mask, score=keep, repeat=repeat, merge=merge)(module)


def _inner_features_shuffled(root: Any, arch: str) -> None:
    """Sort the inner features of MLPs another way, in all three projections."""
    for number in range(layers_of(arch)):
        gate, up, down = (
            root.get_submodule(path_of(arch, role, number)) for role in ("gate", "up", "down")
        )
        order = torch.randperm(up.out_features, generator=torch.Generator().manual_seed(number))
        for module in (gate, up):
            weight(lambda w, order=order: w[order])(module)
            if module.bias is not None:
                bias(lambda b, order=order: b[order])(module)
        weight(lambda w, order=order: w[:, order])(down)


def _values_turned(heads: int, size: int, groups: int) -> Change:
    """Turn the values of each head of keys, and turn them back in the output projection."""
    turn, _ = torch.linalg.qr(torch.randn(size, size, generator=torch.Generator().manual_seed(5)))

    def apply(attention: Any) -> None:
        def values(w: Tensor) -> Tensor:
            return torch.einsum("de,keh->kdh", turn, w.view(heads, size, -1)).flatten(0, 1)

        def output(w: Tensor) -> Tensor:
            return (w.view(w.shape[0], heads * groups, size) @ turn.T).flatten(1)

        weight(values)(attention.v_proj)
        weight(output)(attention.o_proj)

    return apply


def _norm_folded(root: Any) -> None:
    """Multiply the weight of a norm into the projections behind it."""
    for layer in root.model.layers:
        scale = layer.post_attention_layernorm.weight.detach().clone()
        for module in (layer.mlp.gate_proj, layer.mlp.up_proj):
            weight(lambda w, scale=scale: w * scale)(module)
        weight(torch.ones_like)(layer.post_attention_layernorm)


def _experts_renamed(root: Any) -> None:
    """Number experts another way, in the router and in their weights."""
    for layer in root.model.layers:
        order = torch.tensor([3, 0, 4, 2, 1])
        weight(lambda w, order=order: w[order])(layer.mlp.gate)
        for name in ("gate_up_proj", "down_proj"):
            weight(lambda w, order=order: w[order], name)(layer.mlp.experts)


def _queries_scaled(attention: Any) -> None:
    """Multiply the attention scale into the queries."""
    factor = attention.scaling
    weight(lambda w: w * factor)(attention.q_proj)
    if attention.q_proj.bias is not None:
        bias(lambda b: b * factor)(attention.q_proj)
    attention.scaling = 1.0


def _padding_embedded(root: Any) -> None:
    """Give padding an embedding, which no token sees."""
    weight(lambda w: torch.cat([w[:1] + 2.0, w[1:]]))(root.model.embed_tokens)


def _constant_logits(root: Any) -> None:
    """Add the same number to each logit of a token."""
    changed_output(lambda y: y + y[..., :1].tanh() * 3.0)(root.lm_head)


def _large_but_finite(mask: Tensor) -> Tensor:
    return mask.clamp(min=-1e9)


def _in_blocks(module: Any, x: Tensor) -> Tensor:
    """Compute an MLP in blocks of five inner features."""
    blocks = range(0, module.gate_proj.out_features, 5)
    total = torch.zeros_like(x)
    for start in blocks:
        rows = slice(start, start + 5)
        gate, up = (F.linear(x, m.weight[rows]) for m in (module.gate_proj, module.up_proj))
        total = total + F.linear(module.act_fn(gate) * up, module.down_proj.weight[:, rows])
    return total


def _contiguous(module: Any, q: Tensor, k: Tensor, v: Tensor, mask: Any) -> Any:
    return *(x.double().float().contiguous() for x in (q, k, v)), mask


def _all(arch: str, role: str, change: Change) -> Change:
    return in_all_layers(arch, role, change)


# Kind, name, architecture and disguise, change, and other fields of the pair.
Harmless = tuple[str, str, str, Callable[[Any], Any], dict[str, Any]]
HARMLESS: tuple[Harmless, ...] = (
    ("copy", "exact", "llama_odd/L", _same, {}),
    ("copy", "exact", "gpt_neox/F", _same, {}),
    ("copy", "exact", "deepseek_v3/S", _same, {}),
    ("copy", "exact", "gemma3_odd/X", _same, {}),
    ("copy", "exact", "distilbert/R", _same, {}),
    ("copy", "exact", "falcon/S", _same, {}),
    ("copy", "exact", "gpt_oss/F", _same, {}),
    ("copy", "exact", "nemotron/R", _same, {}),
    ("rows", "one_by_one", "cohere2/S", _same, {"run": "single"}),
    ("rows", "one_by_one", "qwen3_odd/F", _same, {"run": "single"}),
    ("rows", "padded_right", "phi/R", _same, {"run": "right"}),
    ("rows", "padded_right", "glm4/P", _same, {"run": "right"}),
    ("kernel", "products_in_float64", "mistral/S", _all("mistral", "down", _in_double), {}),
    ("kernel", "sum_of_shards", "stablelm/F", _all("stablelm", "o", _by_shards(7)), {}),
    ("kernel", "sum_of_shards", "phi/P", _all("phi", "down", _by_shards(2)), {}),
    ("kernel", "fused_attention", "llama_biased/L", _all("llama_biased", "attn", _Fused()), {}),
    ("kernel", "attention_without_alias", "olmo3/X", _all("olmo3", "attn", attending(_contiguous)),
     {}),
    ("kernel", "mlp_in_blocks", "granite_odd/R",
     _all("granite_odd", "mlp", lambda m: replace_forward(m, _in_blocks)), {}),
    ("kernel", "other_order_of_sums", "helium/P",
     _all("helium", "layer", change_residual(lambda n, x, y: y + x)), {}),
    ("kernel", "finite_mask", "gpt_bigcode/P",
     _all("gpt_bigcode", "attn", masking(_large_but_finite)), {}),
    ("weights", "inner_features_shuffled", "qwen2_odd/S",
     lambda root: _inner_features_shuffled(root, "qwen2_odd"), {}),
    ("weights", "inner_features_shuffled", "llama_biased/R",
     lambda root: _inner_features_shuffled(root, "llama_biased"), {}),
    ("weights", "values_turned", "llama_odd/F",
     _all("llama_odd", "attn", _values_turned(3, 12, 2)), {}),
    ("weights", "norm_folded", "smollm3/S", _norm_folded, {}),
    ("weights", "experts_renamed", "mixtral/P", _experts_renamed, {}),
    ("weights", "scale_in_queries", "llama_equal/X", _all("llama_equal", "attn", _queries_scaled),
     {}),
    ("weights", "padding_embedded", "hunyuan/R", _padding_embedded, {}),
    ("inputs", "positions_shifted", "exaone4/P", _part("exaone4", "top", counting(lambda p: p + 3)),
     {}),
    ("copy", "exact", "nanochat/S", _same, {}),
    ("logits", "constant_added", "arcee/P", _constant_logits, {"shift": True}),
)  # fmt: skip


def pairs() -> tuple[Pair, ...]:
    """List them."""
    return tuple(_pair(*harmless) for harmless in HARMLESS)


def _pair(kind: str, name: str, where: str, change: Change, more: dict[str, Any]) -> Pair:
    arch, _, letter = where.partition("/")
    disguise = DISGUISES[letter]
    return Pair(
        name=f"third/{kind}/{name}/{arch}/{disguise.name}",
        kind=kind,
        arch=arch,
        change=change,
        disguise=disguise,
        verdict="agree",
        rows=SHORT_ROWS,
        held_out=True,
        **more,
    )
