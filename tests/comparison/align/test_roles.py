"""What names say of a module's role, and how far two of them speak for one."""

import pytest

from comparison.align.roles import role_score, roles_of


@pytest.mark.parametrize(
    ("module", "roles"),
    [
        ("model.layers.0.self_attn.q_proj", {"query"}),
        ("transformer.h.1.attn.wq", {"query"}),
        ("model.layers.3.self_attn.qkvProj", {"fused qkv"}),
        ("layers.0.mlp.gate_up_proj", {"fused gate_up"}),  # neither the gate nor up
        ("layers.0.mlp.gateUp", {"fused gate_up"}),
        ("layers.0.feed_forward.w2", {"down"}),
        ("model.RMSNorm", {"norm"}),
        ("model.layers.12", set()),  # the last part that is no number says nothing
        ("model.layers.0.self_attn", {"attention"}),
        ("", set()),
    ],
)
def test_roles(module: str, roles: set[str]) -> None:
    assert roles_of(module) == roles


@pytest.mark.parametrize(
    ("left", "right", "score"),
    [
        ("a.layers.0", "b.blocks.0.mlp", -4.0),  # a layer, and a module inside of one
        ("a.h.0.fc_in", "b.x.fc_in", 1.0),
        ("a.0.q_proj", "b.0.wq", 0.7),
        ("a.0.q_proj", "b.0.wk", -2.0),
        ("a.0.q_proj", "b.0.mixer", 0.0),  # one name says nothing
        ("a.0.gate_proj", "b.0.gate_up_proj", -2.0),
    ],
)
def test_scores(left: str, right: str, score: float) -> None:
    assert role_score(left, right) == role_score(right, left) == score
