from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from comparison.schema.errors import BadInputError, EngineError
from comparison.schema.manifest import Padding
from test_common.torch_print_hook import TorchPrintHook
from test_common.torch_runner import (
    TorchRun,
    check_runnable,
    pool_embeddings,
    run_torch,
    run_torch_encoder,
)
from tests.test_common.tiny_models import ROWS, tiny_bert, tiny_gemma3, tiny_llama, tiny_qwen3

DECODERS = [tiny_llama, tiny_gemma3, tiny_qwen3]
STEPS = 5


class Shapes:
    """Remembers name and shape of what a hook saves, by step."""

    def __init__(self) -> None:
        self.steps: list[dict[str, list[int]]] = [{}]

    def save(self, name: str, tensor: torch.Tensor) -> None:
        self.steps[-1][name] = list(tensor.shape)

    def step(self) -> None:
        self.steps.append({})


def greedy_by_generate(model: Any, row: Sequence[int], steps: int) -> list[int]:
    ids = torch.tensor([list(row)])
    output = model.generate(
        ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=steps
    )
    tokens: list[int] = output[0, len(row) :].tolist()
    return tokens


def assert_close(run: TorchRun, row: int, alone: TorchRun, tolerance: float = 1e-5) -> None:
    assert run.generated[row] == alone.generated[0]
    for together, single in zip(run.logits, alone.logits, strict=True):
        np.testing.assert_allclose(together[row], single[0], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("build", DECODERS)
def test_tokens_are_those_of_generate(build: Callable[[], Any]) -> None:
    model = build()
    run = run_torch(model, ROWS, num_steps=STEPS, pad_token_id=0)
    assert [list(row) for row in run.generated] == [
        greedy_by_generate(model, row, STEPS) for row in ROWS
    ]
    assert len({token for row in run.generated for token in row}) > 2  # no stuck model
    assert run.padding is Padding.LEFT
    assert run.notes == ()


@pytest.mark.parametrize("build", DECODERS)
@pytest.mark.parametrize("use_cache", [True, False])
def test_padded_row_equals_the_row_alone(build: Callable[[], Any], use_cache: bool) -> None:
    model = build()
    options: dict[str, Any] = {"num_steps": STEPS, "pad_token_id": 0, "use_cache": use_cache}
    run = run_torch(model, ROWS, **options)
    for index, row in enumerate(ROWS):
        alone = run_torch(model, [row], **options)
        assert alone.padding is Padding.NONE
        assert_close(run, index, alone)


def test_pad_token_does_not_matter() -> None:
    model = tiny_gemma3()
    one = run_torch(model, ROWS, num_steps=3, pad_token_id=0)
    other = run_torch(model, ROWS, num_steps=3, pad_token_id=63)
    for first, second in zip(one.logits, other.logits, strict=True):
        np.testing.assert_allclose(first, second, rtol=1e-6, atol=1e-6)
    unknown = run_torch(model, ROWS, num_steps=3)
    assert unknown.notes == ("no pad token is known: short rows are filled up with 0",)
    assert run_torch(model, ROWS[:1], num_steps=1).notes == ()


def test_cache_decides_what_a_decode_step_is_fed() -> None:
    model = tiny_llama()
    fed = {}
    for use_cache in (True, False):
        sink = Shapes()
        hook = TorchPrintHook(sink=sink)
        hook.name_layers(model)
        run = run_torch(model, ROWS, num_steps=3, pad_token_id=0, hook=hook, use_cache=use_cache)
        hook.remove()
        fed[use_cache] = [step["model-input_input_ids"] for step in sink.steps]
        assert bool(run.notes) is not use_cache
    assert fed == {True: [[2, 13], [2, 1], [2, 1]], False: [[2, 13], [2, 14], [2, 15]]}
    assert run.notes == ("no cache: each decode step feeds the whole sequence",)


def test_cache_and_whole_sequence_agree() -> None:
    model = tiny_gemma3()
    cached = run_torch(model, ROWS, num_steps=STEPS, pad_token_id=0)
    whole = run_torch(model, ROWS, num_steps=STEPS, pad_token_id=0, use_cache=False)
    assert cached.generated == whole.generated
    for first, second in zip(cached.logits, whole.logits, strict=True):
        np.testing.assert_allclose(first, second, rtol=1e-5, atol=1e-5)


def test_hooked_logits_are_bitwise_those_without(tmp_path: Any) -> None:
    model = tiny_qwen3()
    plain = run_torch(model, ROWS, num_steps=3, pad_token_id=0)
    with TorchPrintHook(tmp_path / "out") as hook:
        hook.name_layers(model)
        hooked = run_torch(model, ROWS, num_steps=3, pad_token_id=0, hook=hook)
    after = run_torch(model, ROWS, num_steps=3, pad_token_id=0)
    for first, second, third in zip(plain.logits, hooked.logits, after.logits, strict=True):
        assert first.tobytes() == second.tobytes() == third.tobytes()


def test_steps_are_told_to_the_hook_and_none_is_empty() -> None:
    model, sink = tiny_llama(), Shapes()
    with TorchPrintHook(sink=sink) as hook:
        hook.name_layers(model)
        run = run_torch(model, ROWS, num_steps=3, pad_token_id=0, hook=hook)
    assert len(sink.steps) == 3
    assert all("model-output_logits" in step for step in sink.steps)
    assert [logits.shape for logits in run.logits] == [(2, 64)] * 3
    assert all(logits.dtype == np.float32 for logits in run.logits)
    assert not any("(2)" in name for step in sink.steps for name in step)


def test_positions_and_mask_of_padded_rows() -> None:
    model, seen = tiny_llama(), []
    model.register_forward_pre_hook(
        lambda module, args, kwargs: seen.append(kwargs), with_kwargs=True
    )
    run_torch(model, [[5, 6, 7], [8]], num_steps=2, pad_token_id=0)
    assert seen[0]["input_ids"].tolist() == [[5, 6, 7], [0, 0, 8]]
    assert seen[0]["attention_mask"].tolist() == [[1, 1, 1], [0, 0, 1]]
    assert seen[0]["position_ids"].tolist() == [[0, 1, 2], [0, 0, 0]]
    assert seen[1]["attention_mask"].tolist() == [[1, 1, 1, 1], [0, 0, 1, 1]]
    assert seen[1]["position_ids"].tolist() == [[3], [1]]


def test_training_mode_and_gradients_are_off() -> None:
    model = tiny_llama().train()
    model.config.attention_dropout = 0.5
    first = run_torch(model, ROWS[:1], num_steps=1)
    second = run_torch(model, ROWS[:1], num_steps=1)
    assert first.logits[0].tobytes() == second.logits[0].tobytes()
    assert not model.training


def test_bfloat16_gives_float32_logits() -> None:
    run = run_torch(tiny_llama().bfloat16(), ROWS, num_steps=2, pad_token_id=0)
    assert run.logits[0].dtype == np.float32


class Bare(torch.nn.Module):
    """A decoder whose forward takes token ids only, and returns what it is told to."""

    def __init__(self, wrap: Callable[[torch.Tensor], Any] = lambda logits: logits) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = torch.nn.Embedding(11, 5)
        self.head = torch.nn.Linear(5, 11)
        self.wrap = wrap

    def forward(self, x: torch.Tensor) -> Any:
        return self.wrap(self.head(self.embedding(x).cumsum(dim=1)))


@pytest.mark.parametrize(
    "wrap",
    [
        lambda logits: logits,
        lambda logits: (logits, None),
        lambda logits: {"logits": logits},
        lambda logits: SimpleNamespace(logits=logits),
    ],
)
def test_model_without_cache_or_mask_is_fed_the_whole_sequence(wrap: Any) -> None:
    run = run_torch(Bare(wrap), [[1, 2, 3]], num_steps=3)
    assert run.notes == ("no cache: each decode step feeds the whole sequence",)
    whole = Bare()(torch.tensor([[1, 2, 3, *run.generated[0][:2]]]))
    np.testing.assert_allclose(run.logits[2], whole[:, -1].detach().numpy(), rtol=1e-6)


def test_rows_of_two_lengths_need_a_mask() -> None:
    with pytest.raises(BadInputError, match=r"Bare\.forward takes no attention_mask.*\(3, 2\)"):
        run_torch(Bare(), [[1, 2, 3], [1, 2]], num_steps=1)
    assert len(run_torch(Bare(), [[1, 2], [3, 4]], num_steps=1).generated) == 2


def test_a_wrapper_that_may_hand_a_mask_on_is_not_told_that_it_takes_none() -> None:
    class Wrapper(torch.nn.Module):
        def forward(self, *args: Any, **kwargs: Any) -> Any:
            raise AssertionError("is not run")

    with pytest.raises(BadInputError, match=r"Wrapper\.forward names no attention_mask, and may"):
        run_torch(Wrapper(), [[1, 2, 3], [1, 2]], num_steps=1)


class MaskOnly(Bare):
    def forward(self, x: torch.Tensor, attention_mask: torch.Tensor) -> Any:
        return super().forward(x * attention_mask)


def test_model_that_takes_no_positions_is_noted_for_padded_rows() -> None:
    note = "MaskOnly.forward takes no position_ids: it numbers padded rows by itself"
    assert run_torch(MaskOnly(), [[1, 2], [3]], num_steps=1, pad_token_id=0).notes == (note,)
    assert run_torch(MaskOnly(), [[1, 2], [3, 4]], num_steps=1).notes == ()


@pytest.mark.parametrize(
    ("rows", "steps", "message"),
    [
        ([], 1, "no rows"),
        ([[1], []], 1, "row 1 is empty"),
        ([[1]], 0, "num_steps must be at least 1, got 0"),
        ([[1, 64], [], [-1]], 1, r"row 1 is empty; row 0 has ids outside .* 64: \[64\]; row 2"),
    ],
)
def test_bad_input_is_named(rows: list[list[int]], steps: int, message: str) -> None:
    with pytest.raises(BadInputError, match=message):
        run_torch(tiny_llama(), rows, num_steps=steps, pad_token_id=0)


def test_model_without_logits_is_an_error() -> None:
    with pytest.raises(EngineError, match=r"returned Tensor of shape \[1\] where .* logits"):
        run_torch(Bare(lambda logits: logits[0, 0, :1]), [[1]], num_steps=1)
    with pytest.raises(EngineError, match="returned NoneType"):
        run_torch(Bare(lambda _: None), [[1]], num_steps=1)


@pytest.mark.parametrize("pooling", ["mean", "cls", "last"])
def test_padded_encoder_row_equals_the_row_alone(pooling: Any) -> None:
    model = tiny_bert()
    run = run_torch_encoder(model, ROWS, pad_token_id=0, pooling=pooling)
    assert (run.hidden.shape, run.embeddings.shape) == ((2, 13, 32), (2, 32))
    assert run.padding is Padding.RIGHT
    for index, row in enumerate(ROWS):
        alone = run_torch_encoder(model, [row], pad_token_id=0, pooling=pooling)
        assert alone.padding is Padding.NONE
        np.testing.assert_allclose(run.embeddings[index], alone.embeddings[0], rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(
            run.hidden[index, : len(row)], alone.hidden[0], rtol=1e-5, atol=1e-5
        )


def test_without_pooling_every_token_keeps_its_vector() -> None:
    run = run_torch_encoder(tiny_bert(), ROWS, pad_token_id=0, pooling=None)
    assert run.embeddings.shape == run.hidden.shape
    for index, row in enumerate(ROWS):
        own, behind = run.embeddings[index, : len(row)], run.embeddings[index, len(row) :]
        np.testing.assert_array_equal(own, run.hidden[index, : len(row)])
        assert own.any()
        assert not behind.any()


def test_pooling() -> None:
    hidden = torch.tensor([[[1.0, 2.0], [3.0, 4.0], [50.0, 60.0]]])
    mask = torch.tensor([[1, 1, 0]])
    assert pool_embeddings(hidden, mask).tolist() == [[2.0, 3.0]]
    assert pool_embeddings(hidden, mask, "cls").tolist() == [[1.0, 2.0]]
    assert pool_embeddings(hidden, mask, "last").tolist() == [[3.0, 4.0]]


def test_encoder_run_is_one_step() -> None:
    model, sink = tiny_bert(), Shapes()
    hook = TorchPrintHook(sink=sink, filter="model")  # BERT's dropout never runs
    hook.name_layers(model)
    run_torch_encoder(model, ROWS, pad_token_id=0, hook=hook)
    hook.remove()
    assert len(sink.steps) == 1
    assert sink.steps[0]["model-output_last_hidden_state"] == [2, 13, 32]


@pytest.mark.parametrize("build", DECODERS)
def test_model_with_a_head_is_runnable(build: Callable[[], Any]) -> None:
    check_runnable(build(), ROWS, logits=True)


def test_model_without_a_head_is_known_before_a_run() -> None:
    base = tiny_llama().model
    with pytest.raises(EngineError, match="LlamaModel has no head and gives no logits: let the or"):
        check_runnable(base, ROWS, logits=True)
    check_runnable(base, ROWS, logits=False)
    check_runnable(tiny_bert(), ROWS, logits=False)


def test_of_other_models_nothing_is_known_before_a_run() -> None:
    check_runnable(torch.nn.Linear(2, 2), [[1, 2]], logits=True)


@pytest.mark.parametrize("model", [None, 5, torch.nn.Linear, lambda ids: ids])
def test_what_is_no_module_is_known_before_a_run(model: Any) -> None:
    with pytest.raises(EngineError, match=r"^the model must be a torch\.nn\.Module, it is "):
        check_runnable(model, ROWS, logits=True)


def test_rows_that_do_not_fit_are_known_before_a_run() -> None:
    with pytest.raises(BadInputError, match=r"Linear\.forward takes no attention_mask"):
        check_runnable(torch.nn.Linear(2, 2), [[1], [1, 2]], logits=True)
    with pytest.raises(BadInputError, match="row 0 has ids outside of the vocabulary"):
        check_runnable(tiny_llama(), [[10**9]], logits=True)
