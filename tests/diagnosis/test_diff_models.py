"""Planted faults in Torch models, from the call to the verdict."""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from comparison.schema.diagnosis import Judgement
from comparison.schema.errors import BadInputError
from comparison.schema.outcome import Side
from diagnosis.diff_models import DiffOptions, diff_models
from diagnosis.side_runs import RunOptions
from tests.test_common.tiny_models import ROWS, tiny_bert, tiny_gemma3, tiny_llama, tiny_qwen3

Plant = Callable[[Any], None]


@pytest.mark.parametrize("make", [tiny_llama, tiny_gemma3, tiny_qwen3])
def test_a_copy_agrees_in_every_module(make: Callable[[], Any]) -> None:
    model = make()
    found = diff_models(model, copy.deepcopy(model), ROWS)
    assert (found.verdict, found.exit_code) == (Judgement.AGREE, 0)
    assert found.coverage.modules_checked == found.coverage.modules
    assert found.guilty == found.harmless == found.choices == ()
    assert max(item.excess for item in found.growth) < 3


def test_a_copy_of_an_encoder_agrees() -> None:
    model = tiny_bert()
    found = diff_models(model, copy.deepcopy(model), ROWS, encoder=True)
    assert found.verdict is Judgement.AGREE


def _scale_attention(model: Any) -> None:
    model.model.layers[1].self_attn.scaling *= 1.001


def _scale_row(model: Any) -> None:
    model.model.layers[1].mlp.down_proj.weight.data[3] *= 1.01


def _change_rope(model: Any) -> None:
    model.model.rotary_emb.inv_freq *= 0.99


def _double_residual(model: Any) -> None:
    layer = model.model.layers[2]
    run = layer.forward

    def forward_with_more(hidden_states: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        return run(hidden_states, *args, **kwargs) + hidden_states

    layer.forward = forward_with_more


def _drop_head(model: Any) -> None:
    model.lm_head.weight.data[7] = 0


@pytest.mark.parametrize(
    ("plant", "module", "position"),
    [
        (_scale_attention, "model.model.layers.1.self_attn", 1),
        (_scale_row, "model.model.layers.1.mlp.down_proj", 0),
        (_change_rope, "model.model.rotary_emb", 1),
        (_double_residual, "model.model.layers.2", 0),
        (_drop_head, "model.lm_head", 0),
    ],
)
def test_the_planted_module_is_the_only_one_blamed(
    plant: Plant, module: str, position: int
) -> None:
    model = tiny_llama()
    faulty = copy.deepcopy(model)
    plant(faulty)
    found = diff_models(model, faulty, ROWS)
    assert (found.verdict, found.exit_code) == (Judgement.DIVERGE, 1)
    assert [guilty.module for guilty in found.guilty] == [module]
    assert found.culprit is not None
    assert found.culprit.module == module
    assert (found.culprit.spot.step, found.culprit.spot.position) == (0, position)
    assert module in found.sentence


def test_a_computation_between_two_tensors_is_named() -> None:
    model = tiny_llama()
    faulty = copy.deepcopy(model)
    _scale_attention(faulty)
    found = diff_models(model, faulty, ROWS)
    assert found.culprit is not None
    attention = "model.model.layers.1.self_attn"
    assert found.culprit.between == (f"{attention}.v_proj-output", f"{attention}.o_proj-input_0")
    assert found.guilty[0].where == ("from token 1 on, exact before",)


@pytest.mark.full
def test_two_independent_faults_are_both_seen() -> None:
    model = tiny_llama()
    faulty = copy.deepcopy(model)
    _scale_attention(faulty)
    _drop_head(faulty)
    modules = [guilty.module for guilty in diff_models(model, faulty, ROWS).guilty]
    assert modules == ["model.model.layers.1.self_attn", "model.lm_head"]


def test_a_wrong_row_is_named_with_its_channels() -> None:
    model = tiny_llama()
    faulty = copy.deepcopy(model)
    _scale_row(faulty)
    (guilty,) = diff_models(model, faulty, ROWS).guilty
    assert guilty.where == ("at all tokens", "in channels 3 of 32")
    assert guilty.local_error > 100 * guilty.bound


def test_a_wrong_window_is_blamed_on_the_attention_from_its_first_row_on() -> None:
    model = tiny_gemma3()
    faulty = copy.deepcopy(model)
    for config in (faulty.config, faulty.model.config):
        config.sliding_window = 5
    for layer in faulty.model.layers:
        if layer.self_attn.sliding_window:
            layer.self_attn.sliding_window = 5
    found = diff_models(model, faulty, ROWS)
    assert found.culprit is not None
    assert found.culprit.module == "model.model.layers.0.self_attn"
    assert found.culprit.spot.position == 4


def test_heads_in_another_order_do_no_harm() -> None:
    model = tiny_llama()
    other = copy.deepcopy(model)
    attention = other.model.layers[1].self_attn
    query, out = attention.q_proj.weight.data, attention.o_proj.weight.data
    query.copy_(query.view(2, 2, 16, 32).flip(1).reshape(query.shape))  # within each kv group
    out.copy_(out.view(32, 2, 2, 16).flip(2).reshape(out.shape))
    found = diff_models(model, other, ROWS)
    assert found.verdict is Judgement.AGREE
    changed = {item.tensor.rpartition(".")[2] for item in found.harmless}
    assert changed == {"q_proj-output", "o_proj-output"}
    assert all("the difference is gone at" in item.reason for item in found.harmless)
    assert all(item.is_absorbed for item in found.harmless)


@contextmanager
def _shifted(model: Any, constant: float) -> Iterator[None]:
    forward = model.lm_head.forward
    model.lm_head.forward = lambda x: forward(x) + constant
    yield


@pytest.mark.full
def test_a_constant_on_all_logits_does_no_harm_and_hides_nothing() -> None:
    model = tiny_llama()
    shifted = copy.deepcopy(model)
    with _shifted(shifted, 3.0):
        found = diff_models(model, shifted, ROWS)
        assert found.verdict is Judgement.AGREE
        assert "a constant" in found.harmless[0].reason
        _scale_attention(shifted)
        both = diff_models(model, shifted, ROWS)
    assert both.culprit is not None
    assert both.culprit.module == "model.model.layers.1.self_attn"


def test_flipped_tokens_are_listed_with_their_margin() -> None:
    model = tiny_llama()
    faulty = copy.deepcopy(model)
    faulty.model.norm.weight.data.mul_(torch.linspace(-2, 2, 32))
    found = diff_models(model, faulty, ROWS)
    assert found.choices
    assert all(choice.margin > choice.noise and not choice.is_tie for choice in found.choices)


def test_not_a_number_is_a_fault_where_it_begins() -> None:
    model = tiny_llama()
    faulty = copy.deepcopy(model)
    faulty.model.layers[1].mlp.up_proj.weight.data[5, 5] = float("nan")
    found = diff_models(model, faulty, ROWS)
    assert found.culprit is not None
    assert found.culprit.module == "model.model.layers.1.mlp.up_proj"


def test_other_token_ids_are_the_verdict_unless_told_to_go_on(tmp_path: Path) -> None:
    model = tiny_llama()
    diff_models(model, copy.deepcopy(model), ROWS, options=DiffOptions(output=tmp_path))
    wanted = [[*ROWS[0][:-1], 63], ROWS[1]]
    found = diff_models(model, tmp_path / "candidate", wanted)
    assert (found.verdict, found.culprit) == (Judgement.DIVERGE, None)
    assert found.cause is not None
    assert found.cause.id == "tokens"
    assert "token ids of row 0, from token 12 on" in found.sentence
    on = diff_models(model, tmp_path / "candidate", wanted, options=DiffOptions(keep_going=True))
    assert on.verdict is Judgement.AGREE


def test_a_damaged_file_is_no_agreement(tmp_path: Path) -> None:
    model = tiny_llama()
    diff_models(model, copy.deepcopy(model), ROWS, options=DiffOptions(output=tmp_path))
    damaged = tmp_path / "candidate" / "0" / "model.lm_head-output.pt"
    damaged.write_bytes(damaged.read_bytes()[:200])
    found = diff_models(model, tmp_path / "candidate", ROWS)
    assert (found.verdict, found.exit_code) == (Judgement.INCONCLUSIVE, 2)
    assert "cannot be read" in found.sentence
    assert "model.lm_head-output.pt" in found.sentence


def test_what_has_no_counterpart_is_listed_on_both_sides(tmp_path: Path) -> None:
    model = tiny_llama()
    diff_models(model, copy.deepcopy(model), ROWS, options=DiffOptions(output=tmp_path))
    step = tmp_path / "candidate" / "1"
    (step / "model.model.layers.1.mlp.up_proj-output.pt").rename(step / "stranger-output.pt")
    names = step / "tensor_names.txt"
    names.write_text(
        names.read_text().replace("model.model.layers.1.mlp.up_proj-output\n", "stranger-output\n")
    )
    found = diff_models(model, tmp_path / "candidate", ROWS)
    listed = {(item.side, item.step, item.tensor) for item in found.unpaired}
    assert (Side.CANDIDATE, 1, "stranger-output") in listed
    assert (Side.REFERENCE, 1, "model.model.layers.1.mlp.up_proj-output") in listed
    assert found.coverage.unpaired == sum(item.side is Side.CANDIDATE for item in found.unpaired)
    assert all(item.reason for item in found.unpaired)


def test_plain_modules_are_diffed_on_tensors() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 10), torch.nn.GELU(), torch.nn.Linear(10, 3))
    other = copy.deepcopy(model)
    other[1] = torch.nn.GELU(approximate="tanh")
    found = diff_models(model, other, (torch.randn(7, 6),))
    assert found.culprit is not None
    assert found.culprit.module == "model.1"
    same = diff_models(model, copy.deepcopy(model), (torch.randn(7, 6),))
    assert same.verdict is Judgement.AGREE


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([], "none in inputs"),
        ((), "none in inputs"),
        ({}, "none in inputs"),
        ([[1, 2], []], "none in row 1 of inputs"),
    ],
)
def test_empty_inputs_are_no_fault_of_the_candidate(inputs: Any, message: str) -> None:
    with pytest.raises(BadInputError, match=message):
        diff_models(torch.nn.ReLU(), torch.nn.ReLU(), inputs)


def test_arguments_that_do_not_fit_are_refused() -> None:
    model = tiny_llama()
    with pytest.raises(BadInputError, match="two modules need inputs"):
        diff_models(model, copy.deepcopy(model))
    with pytest.raises(BadInputError, match="the reference has to be one too"):
        diff_models("torch", model)
    with pytest.raises(BadInputError, match="inputs are for modules"):
        diff_models("torch", "max", ROWS, options=DiffOptions(run=RunOptions(pipeline="x/y")))
