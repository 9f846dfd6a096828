"""What is recorded of each forward, on torch modules that are called as vLLM calls its own."""

import pytest
import torch

from comparison.schema.errors import EngineError
from test_common.vllm_steps import StepRecorder, check_row_order

ROWS = [[5, 6, 7], [8, 9]]


class Embedder(torch.nn.Module):
    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        return input_ids.float()


class Generator(Embedder):
    def __init__(self) -> None:
        super().__init__()
        self.logits_processor = torch.nn.Identity()


def test_tokens_and_logits_are_kept_until_it_is_removed() -> None:
    model = Generator()
    recorder = StepRecorder(model)
    for ids in ([5, 6], [7]):
        model.logits_processor(model(input_ids=torch.tensor(ids)).to(torch.bfloat16))
    recorder.remove()
    model.logits_processor(model(torch.tensor([1])))
    assert recorder.token_ids == [[5, 6], [7]]
    assert [(str(step.dtype), step.tolist()) for step in recorder.logits] == [
        ("float32", [5.0, 6.0]),
        ("float32", [7.0]),
    ]


def test_a_rank_that_gathers_no_logits_keeps_none() -> None:
    model = Generator()
    recorder = StepRecorder(model)
    model.logits_processor(None)
    assert recorder.logits == []


def test_an_embedding_model_has_no_logits() -> None:
    model = Embedder()
    recorder = StepRecorder(model)
    model(torch.tensor([3, 4]))
    assert (recorder.token_ids, recorder.logits) == ([[3, 4]], [])


def test_rows_in_order_pass() -> None:
    check_row_order([[5, 6, 7, 8, 9], [1, 2]], ROWS)


@pytest.mark.parametrize("fed", [[], [[8, 9, 5, 6, 7]], [[5, 6, 7], [8, 9]]])
def test_a_split_or_reordered_prefill_is_an_error(fed: list[list[int]]) -> None:
    with pytest.raises(EngineError, match=r"prefill 2 row\(s\) of 5 tokens in one step"):
        check_row_order(fed, ROWS)
