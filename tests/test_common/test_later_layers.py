import pytest

from test_common.later_layers import is_of_later_layer, without_later_layers


@pytest.mark.parametrize(
    ("name", "later"),
    [
        ("model.layers.1.mlp.up_proj.weight", False),
        ("model.layers.2.mlp.up_proj.weight", True),
        ("model.layers.10.mlp.up_proj.weight", True),
        ("encoder.layer.2.attention.self.query.bias", True),
        ("model.embed_tokens.weight", False),
        ("model.layers.1.mlp.fc2.weight", False),
        ("lm_head_7.weight", False),
    ],
)
def test_of_two_layers(name: str, later: bool) -> None:
    assert is_of_later_layer(name, 2) is later


def test_the_rest_keeps_its_order_and_values() -> None:
    weights = [("a", 1), ("layers.5.w", 2), ("layers.0.w", 3)]
    assert list(without_later_layers(weights, 1)) == [("a", 1), ("layers.0.w", 3)]
