"""Held-out pairs in which nothing is wrong, though much may look different."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.nn.functional as F

from tests.faults.changes import changed_output
from tests.faults.disguise import ALL, PLAIN, SERVED, Disguise, disguise_of
from tests.faults.held_out.rotation import SHIFTED, UNMASKED
from tests.faults.held_out.steps import attending, computing, layer_of, rotating
from tests.faults.models import SHORT_ROWS, path_of
from tests.faults.pair import Change, Pair

Tensor = torch.Tensor
NEW_ARCHS = ("olmo2", "phi3", "starcoder2", "cohere")
COPIED_DTYPES = ("olmo2@bfloat16", "phi3@float16", "starcoder2@bfloat16", "cohere@float16")


def _nothing(_: Any) -> None:
    pass


def _everywhere(role: str, change: Change, layers: Iterable[int] = (0, 1, 2)) -> Any:
    """Change the part of a role in several layers."""

    def of(arch: str) -> Change:
        def apply(model: Any) -> None:
            for layer in layers:
                change(model.get_submodule(path_of(arch, role, layer)))

        return apply

    return of


def _model(change: Change) -> Any:
    return lambda arch: change


def _implementation(name: str) -> Any:
    def apply(model: Any) -> None:
        model.set_attn_implementation(name)

    return _model(apply)


# Of attention.


def _online(scores: Tensor) -> Tensor:
    """Add up the softmax in blocks of 4 keys with a running maximum."""
    top = torch.full_like(scores[..., :1], torch.finfo(scores.dtype).min)
    total = torch.zeros_like(top)
    for block in scores.split(4, -1):
        new = torch.maximum(top, block.amax(-1, keepdim=True))
        total = total * (top - new).exp() + (block - new).exp().sum(-1, keepdim=True)
        top = new
    return (scores - top).exp() / total


def _base_two(scores: Tensor) -> Tensor:
    powers = ((scores - scores.amax(-1, keepdim=True)) * 1.4426950408889634).exp2()
    return powers / powers.sum(-1, keepdim=True)


def _scaled_queries(q: Tensor, k: Tensor, v: Tensor) -> Any:
    return q * q.shape[-1] ** -0.5, k, v


def _weak_mask(scores: Tensor, mask: Tensor) -> Tensor:
    return scores + mask.clamp(min=-1e4)


def _infinite_mask(scores: Tensor, mask: Tensor) -> Tensor:
    hidden = (mask < 0) & ~(mask < 0).all(-1, keepdim=True)
    return scores.masked_fill(hidden, -torch.inf)


def _odd_padding(mask: Tensor, scores: Tensor) -> Tensor:
    """Let places of padding see all: nobody reads them."""
    if mask.shape[-2] == 1:
        return mask
    padding = (mask.diagonal(dim1=-2, dim2=-1) < 0)[..., None]
    return mask.masked_fill(padding, 0.0)


def _by_complex(usual: Any, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> Any:
    half = cos.shape[-1] // 2
    turn = torch.complex(cos[..., :half].float(), sin[..., :half].float())[:, None]

    def turned(x: Tensor) -> Tensor:
        found = torch.complex(x[..., :half].float(), x[..., half:].float()) * turn
        return torch.cat([found.real, found.imag], -1).to(x.dtype)

    return turned(q), turned(k)


def _heads_permuted(model: Any) -> None:
    """Order the heads of all projections anew, the same way in each."""
    order = torch.tensor([2, 0, 3, 1])
    for layer in model.model.layers:
        attn = layer.self_attn
        for part in (attn.q_proj, attn.k_proj, attn.v_proj):
            _reorder(part.weight, order, 0)
        _reorder(attn.o_proj.weight, order, 1)


def _reorder(w: Tensor, order: Tensor, axis: int) -> None:
    blocks = torch.stack(w.detach().clone().chunk(len(order), axis))
    w.copy_(torch.cat(tuple(blocks[order]), axis))


def _groups_permuted(model: Any) -> None:
    """Exchange the two groups of heads."""
    order = torch.tensor([1, 0])
    for layer in model.model.layers:
        attn = layer.self_attn
        for part in (attn.q_proj, attn.k_proj, attn.v_proj):
            for tensor in part.parameters():
                _reorder(tensor, order, 0)
        _reorder(attn.o_proj.weight, order, 1)


def _key_bias_dropped(model: Any) -> None:
    """Drop what adds the same to all scores of a query."""
    for layer in model.encoder.layer:
        layer.attention.self.key.bias.zero_()


def _key_part_of_bias_dropped(model: Any) -> None:
    for block in model.transformer.h:
        block.attn.c_attn.bias[32:64] = 0.0


def _keys_by_two(model: Any) -> None:
    for layer in model.model.layers:
        layer.self_attn.q_proj.weight.mul_(4.0)
        layer.self_attn.k_proj.weight.mul_(0.25)


def _values_turned(model: Any) -> None:
    """Turn values by an orthogonal matrix and the output back."""
    generator = torch.Generator().manual_seed(11)
    turn = torch.linalg.qr(torch.randn(16, 16, generator=generator))[0]
    for layer in model.model.layers:
        v, o = layer.self_attn.v_proj.weight, layer.self_attn.o_proj.weight
        v.copy_((turn @ v.view(2, 16, 32)).reshape(v.shape))
        o.copy_((o.view(32, 4, 16) @ turn.T).reshape(o.shape))


def _values_by_two(model: Any) -> None:
    for block in model.encoder.layer:
        for tensor in block.attention.self.value.parameters():
            tensor.mul_(2.0)
        block.attention.output.dense.weight.mul_(0.5)


# Of norms, MLPs and experts.


def _norm_folded(model: Any) -> None:
    """Put the weight of the first norm into the projections behind it."""
    for layer in model.model.layers:
        attn, norm = layer.self_attn, layer.input_layernorm
        for part in (attn.q_proj, attn.k_proj, attn.v_proj):
            part.weight.mul_(norm.weight)
        norm.weight.fill_(1.0)


def _last_norm_folded(model: Any) -> None:
    model.lm_head.weight.copy_(model.lm_head.weight * model.model.norm.weight)
    model.model.norm.weight.fill_(1.0)


def _neurons_permuted(model: Any) -> None:
    order = torch.arange(48).roll(7).flip(0)
    for layer in model.model.layers:
        layer.mlp.gate_proj.weight.copy_(layer.mlp.gate_proj.weight[order].clone())
        layer.mlp.up_proj.weight.copy_(layer.mlp.up_proj.weight[order].clone())
        layer.mlp.down_proj.weight.copy_(layer.mlp.down_proj.weight[:, order].clone())


def _up_by_two(model: Any) -> None:
    for layer in model.model.layers:
        layer.mlp.up_proj.weight.mul_(2.0)
        layer.mlp.down_proj.weight.mul_(0.5)


def _experts_permuted(model: Any) -> None:
    order = torch.tensor([3, 5, 0, 1, 4, 2])
    for layer in model.model.layers:
        mlp = layer.mlp
        mlp.gate.weight.copy_(mlp.gate.weight[order].clone())
        mlp.experts.gate_up_proj.copy_(mlp.experts.gate_up_proj[order].clone())
        mlp.experts.down_proj.copy_(mlp.experts.down_proj[order].clone())


def _softmax_behind_choice(self: Any, x: Tensor) -> Any:
    logits = F.linear(x.reshape(-1, self.hidden_dim), self.weight)
    chosen, numbers = logits.topk(self.top_k, -1)
    return logits, chosen.float().softmax(-1).to(logits.dtype), numbers


def _choice_in_other_order(module: Any) -> None:
    usual = module.forward

    def forward(_: Any, x: Tensor) -> Any:
        logits, weights, numbers = usual(x)
        return logits, weights.flip(-1), numbers.flip(-1)

    computing(forward)(module)


def _all_experts(self: Any, x: Tensor, numbers: Tensor, weights: Tensor) -> Tensor:
    """Compute every expert for every token, most with a weight of zero."""
    dense = torch.zeros(len(x), self.num_experts, dtype=weights.dtype)
    dense.scatter_(1, numbers, weights)
    total = torch.zeros_like(x)
    for number in range(self.num_experts):
        gate, up = F.linear(x, self.gate_up_proj[number]).chunk(2, -1)
        y = F.linear(self.act_fn(gate) * up, self.down_proj[number])
        total = total + y * dense[:, number, None].to(y.dtype)
    return total


def _in_float64(self: Any, x: Tensor) -> Tensor:
    b = None if self.bias is None else self.bias.double()
    return F.linear(x.double(), self.weight.double(), b).to(x.dtype)


def _split_sum(self: Any, x: Tensor) -> Tensor:
    """Add up two ranks' shares."""
    half = x.shape[-1] // 2
    y = x[..., :half] @ self.weight[:, :half].T + x[..., half:] @ self.weight[:, half:].T
    return y if self.bias is None else y + self.bias


def _split_columns(self: Any, x: Tensor) -> Tensor:
    return torch.cat([x @ part.T for part in self.weight.split(7)], -1)


def _token_by_token(self: Any, x: Tensor) -> Tensor:
    parts = [F.linear(token, self.weight, self.bias) for token in x.split(1, 1)]
    return torch.cat(parts, 1)


def _layer_norm_of_moments(self: Any, x: Tensor) -> Tensor:
    """Take the variance from a wider sum of squares."""
    wide = x.double()
    variance = wide.pow(2).mean(-1, keepdim=True) - wide.mean(-1, keepdim=True) ** 2
    y = (wide - wide.mean(-1, keepdim=True)) / (variance + self.eps).sqrt()
    return (y * self.weight + self.bias).to(x.dtype)


def _rms_in_float64(self: Any, x: Tensor) -> Tensor:
    wide = x.double()
    y = wide / (wide.pow(2).mean(-1, keepdim=True) + self.variance_epsilon).sqrt()
    return (self.weight * y).to(x.dtype)


def _sum_order(layer: Any, x: Tensor, attend: Any) -> Tensor:
    normed = layer.input_layernorm(x)
    return layer.mlp(normed) + (attend(normed) + x)


def _silu_by_tanh(_: Any, x: Tensor) -> Tensor:
    return 0.5 * x * (1 + (0.5 * x).tanh())


def _gelu_of_formula(_: Any, x: Tensor) -> Tensor:
    return 0.5 * x * (1 + (0.7978845608028654 * x * (1 + 0.044715 * x * x)).tanh())


# Of what nobody reads.


def _unused_token(model: Any) -> None:
    """Change tokens that no row holds and that nobody chooses."""
    model.get_input_embeddings().weight[0] += 1.0


def _unused_positions(model: Any) -> None:
    model.transformer.wpe.weight[300:] = 0.0


def _unused_types(model: Any) -> None:
    model.embeddings.token_type_embeddings.weight[1] = 9.0
    model.embeddings.position_embeddings.weight[100:] = 9.0


def _shift(model: Any) -> None:
    """Add the same to all logits of a token, another number for each."""
    changed_output(lambda y: y + y[..., :1].abs() + 1.0)(model.lm_head)


def _centred_head(model: Any) -> None:
    w = model.lm_head.weight
    w.sub_(w.mean(0, keepdim=True))


# Name, architectures, what makes the change of an architecture.
_CHANGES: tuple[tuple[str, str, Callable[[str], Change]], ...] = (
    ("kernel/sdpa", "olmo2 phi3 starcoder2 cohere qwen3", _implementation("sdpa")),
    ("kernel/online_softmax", "llama phi3", _everywhere("attn", attending(softmax=_online))),
    ("kernel/base_two", "qwen2 gemma3", _everywhere("attn", attending(softmax=_base_two))),
    ("kernel/scaled_queries", "cohere olmo2",
     _everywhere("attn", attending(inputs=_scaled_queries, scale=lambda s, _: 1.0))),
    ("kernel/mask_of_10000", "starcoder2 gpt2", _everywhere("attn", attending(masked=_weak_mask))),
    ("kernel/mask_of_infinity", "llama3 gemma2",
     _everywhere("attn", attending(masked=_infinite_mask))),
    ("kernel/complex_rotation", "llama qwen3_moe", _everywhere("attn", rotating(_by_complex))),
    ("kernel/float64_products", "phi3", _everywhere("o", computing(_in_float64))),
    ("kernel/float64_products", "starcoder2", _everywhere("up", computing(_in_float64))),
    ("kernel/two_ranks", "olmo2 granite", _everywhere("down", computing(_split_sum))),
    ("kernel/split_columns", "llama", _everywhere("gate", computing(_split_columns))),
    ("kernel/token_by_token", "qwen2 cohere", _everywhere("v", computing(_token_by_token))),
    ("kernel/moments", "starcoder2 gpt2", _everywhere("norm1", computing(_layer_norm_of_moments))),
    ("kernel/rms_in_float64", "phi3 qwen3", _everywhere("norm2", computing(_rms_in_float64))),
    ("kernel/sum_order", "cohere", _everywhere("layer", layer_of(_sum_order))),
    ("kernel/silu_by_tanh", "llama olmo2", _everywhere("act", computing(_silu_by_tanh))),
    ("kernel/gelu_of_formula", "starcoder2 gemma3",
     _everywhere("act", computing(_gelu_of_formula))),
    ("kernel/softmax_behind_choice", "qwen3_moe",
     _everywhere("router", computing(_softmax_behind_choice))),
    ("kernel/choice_in_other_order", "qwen3_moe", _everywhere("router", _choice_in_other_order)),
    ("kernel/all_experts", "glm4_moe qwen3_moe",
     lambda arch: _everywhere("experts", computing(_all_experts),
                              (1, 2) if arch == "glm4_moe" else (0, 1, 2))(arch)),
    ("layout/heads_permuted", "llama_square", _model(_heads_permuted)),
    ("layout/groups_permuted", "llama qwen2 cohere", _model(_groups_permuted)),
    ("layout/neurons_permuted", "olmo2 gemma2", _model(_neurons_permuted)),
    ("layout/experts_permuted", "qwen3_moe", _model(_experts_permuted)),
    ("folded/key_bias", "bert", _model(_key_bias_dropped)),
    ("folded/key_bias", "gpt2", _model(_key_part_of_bias_dropped)),
    ("folded/keys_by_two", "llama3 cohere", _model(_keys_by_two)),
    ("folded/values_turned", "llama granite", _model(_values_turned)),
    ("folded/values_by_two", "bert", _model(_values_by_two)),
    ("folded/first_norm", "llama qwen3", _model(_norm_folded)),
    ("folded/last_norm", "olmo2 phi3", _model(_last_norm_folded)),
    ("folded/up_by_two", "qwen3 granite", _model(_up_by_two)),
    ("positions/shifted", "qwen2 phi3 cohere",
     lambda arch: lambda model: SHIFTED(model.get_submodule("model.rotary_emb"))),
    ("positions/of_padding", "llama starcoder2",
     lambda arch: lambda model: UNMASKED(model.get_submodule("model.rotary_emb"))),
    ("unused/pad_token", "llama olmo2 bert", _model(_unused_token)),
    ("unused/positions", "gpt2", _model(_unused_positions)),
    ("unused/types", "bert", _model(_unused_types)),
    ("unused/places_of_padding", "qwen3 phi3",
     _everywhere("attn", attending(mask=_odd_padding))),
)  # fmt: skip
_SHIFTS: tuple[tuple[str, str, Change], ...] = (
    ("shift/per_token", "olmo2 starcoder2", _shift),
    ("shift/centred_head", "llama phi3", _centred_head),
)


def pairs() -> list[Pair]:
    """List the pairs; two of three changes are disguised, in turn."""
    found = [_pair(f"copy/same/{a}", a, _nothing, d) for a in NEW_ARCHS for d in (PLAIN, *ALL)
             if not d.flowing]  # fmt: skip
    found += [_pair(f"copy/same/{arch}", arch, _nothing, PLAIN) for arch in COPIED_DTYPES]
    found += [
        _pair(f"copy/{run}/{arch}", arch, _nothing, disguise, run=run)
        # Rows that ran alone lie one after the other, which only a ragged dump may say.
        for run, disguise in (("single", SERVED), ("right", PLAIN))
        for arch in NEW_ARCHS
    ]
    listed = [
        (name, arch, make(arch), False) for name, archs, make in _CHANGES for arch in archs.split()
    ]
    listed += [(name, arch, change, True) for name, archs, change in _SHIFTS
               for arch in archs.split()]  # fmt: skip
    for number, (name, arch, change, shift) in enumerate(listed):
        disguise = PLAIN if number % 3 == 0 else disguise_of(number, arch)
        found.append(_pair(f"{name}/{arch}", arch, change, disguise, shift=shift))
    return found


def _pair(name: str, arch: str, change: Change, disguise: Disguise, **more: Any) -> Pair:
    return Pair(
        name=f"held_out/{name}/{disguise.name}",
        kind=name.partition("/")[0],
        arch=arch,
        change=change,
        disguise=disguise,
        verdict="agree",
        rows=SHORT_ROWS,
        **more,
    )
