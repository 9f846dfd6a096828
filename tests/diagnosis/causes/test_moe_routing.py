"""What is done to a router's scores and choice, and to what experts get, on a router of its own."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from diagnosis.causes import experts, moe_routing
from diagnosis.causes.trial import RunTrial
from tests.diagnosis.causes.made_region import LENGTHS, MadeRegion, check_of, numbers

N = sum(LENGTHS)
LOGITS = torch.from_numpy(numbers(N, 4))
BIAS = torch.tensor([0.5, -0.25, 2.0, 0.0], dtype=torch.float64)


class Router(torch.nn.Module):
    """Chooses two of four experts."""

    def __init__(self, score: Callable[[torch.Tensor], torch.Tensor], *, biased: bool) -> None:
        super().__init__()
        self.top_k, self.num_experts, self.score = 2, 4, score
        self.norm_topk_prob, self.routed_scaling_factor = False, 2.5
        if biased:
            self.register_buffer("e_score_correction_bias", BIAS)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        scores = self.score(x)
        chosen = scores + getattr(self, "e_score_correction_bias", 0.0)
        _, ids = torch.topk(chosen, self.top_k, dim=-1)
        weights = torch.gather(scores, 1, ids)
        if self.norm_topk_prob:
            weights = weights / weights.sum(-1, keepdim=True)
        return ids, weights * self.routed_scaling_factor


class Choosing(torch.nn.Module):
    """Takes the weights that top-k gives."""

    top_k = 2

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        values, ids = torch.topk(torch.softmax(x, dim=-1), k=self.top_k, dim=-1)
        return ids, values


def sigmoid(x: torch.Tensor) -> torch.Tensor:
    return torch.sigmoid(x)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, dim=-1)


def changed(router: torch.nn.Module, says: str, name: str = "model.mlp.gate") -> Any:
    """Give what a router chooses and weighs while a trial's change is in force."""
    exact = LOGITS.numpy()
    region = MadeRegion(router, check_of(f"{name}-output_0", exact, exact + 1), inputs=exact)
    (trial,) = [t for t in moe_routing.trials(region) if t.says == says]
    assert isinstance(trial, RunTrial)
    assert trial.cause == "moe_routing"
    before = router(LOGITS)
    with trial.change():
        found = router(LOGITS)
    assert all(map(torch.equal, before, router(LOGITS)))  # it is undone
    return found


def ranks(scores: torch.Tensor) -> torch.Tensor:
    return scores.argsort(dim=-1, descending=True)


@pytest.mark.parametrize(
    ("says", "ids", "weights"),
    [
        ("scores experts by sigmoid and not by softmax", ranks(LOGITS)[:, :2], LOGITS.sigmoid()),
        ("takes the experts with the lowest scores", ranks(-LOGITS)[:, :2], None),
        ("passes the best expert over", ranks(LOGITS)[:, 1:3], LOGITS.softmax(-1)),
    ],
)
def test_other_choices(says: str, ids: torch.Tensor, weights: torch.Tensor | None) -> None:
    found = changed(Choosing(), says)
    assert torch.equal(found[0], ids)
    if weights is not None:
        torch.testing.assert_close(found[1], weights.gather(1, ids))


def test_other_weights_of_the_same_choice() -> None:
    usual = Choosing()(LOGITS)
    turned = changed(Choosing(), "gives the chosen experts each other's weights")
    torch.testing.assert_close(turned[1], usual[1].flip(-1))
    first = changed(Choosing(), "gives all weight to the first of the chosen experts")
    assert not first[1][:, 1].any()
    alike = changed(Choosing(), "weighs the chosen experts alike")
    assert (alike[1] == 1).all()


@pytest.mark.parametrize(("which", "expert"), [("last", 3), ("first", 0)])
def test_an_expert_that_is_never_chosen(which: str, expert: int) -> None:
    ids, _ = changed(Choosing(), f"never chooses the {which} expert")
    assert not (ids == expert).any()
    assert (Choosing()(LOGITS)[0] == expert).any()


def test_attributes_of_a_router() -> None:
    router = Router(softmax, biased=False)
    usual = router(LOGITS)[1] / 2.5
    normed = changed(router, "norms the weights of the chosen experts")[1]
    torch.testing.assert_close(normed.sum(-1), torch.full((N,), 2.5, dtype=torch.float64))
    plain = changed(router, "leaves the routed scaling factor of 2.5 out")[1]
    torch.testing.assert_close(plain, usual)
    assert changed(router, "gives each token 3 experts where it gets 2")[0].shape == (N, 3)
    router.norm_topk_prob = True
    changed(router, "does not norm the weights of the chosen experts")


def test_a_bias_that_only_helps_to_choose() -> None:
    router = Router(sigmoid, biased=True)
    scores = LOGITS.sigmoid()
    ids, _ = changed(router, "chooses experts without the correction bias")
    assert torch.equal(ids, ranks(scores)[:, :2])
    ids, weights = changed(router, "keeps the correction bias in the weights")
    torch.testing.assert_close(weights / 2.5, (scores + BIAS).gather(1, ids))
    both = "scores experts by softmax and keeps the correction bias in the weights"
    ids, weights = changed(router, both)
    torch.testing.assert_close(weights / 2.5, (LOGITS.softmax(-1) + BIAS).gather(1, ids))
    ids, weights = changed(router, "scores experts by softmax and not by sigmoid")
    torch.testing.assert_close(weights / 2.5, LOGITS.softmax(-1).gather(1, ids))


def test_an_expert_takes_so_many_tokens_of_a_call() -> None:
    router = Router(softmax, biased=False)
    exact = LOGITS.numpy()
    region = MadeRegion(
        router, check_of("model.mlp.gate-output_0", exact, exact + 1), prompts=(N - 1,),
        inputs=exact,
    )  # fmt: skip
    region.checker.wide_calls[0].tokens = N
    trials = {trial.says: trial for trial in experts.trials_of_router(region)}
    ids, usual = router(LOGITS)
    with trials["lets each expert have 2 tokens of a call, and drops the others"].change():
        _, weights = router(LOGITS)
    taken = [0] * 4
    for token in range(N - 1):
        for slot in range(2):
            expert = int(ids[token, slot])
            taken[expert] += 1
            kept = usual[token, slot] if taken[expert] <= 2 else 0.0
            assert weights[token, slot] == kept
    torch.testing.assert_close(weights[N - 1], usual[N - 1])  # a call of its own


def test_only_a_routers_own_output_is_limited() -> None:
    exact = LOGITS.numpy()
    first = check_of("model.mlp.gate-input_0", exact, exact + 1)
    assert list(experts.trials_of_router(MadeRegion(Router(softmax, biased=False), first))) == []

    class Plain(torch.nn.Module):
        top_k = 1

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x

    region = MadeRegion(Plain(), check_of("model.gate-output", exact, exact), inputs=exact)
    trial = next(iter(experts.trials_of_router(region)))
    assert isinstance(trial, RunTrial)
    with trial.change():
        assert region.module(LOGITS) is LOGITS


class Stack(torch.nn.Module):
    """Four experts, [E, out, in], that are multiplied and weighed one by one."""

    def __init__(self) -> None:
        super().__init__()
        self.matrices = torch.nn.Parameter(torch.from_numpy(numbers(4, 3, 5, seed=2)))

    def forward(self, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        each = torch.einsum("nkoi,ni->nko", self.matrices[ids], x)
        return torch.tanh(each).mul(weights[..., None]).sum(1)


X = torch.from_numpy(numbers(N, 5, seed=3))
IDS = torch.stack([torch.arange(N) % 4, (torch.arange(N) + 1) % 4], dim=1)
WEIGHTS = torch.from_numpy(np.abs(numbers(N, 2, seed=4)))


@pytest.mark.parametrize(
    ("says", "ids", "weights"),
    [
        ("takes the next expert for each", (IDS + 1) % 4, WEIGHTS),
        ("counts the experts from the other end", 3 - IDS, WEIGHTS),
        (
            "takes the first of the chosen experts only",
            IDS,
            WEIGHTS * torch.tensor([1.0, 0.0]),
        ),
        ("leaves the last of the chosen experts out", IDS, WEIGHTS * torch.tensor([1.0, 0.0])),
        ("leaves the experts' weights out", IDS, torch.ones_like(WEIGHTS)),
        ("gives the chosen experts each other's weights", IDS, WEIGHTS.flip(-1)),
        ("norms the weights of the chosen experts", IDS, WEIGHTS / WEIGHTS.sum(-1, keepdim=True)),
        (
            "gives nothing for expert 2, as where its weights are missing",
            IDS,
            WEIGHTS.masked_fill(IDS == 2, 0.0),
        ),
        ("leaves the experts of rank 1 of 2 out", IDS, WEIGHTS.masked_fill(IDS >= 2, 0.0)),
    ],
)
@pytest.mark.parametrize("by_keyword", [False, True])
def test_what_experts_get(
    says: str, ids: torch.Tensor, weights: torch.Tensor, by_keyword: bool
) -> None:
    stack = Stack()
    exact = numbers(N, 3)
    region = MadeRegion(stack, check_of("model.experts-output", exact, exact + 1))
    (trial,) = [t for t in experts.trials(region) if t.says == says]
    wanted = stack(X, ids, weights)
    assert isinstance(trial, RunTrial)
    with trial.change():
        found = stack(X, weights=WEIGHTS, ids=IDS) if by_keyword else stack(X, IDS, WEIGHTS)
    torch.testing.assert_close(found, wanted)


def test_weights_on_what_goes_in() -> None:
    stack = Stack()
    exact = numbers(N, 3)
    region = MadeRegion(stack, check_of("model.experts-output", exact, exact + 1))
    (trial,) = [t for t in experts.trials(region) if "goes into the experts" in t.says]
    assert isinstance(trial, RunTrial)
    each = torch.einsum("nkoi,nki->nko", stack.matrices[IDS], X[:, None] * WEIGHTS[..., None])
    with trial.change():
        torch.testing.assert_close(stack(X, IDS, WEIGHTS), torch.tanh(each).sum(1))


class Block(torch.nn.Module):
    """A router beside an expert that sees all tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.shared_expert = Router(softmax, biased=False), torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.shared_expert(x.float())
        return found


def test_a_shared_expert_is_left_out_or_added_twice() -> None:
    block = Block()
    exact = LOGITS.numpy()
    region = MadeRegion(block, check_of("model.mlp-output", exact, exact + 1), inputs=exact)
    usual = block(LOGITS)
    factors = {"leaves {} out": 0.0, "adds {} twice": 2.0, "takes {} off": -1.0}
    for says, factor in factors.items():
        (trial,) = [t for t in moe_routing.trials(region) if t.says == says.format("shared_expert")]
        assert isinstance(trial, RunTrial)
        with trial.change():
            assert torch.equal(block(LOGITS), usual * factor)


@pytest.mark.parametrize("name", ["model.mlp.gate-output_0", "model.mlp.experts-input_1"])
def test_a_wrong_router_is_a_sign(name: str) -> None:
    exact = LOGITS.numpy()
    router = Router(softmax, biased=False)
    (sign,) = moe_routing.signs(MadeRegion(router, check_of(name, exact, exact + 1)))
    assert sign.says == "routes tokens otherwise"
    other = check_of("model.mlp.up-output", exact, exact + 1)
    assert list(moe_routing.signs(MadeRegion(router, other))) == []
    plain = MadeRegion(torch.nn.ReLU(), check_of(name, exact, exact + 1))
    assert list(moe_routing.signs(plain)) == []
    assert list(moe_routing.trials(plain)) == []


def test_one_expert_a_token_is_neither_none_nor_one_again() -> None:
    router = Router(softmax, biased=False)
    router.top_k, router.routed_scaling_factor = 1, 2
    router.register_buffer("table", torch.zeros(3))  # no bias
    exact = LOGITS.numpy()
    region = MadeRegion(router, check_of("model.mlp.gate-output_0", exact, exact + 1), inputs=exact)
    said = [trial.says for trial in moe_routing.trials(region)]
    assert [text for text in said if "experts where it gets" in text] == [
        "gives each token 2 experts where it gets 1"
    ]
    assert not any("scaling factor" in text or "bias" in text for text in said)


def test_scores_of_another_size_keep_their_bias_out() -> None:
    x = LOGITS[:, :3]
    with moe_routing._bias_kept(BIAS):
        found = torch.gather(x, 1, torch.zeros(N, 1, dtype=torch.int64))
    assert torch.equal(found, x[:, :1])
