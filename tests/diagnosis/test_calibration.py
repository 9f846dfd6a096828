"""How far an engine's own jitter raises limits, and that it hides no fault."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch

from comparison.schema.diagnosis import Judgement
from diagnosis.diff_models import DiffOptions, diff_models
from tests.test_common.tiny_models import ROWS, tiny_llama

NORM = "model.model.layers.1.mlp.down_proj-output"


def diff(candidate: Any, reference: Any, *, calibrate: bool = True) -> Any:
    return diff_models(
        reference, candidate, ROWS, options=DiffOptions(calibrate=calibrate, drill="off")
    )


def noisy(size: float) -> Any:
    """Make a copy whose down projection differs by noise from call to call."""
    model = tiny_llama()
    generator = torch.Generator().manual_seed(3)

    def add_noise(module: Any, args: Any, output: torch.Tensor) -> torch.Tensor:
        del module, args
        noise = torch.randn(output.shape, generator=generator)
        return output + noise * output.pow(2).mean().sqrt() * size

    model.model.layers[1].mlp.down_proj.register_forward_hook(add_noise)
    return model


def test_a_deterministic_candidate_has_no_jitter() -> None:
    model = tiny_llama()
    options = DiffOptions(calibrate=True)
    found = diff_models(model, copy.deepcopy(model), ROWS[:1], options=options)
    assert found.calibration is not None
    assert (found.calibration.runs, found.calibration.greatest) == (("once more",), None)


def test_rows_alone_and_in_another_order_round_otherwise_within_the_limits() -> None:
    model = tiny_llama()
    found = diff(copy.deepcopy(model), model)
    assert found.verdict is Judgement.AGREE
    assert found.calibration.runs == (
        "once more",
        "in another order",
        "with row 0 alone",
        "with row 1 alone",
    )
    assert found.calibration.tensors == 100
    assert found.calibration.raised == found.calibration.beyond == ()
    greatest = found.calibration.greatest
    assert greatest is None or greatest.worst < 5


def test_without_calibration_nothing_is_said_of_it() -> None:
    model = tiny_llama()
    assert diff(copy.deepcopy(model), model, calibrate=False).calibration is None


def test_jitter_beyond_the_limit_is_blamed_without_calibration_and_allowed_with_it() -> None:
    model, candidate = tiny_llama(), noisy(1.2e-6)
    blamed = diff(candidate, model, calibrate=False)
    assert blamed.culprit.module == "model.model.layers.1.mlp.down_proj"
    found = diff(candidate, model)
    assert found.verdict is Judgement.AGREE
    assert NORM in [item.tensor for item in found.calibration.raised]
    (item,) = [item for item in found.calibration.raised if item.tensor == NORM]
    assert item.limit == 8 < item.raised <= 4 * item.limit


@pytest.mark.full
def test_a_fault_is_seen_beside_the_jitter_of_another_tensor() -> None:
    model, candidate = tiny_llama(), noisy(1.2e-6)
    candidate.model.layers[2].self_attn.scaling *= 1.001
    found = diff(candidate, model)
    assert [guilty.module for guilty in found.guilty] == ["model.model.layers.2.self_attn"]


def test_a_fault_is_seen_in_the_very_tensor_that_jitters() -> None:
    model, candidate = tiny_llama(), noisy(1.2e-6)
    candidate.model.layers[1].mlp.down_proj.weight.data[3] *= 1.01
    found = diff(candidate, model)
    assert found.culprit.module == "model.model.layers.1.mlp.down_proj"


def _scale_in_batches(model: Any) -> None:
    """Scale the attention only where several rows are in the batch."""
    attention = model.model.layers[1].self_attn
    run = attention.forward

    def forward(hidden_states: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        output = run(hidden_states, *args, **kwargs)
        return (output[0] * (1.01 if hidden_states.shape[0] > 1 else 1.0), *output[1:])

    attention.forward = forward


def _come_and_go(model: Any) -> None:
    """Scale the attention in every run but the second; a call without hooks follows each."""
    attention = model.model.layers[1].self_attn
    run, calls = attention.forward, [0]

    def forward(hidden_states: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        calls[0] += 1
        output = run(hidden_states, *args, **kwargs)
        return (output[0] * (1.0 if 4 < calls[0] <= 7 else 1.01), *output[1:])

    attention.forward = forward


@pytest.mark.parametrize("plant", [_scale_in_batches, _come_and_go])
def test_what_differs_by_more_than_rounding_between_runs_is_no_jitter(
    plant: Callable[[Any], None],
) -> None:
    model = tiny_llama()
    candidate = copy.deepcopy(model)
    plant(candidate)
    found = diff(candidate, model)
    assert found.culprit.module == "model.model.layers.1.self_attn"
    beyond = [item.tensor for item in found.calibration.beyond]
    assert "model.model.layers.1.self_attn-output_0" in beyond
    assert "; but its own runs differ there by " in found.sentence
    assert found.calibration.raised == ()


def test_tensors_that_are_no_token_ids_are_run_once_more() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(12, 20), torch.nn.GELU(), torch.nn.Linear(20, 5))
    options = DiffOptions(calibrate=True)
    found = diff_models(model, copy.deepcopy(model), (torch.randn(3, 12),), options=options)
    assert found.verdict is Judgement.AGREE
    assert found.calibration is not None
    assert (found.calibration.runs, found.calibration.greatest) == (("once more",), None)
