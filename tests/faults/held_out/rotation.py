"""Held-out faults of positions and of their rotation."""

from __future__ import annotations

from typing import Any

import torch

from tests.faults.changes import attribute, before_call
from tests.faults.held_out.steps import computing, rotating
from tests.faults.pair import Place, Plant

Tensor = torch.Tensor
STEP1 = Place(step=1)


def _plant(kind: str, name: str, archs: str, change: Any, **more: Any) -> Plant:
    values = {"cause": kind, "role": "attn", **more}
    return Plant(kind=kind, name=name, archs=tuple(archs.split()), change=change, **values)


def _one_of(parts: str) -> Any:
    """Rotate queries or keys alone."""

    def change(usual: Any, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> Any:
        new_q, new_k = usual(q, k, cos, sin)
        return (new_q, k) if parts == "q" else (q, new_k)

    return change


def _not_last_head(usual: Any, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> Any:
    new_q, new_k = usual(q, k, cos, sin)
    return torch.cat([new_q[:, :-1], q[:, -1:]], 1), new_k


def _backwards(usual: Any, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> Any:
    return usual(q, k, cos, -sin)


def _queries_backwards(usual: Any, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> Any:
    return usual(q, k, cos, -sin)[0], usual(q, k, cos, sin)[1]


def _last_dims(usual: Any, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> Any:
    """Rotate the dimensions at the end where those at the start are to be."""
    new_q, new_k = usual(q.flip(-1), k.flip(-1), cos, sin)
    return new_q.flip(-1), new_k.flip(-1)


def _half_of_it(usual: Any, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> Any:
    new_q, new_k = usual(q, k, cos, sin)
    half = q.shape[-1] // 2
    return (
        torch.cat([new_q[..., :half], q[..., half:]], -1),
        torch.cat([new_k[..., :half], k[..., half:]], -1),
    )


def _pairs(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate neighbours [B, N, S, D], with tables whose halves repeat."""
    half = cos.shape[-1] // 2
    c, s = cos[:, None, :, :half], sin[:, None, :, :half]
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack([even * c - odd * s, odd * c + even * s], -1).flatten(-2)


def _mixed_layout(usual: Any, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> Any:
    return usual(q, k, cos, sin)[0], _pairs(k, cos, sin).to(k.dtype)


def _halves(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    c = torch.cat([cos[..., 0::2]] * 2, -1)[:, None]
    s = torch.cat([sin[..., 0::2]] * 2, -1)[:, None]
    one, two = x.chunk(2, -1)
    return x * c + torch.cat([-two, one], -1) * s


def _halves_of_both(usual: Any, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> Any:
    return _halves(q, cos, sin), _halves(k, cos, sin)


def _tables_of_row_0(usual: Any, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> Any:
    """Queries take row 0's positions, keys their own."""
    first = usual(q, k, cos[:1].expand_as(cos), sin[:1].expand_as(sin))
    return first[0], usual(q, k, cos, sin)[1]


def _late_in_decode(usual: Any, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> Any:
    """Rotate the keys of a decode step as if they were at position 0."""
    if q.shape[2] > 1:
        return usual(q, k, cos, sin)
    return usual(q, k, cos, sin)[0], k


def _rotated_twice(usual: Any, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> Any:
    return usual(*usual(q, k, cos, sin), cos, sin)


def _table_in_half(usual: Any, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> Any:
    half = [(x * 64).round() / 64 for x in (cos, sin)]
    return usual(q, k, *half)


def _values_too(module: Any) -> None:
    """Rotate values as well, right behind their projection."""
    state: dict[str, Any] = {}

    def keep(args: Any, kwargs: dict[str, Any]) -> None:
        state["tables"] = kwargs["position_embeddings"]

    def change(usual: Any, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> Any:
        return usual(q, usual(k, k, cos, sin)[0], cos, sin)

    before_call(keep)(module)
    rotating(change)(module)


def _norm_after(module: Any) -> None:
    """Normalise queries and keys behind their rotation."""
    norms = module.q_norm.forward, module.k_norm.forward
    module.q_norm.forward = lambda x: x
    module.k_norm.forward = lambda x: x

    def change(usual: Any, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> Any:
        new_q, new_k = usual(q, k, cos, sin)
        return norms[0](new_q), norms[1](new_k)

    rotating(change)(module)


def _frequencies(change: Any) -> Any:
    """Change the frequencies [D / 2] of a rotary embedding."""

    def apply(module: Any) -> None:
        module.inv_freq = change(module.inv_freq.clone())

    return apply


def _last_lost(f: Tensor) -> Tensor:
    f[-1] = 0.0
    return f


def _of_wrong_size(f: Tensor) -> Tensor:
    """Frequencies of a head as large as hidden size by heads."""
    return f**2


def _from_two(f: Tensor) -> Tensor:
    return torch.cat([f[1:], f[-1:] * f[1] / f[0]])


def _hard_switch(f: Tensor) -> Tensor:
    """The bands of llama3 without the smooth one between."""
    usual = 20000.0 ** -(torch.arange(len(f)) / len(f))
    return torch.where(2 * torch.pi / usual < 64 / 4, usual, usual / 8)


def _tables(change: Any) -> Any:
    """Change what a rotary embedding returns."""

    def apply(module: Any) -> None:
        usual = module.forward
        computing(lambda _, *args, **kw: change(*usual(*args, **kw)))(module)

    return apply


def _positions(change: Any, name: str = "position_ids") -> Any:
    """Change the position ids [B, S] that a module is given."""

    def of(args: Any, kwargs: dict[str, Any]) -> Any:
        if name in kwargs:
            return args, {**kwargs, name: change(kwargs[name])}
        return (*args[:-1], change(args[-1])), kwargs

    return before_call(of)


def _decode_behind(ids: Tensor) -> Tensor:
    return ids - 1 if ids.shape[1] == 1 else ids


def _decode_restarts(ids: Tensor) -> Tensor:
    return ids - ids.min() if ids.shape[1] == 1 else ids


def _in_chunks(ids: Tensor) -> Tensor:
    return ids % 8


def _first_repeated(ids: Tensor) -> Tensor:
    return (ids - 1).clamp(min=0)


def _row_1_late(ids: Tensor) -> Tensor:
    late = torch.tensor([0, 1])[: ids.shape[0], None].to(ids)
    return ids * (1 + late) if ids.shape[0] > 1 else ids


def _unmasked(ids: Tensor) -> Tensor:
    """Positions counted from the padding on."""
    if ids.shape[1] == 1:
        return ids.max().expand_as(ids)
    return torch.arange(ids.shape[1]).expand_as(ids)


def _table_of_other_layers(model: Any) -> None:
    """Give the full layer the table of the sliding ones."""
    held: dict[str, Any] = {}

    def keep(args: Any, kwargs: dict[str, Any]) -> None:
        held["tables"] = kwargs["position_embeddings"]

    def give(args: Any, kwargs: dict[str, Any]) -> Any:
        return args, {**kwargs, "position_embeddings": held["tables"]}

    before_call(keep)(model.layers[0])
    before_call(give)(model.layers[1])


def _offset_of_encoder(by: int) -> Any:
    return lambda module: attribute(position_ids=module.position_ids + by)(module)


def _zero_weight(module: Any) -> None:
    module.weight.zero_()


def _at_rotary(change: Any) -> dict[str, Any]:
    """Blame the body for the positions that it gives its rotary embedding."""
    return {"change": _positions(change), "at": "rotary", "role": "top", "also_lean": ("rotary",)}


PLANTS = (
    _plant("rope_partial", "keys_only", "llama qwen3", rotating(_one_of("k"))),
    _plant("rope_partial", "queries_only", "starcoder2 gemma3", rotating(_one_of("q")), layer=2),
    _plant("rope_partial", "not_last_head", "olmo2 granite", rotating(_not_last_head), layer=0),
    _plant("rope_partial", "last_dimensions", "phi3 glm4_moe", rotating(_last_dims)),
    _plant("rope_partial", "half_of_it", "qwen2", rotating(_half_of_it)),
    _plant("rope_layout", "backwards", "llama3 cohere", rotating(_backwards)),
    _plant("rope_layout", "queries_backwards", "olmo2", rotating(_queries_backwards), layer=2),
    _plant("rope_layout", "mixed", "qwen2 starcoder2", rotating(_mixed_layout)),
    _plant("rope_layout", "halves", "cohere", rotating(_halves_of_both), layer=0),
    _plant("rope_layout", "twice", "gemma2 llama", rotating(_rotated_twice), cause="unknown"),
    _plant("rope_layout", "keys_twice", "qwen3_moe", _values_too, cause="unknown", layer=0),
    _plant("rope_layout", "of_exchanged_tables", "llama phi3",
           _tables(lambda cos, sin: (sin, cos)), role="rotary"),
    _plant("norm_order", "behind_rotation", "qwen3 gemma3", _norm_after,
           also=("q_norm",)),
    _plant("rope_frequency", "attention_factor", "llama qwen2", attribute(attention_scaling=1.2),
           role="rotary"),
    _plant("rope_frequency", "last_lost", "qwen3 olmo2", _frequencies(_last_lost), role="rotary"),
    _plant("rope_frequency", "of_wrong_size", "starcoder2 granite", _frequencies(_of_wrong_size),
           role="rotary"),
    _plant("rope_frequency", "from_two", "cohere phi3", _frequencies(_from_two), role="rotary"),
    _plant("rope_frequency", "hard_switch", "llama3", _frequencies(_hard_switch), role="rotary"),
    _plant("rope_frequency", "linear_factor", "qwen2", _frequencies(lambda f: f / 4),
           role="rotary"),
    _plant("rope_frequency", "reversed", "glm4_moe", _frequencies(lambda f: f.flip(0)),
           role="rotary"),
    _plant("rope_frequency", "table_of_other_layers", "gemma3", _table_of_other_layers,
           role="top", also=("layer", "attn"), layer=1),
    _plant("rope_precision", "steps_of_64th", "llama phi3", rotating(_table_in_half), layer=0),
    _plant("rope_precision", "in_float16", "qwen3", rows="long", role="rotary",
           change=_frequencies(lambda f: f.half().float())),
    _plant("rope_precision", "positions_in_bfloat16", "starcoder2", rows="long",
           **_at_rotary(lambda ids: ids.bfloat16())),
    _plant("position_ids", "decode_behind", "llama olmo2", place=STEP1,
           **_at_rotary(_decode_behind)),
    _plant("position_ids", "decode_restarts", "qwen3", place=STEP1, **_at_rotary(_decode_restarts)),
    _plant("position_ids", "in_chunks", "cohere qwen2", **_at_rotary(_in_chunks)),
    _plant("position_ids", "first_repeated", "phi3 gemma2", **_at_rotary(_first_repeated)),
    _plant("position_ids", "every_second", "starcoder2", place=Place(row=1),
           **_at_rotary(_row_1_late)),
    _plant("position_ids", "keys_in_decode", "llama granite", rotating(_late_in_decode),
           place=STEP1),
    _plant("position_ids", "queries_of_row_0", "qwen2", rotating(_tables_of_row_0),
           place=Place(row=1)),
    _plant("position_ids", "offset_of_two", "gpt2", _positions(lambda ids: ids + 2), role="top",
           at="positions", also_lean=("positions",)),
    _plant("position_ids", "decode_behind", "gpt2", _positions(_decode_behind), role="top",
           at="positions", also_lean=("positions",), place=STEP1),
    _plant("position_ids", "offset_of_encoder", "bert", _offset_of_encoder(2), role="embeddings",
           also_lean=("positions",)),
    _plant("padding", "positions_of_padding", "gpt2", _positions(_unmasked), role="top",
           at="positions", also_lean=("positions",), place=Place(row=1)),
    _plant("inputs", "token_types_of_one", "bert",
           lambda module: attribute(token_type_ids=torch.ones_like(module.token_type_ids))(module),
           role="embeddings", cause="unknown", also_lean=("types",)),
    _plant("inputs", "no_token_types", "bert", _zero_weight,
           role="types", cause="weights"),
)  # fmt: skip
UNMASKED = _positions(_unmasked)
SHIFTED = _positions(lambda ids: ids + 7)
