from typing import Any

import pytest

from test_common.config_values import other_value


@pytest.mark.parametrize(
    ("value", "expected"),
    [(True, False), (0, 1), (128, 256), (2.0, 3.0), (0.0, 0.5), ("silu", "gelu"),
     ("gelu_pytorch_tanh", "relu"), ("eager", None), (None, None), ([1], None)],
)  # fmt: skip
def test_another_value_is_of_the_same_kind(value: Any, expected: Any) -> None:
    assert other_value(value) == expected
