"""A reference that looks ahead is told from a candidate that is wrong."""

import copy
from typing import Any

import pytest
import torch

from comparison.schema.diagnosis import Judgement
from comparison.schema.outcome import Side
from diagnosis.diff_models import diff_models
from diagnosis.replay.causality import look_ahead
from diagnosis.replay.reference_calls import ReferenceCall
from tests.test_common.tiny_models import ROWS, tiny_bert, tiny_gemma3, tiny_llama

ATTENTION = "model.model.layers.1.self_attn"


def looking_ahead(model: Any) -> Any:
    """Let the attention of layer 1 see all tokens."""
    attention = model.model.layers[1].self_attn
    usual = type(attention)

    class SeesAll(usual):  # type: ignore[misc, valid-type]  # its class is what a model has
        def forward(self, hidden_states: torch.Tensor, **kwargs: Any) -> Any:
            kwargs["attention_mask"] = torch.zeros(1, 1, *2 * hidden_states.shape[1:2])
            return super().forward(hidden_states, **kwargs)

    attention.__class__ = SeesAll
    return model


def call_of(rows: list[int]) -> ReferenceCall:
    ids = torch.tensor([rows])
    return ReferenceCall(kwargs={"input_ids": ids}, tokens=len(rows), prompt_tokens=len(rows))


@pytest.mark.parametrize("make", [tiny_llama, tiny_gemma3])
def test_the_place_is_named(make: Any) -> None:
    found = look_ahead(looking_ahead(make()), call_of([5, 9, 2, 33, 60, 7]))
    assert found is not None
    assert found.module == ATTENTION
    assert found.rows == (5, 5)
    assert found.moved > 1e-2


@pytest.mark.parametrize("make", [tiny_llama, tiny_gemma3, tiny_bert])
def test_nothing_is_said_of_what_is_causal_or_need_not_be(make: Any) -> None:
    assert look_ahead(make(), call_of([5, 9, 2, 33, 60, 7])) is None


def test_the_reference_is_blamed() -> None:
    model = tiny_llama()
    found = diff_models(looking_ahead(copy.deepcopy(model)), model, ROWS)
    assert found.verdict is Judgement.DIVERGE
    assert found.culprit is not None
    assert (found.culprit.side, found.culprit.module) == (Side.REFERENCE, ATTENTION)
    assert found.cause is not None
    assert found.cause.id == "reference_not_causal"
    assert "but the reference, torch: it looks ahead" in found.sentence


def test_two_that_look_ahead_agree_with_a_note() -> None:
    model, other = looking_ahead(tiny_llama()), looking_ahead(tiny_llama())
    found = diff_models(model, other, [[5, 9, 2, 33, 60, 7], [8, 44, 1, 30, 6, 2]], num_steps=1)
    assert found.verdict is Judgement.AGREE
    assert any("the reference looks ahead" in note for note in found.notes)


def test_another_fault_stays_the_candidates() -> None:
    model = looking_ahead(tiny_llama())
    other = looking_ahead(tiny_llama())
    other.model.layers[0].self_attn.scaling *= 2
    found = diff_models(model, other, ROWS)
    assert found.culprit is not None
    assert found.culprit.side is Side.CANDIDATE
    assert found.culprit.module == "model.model.layers.0.self_attn"
