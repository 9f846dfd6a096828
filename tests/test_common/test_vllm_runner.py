"""What can be told without vLLM; the engine itself runs in tests/e2e."""

import pytest

from comparison.schema.errors import EngineError
from test_common.vllm_runner import check_row_order

ROWS = [[5, 6, 7], [8, 9]]


def test_rows_in_order_pass() -> None:
    check_row_order([[5, 6, 7, 8, 9], [1, 2]], ROWS)


@pytest.mark.parametrize("fed", [[], [[8, 9, 5, 6, 7]], [[5, 6, 7], [8, 9]]])
def test_a_split_or_reordered_prefill_is_an_error(fed: list[list[int]]) -> None:
    with pytest.raises(EngineError, match=r"prefill 2 row\(s\) of 5 tokens in one step"):
        check_row_order(fed, ROWS)
