"""Weights that are lost, loaded elsewhere or edited in a few places."""

import numpy as np
import pytest
import torch

from diagnosis.causes import weights
from diagnosis.causes.trial import RunTrial
from tests.diagnosis.causes.made_region import (
    LENGTHS,
    MadeRegion,
    check_of,
    explained,
    linear_region,
    numbers,
)

N = sum(LENGTHS)


class Model(torch.nn.Module):
    """An embedding, two layers of one shape, and a head that may be tied to the embedding."""

    def __init__(self, *, tied: bool = False) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.embed = torch.nn.Embedding(20, 9)
        self.up = torch.nn.ModuleList(torch.nn.Linear(9, 20) for _ in range(2))
        self.head = torch.nn.Linear(9, 20, bias=False)
        if tied:
            self.head.weight = self.embed.weight

    def get_input_embeddings(self) -> torch.nn.Module:
        return self.embed


def trials_of(module: torch.nn.Module, model: torch.nn.Module, name: str) -> dict[str, RunTrial]:
    region = linear_region(module, lambda y: y + 1, name=name, model=model)
    return {t.says: t for t in weights.trials(region) if isinstance(t, RunTrial)}


def test_other_weights_of_the_same_shape_are_tried() -> None:
    model = Model().double()
    found = trials_of(model.up[0], model, "model.up.0")
    assert {
        "has zeros for weight, as where it was missing",
        "has zeros for bias, as where it was missing",
        "computes with the weight of model.up.1",
        "computes with the weight of model.head",
        "computes with the bias of model.up.1",
        "computes with the weight and bias of model.up.1",
    } <= set(found)
    assert "has ones for weight, as where it was never loaded" not in found
    for says, trial in found.items():  # code may take another module's weight: loading is no proof
        assert trial.needs_other_weight is (False if says.startswith("computes") else None)
    own, other = model.up[0].weight, model.up[1]
    with found["computes with the weight and bias of model.up.1"].change():
        assert torch.equal(model.up[0].weight, other.weight)
        assert torch.equal(model.up[0].bias, other.bias)
    assert model.up[0].weight is own


def test_embedding_and_head_for_each_other_are_a_tie() -> None:
    model = Model().double()
    found = trials_of(model.head, model, "model.head")
    assert found["computes with the weight of model.embed"].cause == "tied_weights"
    assert found["computes with the weight of model.up.0"].cause == "weights"


def test_a_norms_weight_may_be_ones() -> None:
    norm = torch.nn.LayerNorm(9).double()
    exact = numbers(N, 9)
    region = MadeRegion(norm, check_of("model.norm-output", exact, exact * 2), inputs=exact)
    said = {trial.says for trial in weights.trials(region)}
    assert "has ones for weight, as where it was never loaded" in said


def test_stacks_of_experts_are_swapped_and_their_halves_turned() -> None:
    module = torch.nn.Module()
    module.gate_up = torch.nn.Parameter(torch.randn(3, 8, 4).double())
    module.odd = torch.nn.Parameter(torch.randn(3, 5, 4).double())
    exact = numbers(N, 9)
    region = MadeRegion(module, check_of("model.experts-output", exact, exact * 2))
    found = {t.says: t for t in weights.trials(region) if isinstance(t, RunTrial)}
    assert "takes the halves of odd for each other, gate for up" not in found
    before = module.gate_up.detach().clone()
    with found["takes the halves of gate_up for each other, gate for up"].change():
        assert torch.equal(module.gate_up[:, :4], before[:, 4:])
    with found["has experts 0 and 2 of gate_up swapped"].change():
        assert torch.equal(module.gate_up, before[[2, 1, 0]])


def layer(*, bias: bool = True) -> torch.nn.Linear:
    torch.manual_seed(6)
    return torch.nn.Linear(9, 20, bias=bias)


@pytest.mark.parametrize("bias", [True, False])
def test_a_few_rows_times_a_factor(bias: bool) -> None:
    module = layer(bias=bias)

    def scaled(y: np.ndarray) -> np.ndarray:
        shift = module.bias.detach().numpy() if bias else np.zeros(20)
        return np.asarray((y - shift) * np.where(np.arange(20) % 9 == 4, 1.5, 1.0) + shift)

    region = linear_region(module, scaled)
    said = "has rows of the weight times a factor, output channel 4: 1.5, 13: 1.5"
    assert ("weights", said) in explained(region, list(weights.trials(region)))


def test_one_column_of_a_weight() -> None:
    module = layer()
    inputs = numbers(N, 9, seed=8)
    delta = np.zeros(20)
    delta[[3, 7]] = 0.25, -0.5
    region = linear_region(module, lambda y: y + inputs[:, [2]] * delta, inputs=inputs)
    said = (
        "has another weight at input channel 2, in 2 of 20 output channels: +0.25 at output "
        "channel 3"
    )
    assert ("weights", said) in explained(region, list(weights.trials(region)))


@pytest.mark.parametrize("change", [lambda y: y * 1.5, lambda y: np.where(y > 0, np.inf, y)])
def test_what_is_wrong_throughout_is_no_edit(change: object) -> None:
    region = linear_region(layer(), change)
    assert explained(region, list(weights.trials(region))) == []


def table(wrong: list[int], ids: np.ndarray) -> list[tuple[str, str]]:
    torch.manual_seed(7)
    module = torch.nn.Embedding(20, 6).double()
    exact = module(torch.from_numpy(ids)).detach().numpy()
    target = exact + np.isin(ids, wrong)[:, None]
    region = MadeRegion(module, check_of("model.embed-output", exact, target), ids=ids)
    return explained(region, list(weights.trials(region)))


def test_rows_of_a_table() -> None:
    ids = np.array([3, 9, 3, 4, 5, 6, 7, 9, 8, 1, 2])
    assert ("weights", "has another row of the table for 3, 9") in table([3, 9], ids)
    assert table([1, 2, 3, 4], ids) == []  # more than a few
    assert table([], ids) == []


@pytest.mark.parametrize(
    ("target", "tied", "cause", "says"),
    [
        (
            lambda y: numbers(N, 20, seed=9), False, "weights",
            "multiplies by a weight that is unlike the reference's (correlation ",
        ),
        (
            lambda y: y * 1.5, False, "weights",
            "multiplies by another weight (correlation 1.000 of the outputs at the same inputs)",
        ),
        (
            lambda y: numbers(N, 20, seed=9), True, "tied_weights",
            "multiplies by a weight that is unlike the reference's (correlation ",
        ),
        (lambda y: y * 1.5, True, "tied_weights", "multiplies by another weight (correlation 1.00"),
        (lambda y: y * 0 + 3, False, "weights", "multiplies by a weight that is unlike the "),
    ],
)  # fmt: skip
def test_signs_of_another_weight(target: object, tied: bool, cause: str, says: str) -> None:
    model = Model(tied=tied).double()
    region = linear_region(model.head, target, name="model.head", model=model)
    (sign,) = weights.signs(region)
    assert (sign.cause, sign.says[: len(says)]) == (cause, says)
    assert ("input embedding's" in sign.says) == tied


def test_without_a_weight_or_where_some_tokens_are_right_there_is_no_sign() -> None:
    def first_right(y: np.ndarray) -> np.ndarray:
        return np.where(np.arange(len(y))[:, None] < 3, y, y * 2)

    assert list(weights.signs(linear_region(layer(), first_right))) == []
    exact = numbers(N, 9)
    act = MadeRegion(torch.nn.ReLU(), check_of("model.act-output", exact, exact * 2), inputs=exact)
    assert list(weights.signs(act)) == []
