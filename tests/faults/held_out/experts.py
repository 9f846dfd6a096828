"""Held-out faults of experts and of the choice among them."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from tests.faults.held_out.steps import Step, computing
from tests.faults.pair import Plant

Tensor = torch.Tensor


def _plant(kind: str, name: str, archs: str, role: str, change: Any, **more: Any) -> Plant:
    values = {"cause": kind, **more}
    return Plant(
        kind=kind, name=name, archs=tuple(archs.split()), role=role, change=change, **values
    )


def _router(compute: Any) -> Any:
    """Replace qwen3's router: `compute(logits)` gives weights and numbers of experts."""

    def forward(self: Any, x: Tensor) -> Any:
        logits = F.linear(x.reshape(-1, self.hidden_dim), self.weight)
        return (logits, *compute(logits.float()))

    return computing(forward)


def _normed(w: Tensor) -> Tensor:
    return w / w.sum(-1, keepdim=True)


def _by_sigmoid(logits: Tensor) -> Any:
    chosen, numbers = logits.sigmoid().topk(2, -1)
    return _normed(chosen), numbers


def _weights_exchanged(logits: Tensor) -> Any:
    chosen, numbers = logits.softmax(-1).topk(2, -1)
    return _normed(chosen).flip(-1), numbers


def _second_and_third(logits: Tensor) -> Any:
    chosen, numbers = logits.softmax(-1).topk(3, -1)
    return _normed(chosen[:, 1:]), numbers[:, 1:]


def _never_last(logits: Tensor) -> Any:
    chosen, numbers = logits[:, :-1].softmax(-1).topk(2, -1)
    return _normed(chosen), numbers


def _evenly(logits: Tensor) -> Any:
    numbers = logits.topk(2, -1)[1]
    return torch.full(numbers.shape, 0.5), numbers


def _capacity(logits: Tensor) -> Any:
    """Each expert takes 4 tokens and drops the rest."""
    chosen, numbers = logits.softmax(-1).topk(2, -1)
    order = F.one_hot(numbers, logits.shape[-1]).flatten(0, 1).cumsum(0)
    place = order.gather(1, numbers.flatten()[:, None]).view(numbers.shape)
    return _normed(chosen) * (place <= 4), numbers


def _experts(compute: Any) -> Any:
    """Replace experts: `compute(usual, x, numbers, weights)`."""

    def apply(module: Any) -> None:
        usual = module.forward
        computing(lambda _, *args: compute(usual, *args))(module)

    return apply


def _next_expert(usual: Step, x: Tensor, numbers: Tensor, weights: Tensor) -> Tensor:
    return usual(x, (numbers + 1) % 6, weights)


def _weights_on_input(usual: Step, x: Tensor, numbers: Tensor, weights: Tensor) -> Tensor:
    ones = torch.ones_like(weights[:, :1])
    return sum(
        usual(x * weights[:, n, None].to(x.dtype), numbers[:, n : n + 1], ones)
        for n in range(numbers.shape[1])
    )


def _only_best(usual: Step, x: Tensor, numbers: Tensor, weights: Tensor) -> Tensor:
    return usual(x, numbers[:, :1], weights[:, :1])


def _first_expert_lost(module: Any) -> None:
    module.down_proj[2] = 0.0


def _experts_exchanged(module: Any) -> None:
    module.down_proj.copy_(module.down_proj[[1, 0, 2, 3, 4, 5]])


def _gate_and_up_of_experts(module: Any) -> None:
    module.gate_up_proj.copy_(module.gate_up_proj.roll(24, 1))


def _glm(compute: Any) -> Any:
    """Replace a mixture of glm4: `compute(block, x, routed, shared)`."""

    def forward(self: Any, x: Tensor) -> Tensor:
        numbers, weights = self.route_tokens_to_experts(self.gate(x))
        routed = self.experts(x.view(-1, x.shape[-1]), numbers, weights).view(x.shape)
        return compute(routed, self.shared_experts(x))

    return computing(forward)


def _routing(compute: Any) -> Any:
    """Replace how glm4 chooses experts: `compute(scores, bias)` gives numbers and weights."""

    def apply(module: Any) -> None:
        module.route_tokens_to_experts = lambda logits: compute(
            logits, module.gate.e_score_correction_bias
        )

    return apply


def _glm_choice(scores: Tensor, by: Tensor, weights: Tensor) -> Any:
    numbers = by.topk(2, -1)[1]
    return numbers, _normed(weights.gather(1, numbers)) * 1.5


def _bias_in_weights(logits: Tensor, b: Tensor) -> Any:
    return _glm_choice(logits, logits.sigmoid() + b, logits.sigmoid() + b)


def _without_bias(logits: Tensor, b: Tensor) -> Any:
    return _glm_choice(logits, logits.sigmoid(), logits.sigmoid())


def _bias_before_sigmoid(logits: Tensor, b: Tensor) -> Any:
    return _glm_choice(logits, (logits + 3 * b).sigmoid(), logits.sigmoid())


def _by_softmax(logits: Tensor, b: Tensor) -> Any:
    return _glm_choice(logits, logits.softmax(-1) + b, logits.softmax(-1))


PLANTS = (
    _plant("moe_routing", "sigmoid", "qwen3_moe", "router", _router(_by_sigmoid)),
    _plant("moe_routing", "weights_exchanged", "qwen3_moe", "router", _router(_weights_exchanged)),
    _plant("moe_routing", "second_and_third", "qwen3_moe", "router", _router(_second_and_third),
           layer=0),
    _plant("moe_routing", "never_last", "qwen3_moe", "router", _router(_never_last), layer=2),
    _plant("moe_routing", "evenly", "qwen3_moe", "router", _router(_evenly)),
    _plant("moe_routing", "capacity", "qwen3_moe", "router", _router(_capacity)),
    _plant("moe_routing", "next_expert", "qwen3_moe glm4_moe", "experts", _experts(_next_expert)),
    _plant("moe_routing", "weights_on_input", "qwen3_moe glm4_moe", "experts",
           _experts(_weights_on_input)),
    _plant("moe_routing", "only_best", "qwen3_moe", "experts", _experts(_only_best), layer=2),
    _plant("weights", "expert_lost", "glm4_moe", "experts", _first_expert_lost),
    _plant("weights", "experts_exchanged", "qwen3_moe", "experts", _experts_exchanged),
    _plant("weights", "gate_and_up_of_experts", "qwen3_moe", "experts", _gate_and_up_of_experts,
           layer=0),
    _plant("moe_routing", "shared_twice", "glm4_moe", "mlp", _glm(lambda r, s: r + 2 * s)),
    _plant("moe_routing", "shared_missing", "glm4_moe", "mlp", _glm(lambda r, s: r), layer=2),
    _plant("moe_routing", "shared_scaled", "glm4_moe", "mlp", _glm(lambda r, s: r + 1.5 * s)),
    _plant("moe_routing", "factor_missing", "glm4_moe", "mlp", _glm(lambda r, s: r / 1.5 + s)),
    _plant("moe_routing", "bias_in_weights", "glm4_moe", "mlp", _routing(_bias_in_weights),
           also_lean=("experts",)),
    _plant("moe_routing", "without_bias", "glm4_moe", "mlp", _routing(_without_bias),
           also_lean=("experts",), layer=2),
    _plant("moe_routing", "bias_before_sigmoid", "glm4_moe", "mlp", _routing(_bias_before_sigmoid),
           also_lean=("experts",)),
    _plant("moe_routing", "by_softmax", "glm4_moe", "mlp", _routing(_by_softmax),
           also_lean=("experts",)),
)  # fmt: skip
