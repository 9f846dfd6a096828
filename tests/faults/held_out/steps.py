"""How held-out faults get into a module: functions that its forward calls, and whole forwards.

Legend: B rows, N heads, K heads of keys, S sequence, T tokens so far, D head size, H hidden.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch

from tests.faults.changes import Change
from tests.faults.own_attention import replace_forward

Tensor = torch.Tensor
Step = Callable[..., Any]


def calling(**functions: Callable[[Step], Step]) -> Change:
    """Let a module's forward call other functions than its source file has.

    Args:
        functions: by name, what makes the new function of the usual one.
    """

    def apply(module: Any) -> None:
        usual = module.forward
        names = vars(sys.modules[type(module).__module__])

        def forward(_: Any, *args: Any, **kwargs: Any) -> Any:
            held = {name: names[name] for name in functions}
            names.update({name: make(held[name]) for name, make in functions.items()})
            try:
                return usual(*args, **kwargs)
            finally:
                names.update(held)

        replace_forward(module, forward)

    return apply


def rotating(change: Step) -> Change:
    """Replace the rotation: `change(usual, q, k, cos, sin)` gives q and k."""

    def make(usual: Step) -> Step:
        return lambda q, k, cos, sin, **_: change(usual, q, k, cos, sin)

    return calling(apply_rotary_pos_emb=make)


def _interleave(x: Tensor, count: int) -> Tensor:
    return x.repeat_interleave(count, dim=1)


def attending(
    *,
    inputs: Step = lambda q, k, v: (q, k, v),
    repeat_k: Step = _interleave,
    repeat_v: Step = _interleave,
    scale: Step = lambda scaling, scores: scaling,
    cap: Step | None = None,
    mask: Step = lambda mask, scores: mask,
    masked: Step = lambda scores, mask: scores + mask,
    softmax: Step = lambda scores: scores.float().softmax(-1),
    output: Step = lambda y: y,
) -> Change:
    """Replace the product of attention by an own one, some steps of which are other ones.

    Args:
        inputs: of q [B, N, S, D], k and v [B, K, T, D].
        repeat_k: of k and the number of queries that share it.
        repeat_v: the same for v.
        scale: of the usual scale and the scores [B, N, S, T].
        cap: of scores, scale and cap, gives what is masked; None for the usual one.
        mask: of the usual mask [B, 1, S, T] and the scores.
        masked: of scores and mask.
        softmax: of the masked scores.
        output: of the heads' outputs [B, S, N, D].
    """

    def make(_: Step) -> Step:
        def attention(
            module: Any,
            query: Tensor,
            key: Tensor,
            value: Tensor,
            attention_mask: Tensor | None,
            scaling: float | None = None,
            softcap: float | None = None,
            **_: Any,
        ) -> tuple[Tensor, Tensor]:
            q, k, v = inputs(query, key, value)
            k = repeat_k(k, q.shape[1] // k.shape[1])
            v = repeat_v(v, q.shape[1] // v.shape[1])
            scores = q @ k.transpose(2, 3)
            by = scale(q.shape[-1] ** -0.5 if scaling is None else scaling, scores)
            if cap is not None:
                scores = cap(scores, by, softcap)
            else:
                scores = scores * by
                scores = scores if softcap is None else softcap * (scores / softcap).tanh()
            if attention_mask is not None:
                scores = masked(scores, mask(attention_mask, scores))
            weights = softmax(scores).to(q.dtype)
            return output((weights @ v).transpose(1, 2).contiguous()), weights

        return attention

    return calling(eager_attention_forward=make)


def in_decode(change: Step) -> Step:
    """Do a change of attention's inputs in the decode steps only."""
    return lambda q, k, v: change(q, k, v) if q.shape[2] == 1 else (q, k, v)


def computing(forward: Callable[..., Any]) -> Change:
    """Replace a forward."""
    return lambda module: replace_forward(module, forward)


def layer_of(compute: Callable[[Any, Tensor, Step], Tensor]) -> Change:
    """Replace a decoder layer: `compute(layer, x, attend)` gives the hidden states."""

    def forward(self: Any, hidden_states: Tensor, *_: Any, **kwargs: Any) -> Tensor:
        def attend(x: Tensor) -> Tensor:
            return self.self_attn(hidden_states=x, **kwargs)[0]

        return compute(self, hidden_states, attend)

    return computing(forward)


def each(*changes: Change) -> Change:
    """Make several changes of one module."""

    def apply(module: Any) -> None:
        for change in changes:
            change(module)

    return apply


def below(path: str, change: Change) -> Change:
    """Change a part of a module, by its path from there."""
    return lambda module: change(module.get_submodule(path))
