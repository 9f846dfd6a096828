"""Pairs in which nothing is wrong: exact copies, and changes that leave the logits as they are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from tests.faults.changes import changed_output, weight
from tests.faults.disguise import (
    ALL,
    FUSED,
    PLAIN,
    RENAMED,
    SERVED,
    SPARSE,
    Disguise,
    disguise_of,
)
from tests.faults.models import ARCHITECTURES, SHORT_ROWS, SIZES
from tests.faults.own_attention import change_attention, change_residual, replace_forward, rotate
from tests.faults.pair import Change, Pair

HEAD = SIZES["head_dim"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Harmless:
    """A change that does no harm, and the architectures it is tried on.

    Attributes:
        kind: kind of the change.
        name: which variant.
        archs: names for `models.reference`.
        change: changes a copy in place, or returns another model.
        run: how the candidate is run.
        shift: a constant is added to each token's logits.
        disguised: whether every disguise is tried, not only one.
    """

    kind: str
    name: str
    archs: tuple[str, ...]
    change: Change
    run: str = "batch"
    shift: bool = False
    disguised: bool = False


def pairs() -> tuple[Pair, ...]:
    """List all harmless pairs."""
    return tuple(_pairs())


def _pairs() -> Iterator[Pair]:
    number = 0
    for harmless in HARMLESS:
        for arch in harmless.archs:
            for disguise in _disguises(harmless, arch, number):
                number += 1
                yield Pair(
                    name=f"{harmless.kind}/{harmless.name}/{arch}/{disguise.name}",
                    kind=harmless.kind,
                    arch=arch,
                    change=harmless.change,
                    disguise=disguise,
                    verdict="agree",
                    rows=SHORT_ROWS,
                    run=harmless.run,
                    shift=harmless.shift,
                )


def _disguises(harmless: Harmless, arch: str, number: int) -> tuple[Disguise, ...]:
    if harmless.disguised:
        found = {d.name: d for d in (disguise_of(n, arch) for n in range(len(ALL)))}
        return (PLAIN, *found.values())
    if harmless.run == "single":  # its rows lie one after the other already
        return ((FUSED, SERVED, SPARSE)[number % 3],)
    if harmless.run == "right":
        return ((PLAIN, RENAMED)[number % 2],)
    # Where a layer adds in an order of its own there is no sum before the norm to take apart.
    role = "layer" if harmless.name == "residual" else ""
    return (PLAIN if number % 2 == 0 else disguise_of(number // 2, arch, role),)


def _same(root: Any) -> None:
    """Leave the copy as it is."""


def _layers(root: Any) -> Any:
    body = getattr(root, "model", None) or getattr(root, "transformer", None) or root.encoder
    return body.layers if hasattr(body, "layers") else getattr(body, "h", None) or body.layer


def _attentions(root: Any) -> list[Any]:
    names = ("self_attn", "attn", "self_attention")
    found = []
    for layer in _layers(root):
        name = next((name for name in names if hasattr(layer, name)), None)
        found.append(getattr(layer, name) if name else layer.attention.self)
    return found


def _linears(root: Any) -> list[Any]:
    return [module for module in root.modules() if type(module) is torch.nn.Linear]


def _each(find: Any, change: Change) -> Change:
    """Apply a change to every module that `find` finds."""

    def apply(root: Any) -> None:
        for module in find(root):
            change(module)

    return apply


def _named(end: str) -> Any:
    return lambda root: [m for name, m in root.named_modules() if name.endswith(end)]


def _norms(root: Any) -> list[Any]:
    return [module for module in root.modules() if type(module).__name__.endswith("RMSNorm")]


# Permutations


def _pair_order(heads: int) -> torch.Tensor:
    """Order rows so that halves become pairs: row 0, 8, 1, 9, ... of each head."""
    one = torch.arange(HEAD).view(2, HEAD // 2).T.reshape(-1)
    return (torch.arange(heads)[:, None] * HEAD + one).reshape(-1)


def _rotated_by_pairs(usual: Any, module: Any, q: Any, k: Any, tables: Any) -> Any:
    """Rotate pairs, as the permuted weights want it."""
    cos, sin = (table.unsqueeze(1) for table in tables)
    back = torch.argsort(_pair_order(1))
    order = _pair_order(1)
    return tuple(rotate(x[..., back], cos, sin)[..., order] for x in (q, k))


def _reorder(projection: Any, order: torch.Tensor) -> None:
    weight(lambda w: w[order])(projection)
    if projection.bias is not None:
        weight(lambda b: b[order], "bias")(projection)


def _rope_by_pairs(attention: Any) -> None:
    """Convert q and k for a rotation by pairs."""
    for projection in (attention.q_proj, attention.k_proj):
        _reorder(projection, _pair_order(projection.weight.shape[0] // HEAD))
    change_attention(rotate=_rotated_by_pairs)(attention)


def _bert_dimensions(attention: Any) -> None:
    """Permute the dimensions of each head of q and k alike, where nothing rotates them."""
    order = torch.cat([torch.tensor([3, 1, 7, 0, 2, 6, 5, 4]) + 8 * head for head in range(4)])
    for projection in (attention.query, attention.key):
        _reorder(projection, order)


def _heads_swapped(attention: Any) -> None:
    """Swap both groups of heads in q, k and v, and back in o."""
    for projection in (attention.q_proj, attention.k_proj, attention.v_proj):
        weight(lambda w: torch.cat(w.chunk(2)[::-1]))(projection)
        if projection.bias is not None:
            weight(lambda b: torch.cat(b.chunk(2)[::-1]), "bias")(projection)
    weight(lambda w: torch.cat(w.chunk(2, dim=1)[::-1], dim=1))(attention.o_proj)


def _channels_permuted(mlp: Any) -> None:
    order = torch.randperm(48, generator=torch.Generator().manual_seed(5))
    weight(lambda w: w[order])(mlp.gate_proj)
    weight(lambda w: w[order])(mlp.up_proj)
    weight(lambda w: w[:, order])(mlp.down_proj)


def _gpt2_channels_permuted(mlp: Any) -> None:
    order = torch.randperm(48, generator=torch.Generator().manual_seed(5))
    weight(lambda w: w[:, order])(mlp.c_fc)
    weight(lambda b: b[order], "bias")(mlp.c_fc)
    weight(lambda w: w[order])(mlp.c_proj)


def _experts_permuted(block: Any) -> None:
    order = torch.tensor([4, 2, 0, 5, 1, 3])
    weight(lambda w: w[order])(block.gate)
    weight(lambda w: w[order], "gate_up_proj")(block.experts)
    weight(lambda w: w[order], "down_proj")(block.experts)
    if hasattr(block.gate, "e_score_correction_bias"):
        block.gate.e_score_correction_bias = block.gate.e_score_correction_bias[order].clone()


def _chosen_backwards(router: Any) -> None:
    """Name the chosen experts in another order, with their weights."""
    usual = router.forward

    def forward(self: Any, x: torch.Tensor) -> Any:
        logits, weights, ids = usual(x)
        return logits, weights.flip(-1), ids.flip(-1)

    replace_forward(router, forward)


# Logits


def _recentred(root: Any) -> None:
    """Take the mean off the head's weights, which shifts each token's logits by a constant."""
    weight(lambda w: w - w.mean(dim=0, keepdim=True))(root.lm_head)


def _constant(root: Any) -> None:
    changed_output(lambda y: y + 1.5)(root.lm_head)


# Other kernels


def _split_sum(module: Any) -> None:
    """Add up two halves of the input features."""

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        half = x.shape[-1] // 2
        y = F.linear(x[..., :half], self.weight[:, :half])
        y = y + F.linear(x[..., half:], self.weight[:, half:])
        return y if self.bias is None else y + self.bias

    replace_forward(module, forward)


def _sum_backwards(module: Any) -> None:
    usual = module.forward
    order = torch.arange(module.weight.shape[1] - 1, -1, -1)
    weight(lambda w: w[:, order])(module)
    replace_forward(module, lambda self, x: usual(x[..., order]))


def _exact_sum(module: Any) -> None:
    """Sum in float64 and round once, as a fused multiply-add of many terms would at best."""

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        bias = None if self.bias is None else self.bias.double()
        return F.linear(x.double(), self.weight.double(), bias).to(x.dtype)

    replace_forward(module, forward)


def _sdpa(root: Any) -> None:
    root.set_attn_implementation("sdpa")


def _attention_in_float64(attention: Any) -> None:
    def score(usual: Any, module: Any, q: Any, k: Any) -> Any:
        return usual(module, q.double(), k.double()).to(q.dtype)

    change_attention(score=score)(attention)


def _softmax_by_hand(usual: Any, module: Any, scores: torch.Tensor, dtype: Any) -> Any:
    """Divide after the sum, with another shift than the greatest score."""
    scores = scores.float()
    weights = torch.exp(scores - scores.amax(dim=-1, keepdim=True) - 0.5)
    return (weights / weights.sum(dim=-1, keepdim=True)).to(dtype)


def _scaled_query(usual: Any, module: Any, q: Any, k: Any) -> Any:
    """Scale the query before the product, and not the scores behind it."""
    scale = getattr(module, "scaling", None) or module.inv_norm_factor
    return torch.matmul(q * scale, k.transpose(2, 3))


# Other formulas


def _silu_by_hand(module: Any) -> None:
    replace_forward(module, lambda self, x: x / (1 + torch.exp(-x)))


def _tanh_gelu_by_hand(module: Any) -> None:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        inner = 0.7978845608028654 * (x + 0.044715 * x * x * x)
        return 0.5 * x * (1 + torch.tanh(inner))

    replace_forward(module, forward)


def _erf_gelu_by_hand(module: Any) -> None:
    replace_forward(module, lambda self, x: x * 0.5 * (1 + torch.erf(x * 0.5**0.5)))


def _root_and_division(module: Any) -> None:
    """Divide by the root, and not multiply by its reciprocal."""

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        eps = getattr(self, "variance_epsilon", None) or self.eps
        normal = x.float() / torch.sqrt(x.float().pow(2).mean(-1, keepdim=True) + eps)
        if type(self).__name__.startswith("Gemma"):
            return (normal * (1 + self.weight.float())).to(x.dtype)
        return self.weight * normal.to(x.dtype)

    replace_forward(module, forward)


def _layer_norm_by_hand(module: Any) -> None:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        mean = x.mean(-1, keepdim=True)
        variance = (x - mean).pow(2).mean(-1, keepdim=True)
        return (x - mean) / torch.sqrt(variance + self.eps) * self.weight + self.bias

    replace_forward(module, forward)


def _layer_norms(root: Any) -> list[Any]:
    return [module for module in root.modules() if type(module) is torch.nn.LayerNorm]


def _once_rounded(number: int, residual: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
    """Add in float32 and round once."""
    return (output.float() + residual.float()).to(residual.dtype)


def _fused_product(module: Any) -> None:
    """Multiply gate and up in float32 and round once, as a fused kernel does."""

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        gate, up = self.gate_proj(x), self.up_proj(x)
        return self.down_proj((F.silu(gate.float()) * up.float()).to(x.dtype))

    replace_forward(module, forward)


def _fused_rotation(usual: Any, module: Any, q: Any, k: Any, tables: Any) -> Any:
    """Rotate in float32 and round once, as a fused multiply-add does."""
    cos, sin = (table.unsqueeze(1).float() for table in tables)
    return tuple(rotate(x.float(), cos, sin).to(x.dtype) for x in (q, k))


_ROTARY = ("llama", "qwen2", "qwen3", "gemma3", "granite", "qwen3_moe")
_DTYPES = tuple(
    f"{arch}@{dtype}"
    for arch, dtype in (
        ("llama", "bfloat16"),
        ("llama", "float16"),
        ("qwen3", "bfloat16"),
        ("gemma3", "bfloat16"),
        ("gpt2", "bfloat16"),
        ("bloom", "bfloat16"),
        ("bert", "bfloat16"),
        ("qwen3_moe", "bfloat16"),
    )
)
_ATTENTION = change_attention()
# A table, a fault a paragraph.
# fmt: off
HARMLESS: tuple[Harmless, ...] = (
    Harmless(kind="copy", name="exact", archs=ARCHITECTURES, change=_same, disguised=True),
    Harmless(kind="copy", name="exact", archs=_DTYPES, change=_same),
    Harmless(kind="permutation", name="rope_by_pairs", change=_each(_attentions, _rope_by_pairs),
             archs=("llama", "qwen2", "granite")),
    Harmless(kind="permutation", name="dimensions_of_heads", archs=("bert",),
             change=_each(_attentions, _bert_dimensions)),
    Harmless(kind="permutation", name="heads", change=_each(_attentions, _heads_swapped),
             archs=("llama", "qwen3", "gemma3", "qwen2")),
    Harmless(kind="permutation", name="channels", change=_each(_named(".mlp"), _channels_permuted),
             archs=("llama", "gemma3", "qwen3")),
    Harmless(kind="permutation", name="channels", archs=("gpt2",),
             change=_each(_named(".mlp"), _gpt2_channels_permuted)),
    Harmless(kind="permutation", name="experts", archs=("qwen3_moe",),
             change=_each(_named(".mlp"), _experts_permuted)),
    Harmless(kind="permutation", name="chosen_experts", archs=("qwen3_moe", "qwen3_moe@bfloat16"),
             change=_each(_named("mlp.gate"), _chosen_backwards)),
    Harmless(kind="logit_shift", name="recentred", archs=("llama", "qwen3", "granite"),
             change=_recentred, shift=True),
    Harmless(kind="logit_shift", name="constant", archs=("llama", "bloom"), change=_constant,
             shift=True),
    Harmless(kind="sum_order", name="split", change=_each(_linears, _split_sum),
             archs=("llama", "gemma3", "bert", "llama@bfloat16", "qwen3@bfloat16")),
    Harmless(kind="sum_order", name="backwards", change=_each(_linears, _sum_backwards),
             archs=("llama", "qwen2", "bloom", "qwen3@bfloat16")),
    Harmless(kind="sum_order", name="rounded_once", change=_each(_linears, _exact_sum),
             archs=("llama", "qwen3", "llama@bfloat16")),
    Harmless(kind="sum_order", name="residual", archs=("llama", "gemma3", "llama@bfloat16"),
             change=_each(_layers, change_residual(_once_rounded))),
    Harmless(kind="kernel", name="sdpa", archs=("llama", "qwen3", "gemma3", "gpt2", "bert"),
             change=_sdpa),
    Harmless(kind="kernel", name="own_attention", change=_each(_attentions, _ATTENTION),
             archs=(*_ROTARY, "gemma2", "glm4_moe", "gpt2", "bloom", "bert")),
    Harmless(kind="kernel", name="scores_in_float64", archs=("llama", "gpt2"),
             change=_each(_attentions, _attention_in_float64)),
    Harmless(kind="kernel", name="softmax_by_hand", archs=("llama", "gemma2", "bloom", "bert"),
             change=_each(_attentions, change_attention(weigh=_softmax_by_hand))),
    Harmless(kind="kernel", name="query_scaled", archs=("llama", "qwen3", "gpt2"),
             change=_each(_attentions, change_attention(score=_scaled_query))),
    Harmless(kind="formula", name="silu", archs=("llama", "qwen3"),
             change=_each(_named("act_fn"), _silu_by_hand)),
    Harmless(kind="formula", name="gelu_tanh", archs=("gemma3", "gemma2"),
             change=_each(_named("act_fn"), _tanh_gelu_by_hand)),
    Harmless(kind="formula", name="gelu_erf", archs=("bert",),
             change=_each(_named("act_fn"), _erf_gelu_by_hand)),
    Harmless(kind="formula", name="root_and_division", change=_each(_norms, _root_and_division),
             archs=("llama", "gemma3", "qwen3", "llama@bfloat16")),
    Harmless(kind="formula", name="layer_norm", archs=("gpt2", "bert", "bloom"),
             change=_each(_layer_norms, _layer_norm_by_hand)),
    Harmless(kind="fused", name="product", archs=("llama@bfloat16", "qwen3@bfloat16"),
             change=_each(_named(".mlp"), _fused_product)),
    Harmless(kind="fused", name="rotation", archs=("llama@bfloat16", "qwen2@bfloat16"),
             change=_each(_attentions, change_attention(rotate=_fused_rotation))),
    Harmless(kind="rows", name="single", change=_same, run="single",
             archs=("llama", "qwen3", "gemma3", "gpt2", "bert", "llama@bfloat16")),
    Harmless(kind="rows", name="right_padded", change=_same, run="right",
             archs=("llama", "qwen3", "gemma3", "gpt2")),
)
# fmt: on
