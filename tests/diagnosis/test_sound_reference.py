"""No agreement where nothing could be judged, and modules are left as they were."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch

from comparison.schema.diagnosis import Diagnosis, Judgement
from comparison.schema.errors import BadInputError
from diagnosis.diff_models import diff_models


class Base(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = torch.nn.Linear(8, 12), torch.nn.Linear(12, 8)
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count += 1
        return self.b(torch.relu(self.a(x)))


class Cut(Base):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x)[..., :5]


class Noisy(Base):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(self.a(x) + 0.1 * torch.randn(x.shape[0], x.shape[1], 12))


def inputs(*shape: int) -> tuple[torch.Tensor]:
    return (torch.randn(*shape, generator=torch.Generator().manual_seed(2)),)


def diagnosed(
    reference: torch.nn.Module, plant: Callable[[Any], object], shape: tuple[int, ...] = (2, 9, 8)
) -> Diagnosis:
    candidate = copy.deepcopy(reference)
    with torch.no_grad():
        plant(candidate)
    return diff_models(reference, candidate, inputs(*shape))


def with_value(value: float) -> Base:
    model = Base()
    with torch.no_grad():
        model.b.bias[3] = value
    return model


def test_output_of_another_shape_is_no_agreement() -> None:
    reference = Base()
    candidate = Cut()
    candidate.load_state_dict(reference.state_dict())
    found = diff_models(reference, candidate, inputs(2, 9, 8))
    assert found.verdict is Judgement.INCONCLUSIVE
    assert "another shape than the reference's" in found.sentence


def test_reference_that_is_no_number_is_no_agreement() -> None:
    found = diagnosed(with_value(float("nan")), lambda m: m.b.bias[3].zero_())
    assert found.verdict is Judgement.INCONCLUSIVE
    assert "no numbers, first at model.b-output" in found.sentence


def test_infinities_have_to_have_the_same_sign() -> None:
    reference = with_value(float("inf"))
    assert diagnosed(reference, lambda m: None).verdict is Judgement.AGREE
    found = diagnosed(reference, lambda m: m.b.bias.mul_(torch.where(m.b.bias.isinf(), -1.0, 1.0)))
    assert found.verdict is Judgement.DIVERGE
    assert found.culprit is not None
    assert found.culprit.module == "model.b"


def test_no_number_in_the_candidate_is_no_bias() -> None:
    found = diagnosed(Base(), lambda m: m.b.bias[3].fill_(float("nan")))
    assert found.cause is not None
    assert found.verdict is Judgement.DIVERGE
    assert found.cause.id in ("overflow", "weights")
    assert "nan of the tensor's size" not in found.sentence


def test_no_number_that_only_the_candidate_makes_is_not_the_references_own() -> None:
    found = diagnosed(Base(), lambda m: m.a.bias[3].fill_(float("nan")))
    told = [text for text in found.missing if "no numbers" in text]
    assert told == [
        "on the candidate's values that are no numbers the reference gives none either, first at "
        "model.b-output"
    ]


def test_reference_that_does_not_repeat_is_no_agreement() -> None:
    found = diagnosed(Noisy(), lambda m: None)
    assert found.verdict is Judgement.INCONCLUSIVE
    assert "when it is run again" in found.sentence


def test_empty_tensors_are_no_difference() -> None:
    assert diagnosed(Base(), lambda m: None, (0, 9, 8)).verdict is Judgement.INCONCLUSIVE


def test_modules_are_left_as_they_were() -> None:
    reference, candidate = Base().train(), Base().train()
    candidate.a.eval()
    torch.manual_seed(4)
    before = torch.get_rng_state()
    diff_models(reference, candidate, inputs(2, 9, 8))
    assert all(module.training for module in reference.modules())
    assert candidate.training
    assert not candidate.a.training
    assert (float(reference.count), float(candidate.count)) == (0.0, 0.0)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("rows", [[["a", "b"]], [[1.7, 2.2]], "text"])
def test_rows_that_are_no_token_ids_are_refused(rows: Any) -> None:
    with pytest.raises(BadInputError, match="expected rows of token ids"):
        diff_models(Base(), Base(), rows)
