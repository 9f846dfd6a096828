"""Makes a dump look as if another engine had written it: other names, fused tensors, flat rows.

Legend: B rows, S sequence, padding included, T tokens of all rows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from comparison.schema.manifest import Padding
from comparison.schema.tensor_names import TensorName, parse_tensor_name

Named = tuple[str, torch.Tensor]

_ARGUMENTS = re.compile(
    r"-input_(attention_mask|position_|past_key|alibi|cache|use_cache|layer_past)"
    r"|(\.h|\.layer)\.\d+-input_[1-9]$|\.attention-input_1$"  # masks given by position
)
_NOT_IN_ENGINES = re.compile(
    r"(rotary_emb|dropout|\.drop|act_fn|\.act|gelu_impl)(\(\d+\))?-(input|output)"
)
_WEIGHTS = re.compile(r"(self_attn|\.attn|self_attention|attention|attention\.self)-output_1$")
_INNER = re.compile(r"(layers|h|layer)\.\d+(\.self_attn|\.mlp|\.attn|\.self_attention)?-output")
_BODIES = ("model", "transformer")
_OWN_BODIES = ("model.model", "model.transformer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Disguise:
    """How a dump is changed.

    Attributes:
        name: unique.
        engine: what the manifest says.
        root: the new name of the whole model; None for no new names.
        body: the new name of the body of the model; where it is the root's, its own inputs and
            outputs are left out.
        head: the new name of `lm_head`.
        segments: new names of single parts of a path.
        fuses: new names of `q|k|v` and of `gate|up`, which become one tensor.
        ragged: rows lie one after the other.
        lean: activation, rotary embedding, masks and attention weights are left out.
        leaves_only: outputs of layers, attentions and MLPs are left out.
        last_only: the final norm and the head see only the last token of each row.
        keeps_config: the manifest holds the configuration.
        flowing: the residual is added in the next norm, and flows beside the hidden states.
    """

    name: str
    engine: str
    root: str | None = None
    body: str = ""
    head: str = ""
    segments: Mapping[str, str] = field(default_factory=dict)
    fuses: tuple[str, str] | None = None
    ragged: bool = False
    lean: bool = False
    leaves_only: bool = False
    last_only: bool = False
    keeps_config: bool = False
    flowing: bool = False


PLAIN = Disguise(name="plain", engine="torch", keeps_config=True)
RENAMED = Disguise(
    name="renamed",
    engine="handmade",
    root="net",
    body="net",
    head="net.output",
    segments={
        "embed_tokens": "tok_embeddings",
        "wte": "tok_embeddings",
        "word_embeddings": "tok_embeddings",
        "layers": "blocks",
        "h": "blocks",
        "layer": "blocks",
        "self_attn": "attention",
        "attn": "attention",
        "self_attention": "attention",
        "q_proj": "wq",
        "k_proj": "wk",
        "v_proj": "wv",
        "o_proj": "wo",
        "query": "wq",
        "key": "wk",
        "value": "wv",
        "mlp": "feed_forward",
        "gate_proj": "w1",
        "up_proj": "w3",
        "down_proj": "w2",
        "input_layernorm": "attention_norm",
        "post_attention_layernorm": "ffn_norm",
        "norm": "norm_f",
        "c_attn": "wqkv",
        "query_key_value": "wqkv",
    },
)
FUSED = Disguise(
    name="fused",
    engine="max",
    root="language_model",
    body="language_model",
    head="language_model.lm_head",
    segments={"mlp": "feed_forward", "embed_tokens": "embeddings", "wte": "embeddings"},
    fuses=("wqkv", "w13"),
    ragged=True,
    lean=True,
)
SERVED = Disguise(
    name="served",
    engine="server",
    root="llm",
    body="llm.model",
    head="llm.lm_head",
    fuses=("qkv_proj", "gate_up_proj"),
    ragged=True,
    lean=True,
    last_only=True,
    keeps_config=True,
)
SPARSE = Disguise(
    name="sparse",
    engine="handmade",
    root="lm",
    body="lm.transformer",
    head="lm.unembed",
    segments={
        "layers": "h",
        "layer": "h",
        "self_attn": "attn",
        "self_attention": "attn",
        "o_proj": "c_proj",
        "input_layernorm": "ln_1",
        "post_attention_layernorm": "ln_2",
        "norm": "ln_f",
        "gate_proj": "w_gate",
        "up_proj": "c_fc",
        "down_proj": "c_proj",
    },
    fuses=("c_attn", "c_fc_gated"),
    ragged=True,
    lean=True,
    leaves_only=True,
)
FLOWING = replace(SERVED, name="flowing", flowing=True)
ALL = (RENAMED, FUSED, SERVED, SPARSE, FLOWING)
# Whose layers add `residual + output` right before a norm; and not where that sum is at fault.
FLOWING_ARCHS = ("llama", "llama3", "llama_square", "qwen2", "qwen3", "qwen3_moe")
NOT_FLOWING_ROLES = ("layer", "top", "root")


def disguise_of(number: int, arch: str, role: str = "") -> Disguise:
    """Choose a disguise that an architecture can have and that leaves the blamed part in place."""
    chosen = ALL[number % len(ALL)]
    fits = arch.partition("@")[0] in FLOWING_ARCHS and role not in NOT_FLOWING_ROLES
    return chosen if fits or not chosen.flowing else SERVED


def disguise_step(
    tensors: Sequence[Named], disguise: Disguise, *, lengths: Sequence[int], padded: Padding
) -> list[Named]:
    """Change the tensors of one step.

    Args:
        tensors: in order of execution.
        disguise: how.
        lengths: number of tokens of each row in this step.
        padded: on which side the padding is.
    """
    if disguise.flowing:
        tensors = _let_residual_flow(tensors)
    found = [(name, tensor) for name, tensor in tensors if not _is_left_out(name, disguise)]
    if disguise.fuses is not None:
        found = _fuse(found, disguise.fuses)
    if disguise.ragged:
        found = [(name, flatten(tensor, lengths=lengths, padded=padded)) for name, tensor in found]
        if disguise.last_only:
            found = [(name, _last_tokens(name, tensor, lengths)) for name, tensor in found]
    return [(_rename(name, disguise), tensor) for name, tensor in found]


def accepted(modules: Sequence[str], disguise: Disguise) -> tuple[str, ...]:
    """Add the modules that are right too since the dump leaves the output of the right one out."""
    found = list(modules)
    for name in modules:
        parent, _, leaf = name.rpartition(".")
        if disguise.lean and leaf in {"act_fn", "act", "gelu_impl", "intermediate_act_fn"}:
            found.append(parent)
        if disguise.lean and leaf == "rotary_emb":
            found += [parent, f"{parent}.layers.0.self_attn"]
    return tuple(found)


def flatten(tensor: torch.Tensor, *, lengths: Sequence[int], padded: Padding) -> torch.Tensor:
    """Lay the rows of a tensor one after the other, [B, S, ...] to [T, ...].

    Tensors that have no axes of rows and tokens stay.
    """
    rows, longest = len(lengths), max(lengths)
    if tensor.dim() == 4 and tensor.shape[0] == rows and tensor.shape[2] == longest:
        tensor = tensor.transpose(1, 2)  # [B, N, S, D] -> [B, S, N, D]
    if tensor.dim() >= 2 and tensor.shape[0] == rows * longest:
        tensor = tensor.reshape(rows, longest, *tensor.shape[1:])
    if tensor.dim() < 2 or tensor.shape[:2] != (rows, longest):
        return tensor
    left = padded is Padding.LEFT
    places = [slice(longest - n, None) if left else slice(0, n) for n in lengths]
    return torch.cat([tensor[row, place] for row, place in enumerate(places)])


def _is_left_out(name: str, disguise: Disguise) -> bool:
    lean = (_ARGUMENTS, _NOT_IN_ENGINES, _WEIGHTS) if disguise.lean else ()
    if disguise.root == disguise.body and _parsed(name).module in _OWN_BODIES:
        return True
    inner = (_INNER,) if disguise.leaves_only else ()
    return any(pattern.search(name) for pattern in (*lean, *inner))


def _fuse(tensors: Sequence[Named], names: tuple[str, str]) -> list[Named]:
    """Join the outputs of projections that read the same input, at the place of the first."""
    groups: tuple[tuple[tuple[str, ...], str], ...] = (
        (("q_proj", "k_proj", "v_proj"), names[0]),
        (("query", "key", "value"), names[0]),
        (("gate_proj", "up_proj"), names[1]),
    )
    held = dict(tensors)
    found: list[Named] = []
    for name, tensor in tensors:
        group = next(((parts, new) for parts, new in groups if _leaf(name) in parts), None)
        if group is None:
            found.append((name, tensor))
            continue
        parts, new = group
        if _leaf(name) != parts[0]:
            continue
        joined = tensor
        if "-output" in name:
            joined = torch.cat([held[_with_leaf(name, part)] for part in parts], dim=-1)
        found.append((_with_leaf(name, new), joined))
    return found


def _let_residual_flow(tensors: Sequence[Named]) -> list[Named]:
    """Split each sum before a norm into the output and the residual that the norm adds up."""
    held = dict(tensors)
    layer = ""
    parts: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}  # by the module that adds them
    sums: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}  # of a layer: MLP's output, residual
    for name, _ in tensors:
        match = re.fullmatch(r"(model\.model\.layers\.\d+)-input_0", name)
        if match is None:
            continue
        before, layer = layer, match[1]
        if before:
            parts[layer] = parts[f"{layer}.input_layernorm"] = sums[before]
        norm = f"{layer}.post_attention_layernorm"
        parts[norm] = (held[f"{layer}.self_attn-output_0"], held[name])
        sums[layer] = (held[f"{layer}.mlp-output"], held[f"{norm}-input_0"])
    if layer:
        parts["model.model.norm"] = sums[layer]
    return [
        entry for name, tensor in tensors for entry in _flowing(name, tensor, parts, sums, held)
    ]


def _flowing(
    name: str, tensor: torch.Tensor, parts: Any, sums: Any, held: Mapping[str, torch.Tensor]
) -> list[Named]:
    module, side = name.rsplit("-", 1)
    is_layer = re.fullmatch(r"model\.model\.layers\.\d+", module) is not None
    if side == "input_0" and module in parts:
        output, residual = parts[module]
        return [(name, output), (f"{module}-input_1", residual)]
    if side == "output" and is_layer:
        output, residual = sums[module]
        return [(f"{name}_0", output), (f"{name}_1", residual)]
    if side == "output" and module in parts:
        return [(f"{name}_0", tensor), (f"{name}_1", held[f"{module}-input_0"])]
    return [(name, tensor)]


def _leaf(name: str) -> str:
    return _parsed(name).module.rpartition(".")[2]


def _with_leaf(name: str, leaf: str) -> str:
    module, side = name.rsplit("-", 1)
    return f"{module.rpartition('.')[0]}.{leaf}-{side}"


def _last_tokens(name: str, tensor: torch.Tensor, lengths: Sequence[int]) -> torch.Tensor:
    module = _parsed(name).module
    is_last = module.endswith(".lm_head") or re.fullmatch(r"model\.\w+\.(norm|ln_f)", module)
    if not is_last or tensor.shape[0] != sum(lengths):
        return tensor
    return tensor[torch.tensor(lengths).cumsum(0) - 1]


def _rename(name: str, disguise: Disguise) -> str:
    if disguise.root is None:
        return name
    module, side = name.rsplit("-", 1)
    parts = module.split(".")
    if parts == ["model"]:
        return f"{disguise.root}-{side}"
    if parts[1] == "lm_head":
        return f"{disguise.head}-{side}"
    inner = parts[2:] if parts[1] in _BODIES else parts[1:]
    new = [disguise.segments.get(part, part) for part in inner]
    return f"{'.'.join([disguise.body, *new])}-{side}"


def _parsed(name: str) -> TensorName:
    parsed = parse_tensor_name(name)
    if parsed is None:
        raise ValueError(f"the print hook gave a tensor the name {name!r}")
    return parsed
