"""What the last part of a module's name says of its role, whoever named it."""

import re

# Words that people call one role by. A word that stands for several roles is left out.
_WORDS: dict[str, frozenset[str]] = {
    "query": frozenset({"q", "query", "wq", "queries"}),
    "key": frozenset({"k", "key", "wk", "keys"}),
    "value": frozenset({"v", "value", "wv", "values"}),
    "fused qkv": frozenset({"qkv", "wqkv", "attn_qkv"}),
    "gate": frozenset({"gate", "w1"}),
    "up": frozenset({"up", "w3"}),
    "down": frozenset({"down", "w2"}),
    "fused gate_up": frozenset({"w13", "gateup", "gate_up"}),
    "out": frozenset({"o", "wo", "out"}),
    "norm": frozenset({"norm", "ln", "layernorm", "rmsnorm", "rms"}),
    "embedding": frozenset({"embed", "embedding", "embeddings", "wte", "tok"}),
    "head": frozenset({"head", "unembed", "logits"}),
    "attention": frozenset({"attn", "attention"}),
    "feed forward": frozenset({"mlp", "ffn", "feedforward"}),
    "activation": frozenset({"act", "activation", "silu", "gelu"}),
    "router": frozenset({"router"}),
    "experts": frozenset({"experts", "moe"}),
}
_SPLIT = re.compile(r"[_\-.]|(?<=[a-z])(?=[A-Z])")


def roles_of(module: str) -> frozenset[str]:
    """Return the roles that the last named part of a module's path speaks of."""
    named = [part for part in module.split(".") if not part.isdigit()]
    last = named[-1] if named else ""
    words = {word.lower() for word in _SPLIT.split(last)}
    words |= {last.lower(), last.lower().replace("_", "")}
    if "gate" in words and "up" in words:
        return frozenset({"fused gate_up"})
    return frozenset(role for role, known in _WORDS.items() if words & known)


def role_score(left: str, right: str) -> float:
    """Say how far two modules' names speak for one role: above 0 for, below 0 against."""
    last = left.rpartition(".")[2], right.rpartition(".")[2]
    if last[0].isdigit() != last[1].isdigit():
        return -4.0  # a layer, and a module inside of one
    if last[0] == last[1]:
        return 1.0
    mine, theirs = roles_of(left), roles_of(right)
    if mine & theirs:
        return 0.7
    return -2.0 if mine and theirs else 0.0
