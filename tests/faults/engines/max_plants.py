"""Plants faults in the code of MAX: operations, layers, and what a model is built with.

Each function returns a planting: a function that makes a context, in which MAX builds the faulty
model. MAX is imported when the context is made.
"""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from test_common.patching import Patch, apply_patches
from tests.faults.engines.case import Planting

Wrapper = Callable[[Callable[..., Any]], Callable[..., Any]]
Caller = Callable[..., Any]

_ATTENTION = "max.nn.attention.attention_with_rope"


def operation(module: str, name: str, wrapper: Wrapper) -> Planting:
    """Replace what a module of MAX calls by a name.

    Args:
        module: path of the module, or of a class in it.
        name: an attribute of it.
        wrapper: from the original to its replacement.
    """

    def plant() -> AbstractContextManager[object]:
        return apply_patches([_patch(_found(module), name, wrapper, wraps=True)])

    return plant


def layer(path: str, change: Callable[[Caller], Caller]) -> Planting:
    """Replace the computation of a class of layers, so that its hooks see the faulty one.

    Args:
        path: path of the class.
        change: from the original `__call__`, without hooks, to its replacement.
    """

    def plant() -> AbstractContextManager[object]:
        cls = _found(path)
        faulty = change(cls.__call__.__wrapped__)
        # MAX adds its hooks to the call of a class where the class is made.
        hooked = type(cls)("Faulty", (cls,), {"__call__": faulty}).__call__
        return apply_patches([_patch(cls, "__call__", hooked)])

    return plant


def of_nth(number: int, *, of: int, change: Wrapper) -> Wrapper:
    """Change one call in every round.

    Args:
        number: which, from 0 on.
        of: how many calls a round has: those of one tracing of a graph.
        change: from the original to its replacement.
    """

    def wrapper(usual: Caller) -> Caller:
        changed, calls = change(usual), itertools.count()
        return lambda *args, **kwargs: (changed if next(calls) % of == number else usual)(
            *args, **kwargs
        )

    return wrapper


def with_arguments(**changes: Callable[[Any], Any]) -> Wrapper:
    """Change keyword arguments of a call, each by a function of its value."""

    def wrapper(usual: Caller) -> Caller:
        def call(*args: Any, **kwargs: Any) -> Any:
            changed = {name: change(kwargs[name]) for name, change in changes.items()}
            return usual(*args, **{**kwargs, **changed})

        return call

    return wrapper


def attention_scale(factor: float) -> Planting:
    """Scale the scores of the second of two layers by another factor."""
    change = with_arguments(scale=lambda scale: scale * factor)
    return operation(_ATTENTION, "flash_attention_ragged", of_nth(1, of=2, change=change))


def attention_mask(module: str, variant: str) -> Planting:
    """Give the attention kernel another mask wherever it is not that one already."""

    def masked(usual: Caller) -> Caller:
        def call(*args: Any, **kwargs: Any) -> Any:
            from max.nn.attention import MHAMaskVariant

            return usual(*args, **{**kwargs, "mask_variant": MHAMaskVariant[variant]})

        return call

    return operation(module, "flash_attention_ragged", masked)


def heads_in_turn(heads: int, kv_heads: int) -> Planting:
    """Let query head n read the keys of head n modulo their number, not those of its group."""
    # The kernel gives consecutive heads one head of keys, so they change places around it.
    slots = [head for kv in range(kv_heads) for head in range(kv, heads, kv_heads)]
    back = [slots.index(head) for head in range(heads)]

    def reordered(usual: Caller) -> Caller:
        def call(*args: Any, input: Any, **kwargs: Any) -> Any:
            return _heads(usual(*args, input=_heads(input, slots), **kwargs), back)

        return call

    return operation(_ATTENTION, "flash_attention_ragged", reordered)


def no_bias_on_keys() -> Planting:
    """Leave the bias of the second of three stacked projections out."""

    def without(usual: property) -> property:
        def bias(self: Any) -> Any:
            from max.graph import ops

            parts = [self._child(name).bias for name in self._names]
            parts[1] = parts[1] * 0
            return ops.concat(parts)

        return property(bias)

    def plant() -> AbstractContextManager[object]:
        cls = _found("max.nn.stacked_linear.StackedLinear")
        return apply_patches([_patch(cls, "stacked_bias", without(cls.stacked_bias))])

    return plant


def gelu_by_tanh() -> Planting:
    """Take the tanh form of gelu where BERT has the exact one."""

    def chosen(usual: Caller) -> Caller:
        return lambda name: usual("gelu_tanh" if name == "gelu" else name)

    path = "max.pipelines.architectures.bert.graph"
    return operation(path, "activation_function_from_name", chosen)


def padding_seen() -> Planting:
    """Let BERT's attention look at the padding of shorter rows."""

    def change(usual: Caller) -> Caller:
        def call(self: Any, hidden_states: Any, attention_mask: Any) -> Any:
            return usual(self, hidden_states, attention_mask * 0)

        return call

    return layer("max.pipelines.architectures.bert.graph.BertSelfAttention", change)


def norm_without_offset(width: int) -> Planting:
    """Leave the one that Gemma adds to the weights out of the norms of one width."""

    def change(usual: Caller) -> Caller:
        def call(x: Any, weight: Any, *args: Any, weight_offset: float, **kwargs: Any) -> Any:
            offset = 0.0 if int(weight.shape[0]) == width else weight_offset
            return usual(x, weight, *args, weight_offset=offset, **kwargs)

        return call

    return operation("max.graph.ops", "rms_norm", change)


def norm_without_mean() -> Planting:
    """Let OLMo's norm divide by the root mean square, and not subtract the mean."""

    def change(usual: Caller) -> Caller:
        def call(self: Any, input: Any) -> Any:
            from max.graph import ops

            weight = ops.constant(self.gamma, self.dtype, self.device)
            return ops.rms_norm(input, weight, self.eps)

        return call

    return layer("max.nn.norm.layer_norm.ConstantLayerNorm", change)


def halves_swapped() -> Planting:
    """Let Phi-3 take the second half of its stacked projection for the gate."""

    def change(usual: Caller) -> Caller:
        def call(self: Any, x: Any) -> Any:
            from max.graph import ops

            states = self.gate_up_proj(x)
            half = states.shape.static_dims[0] // 2
            return self.down_proj(states[:, :half] * ops.silu(states[:, half:]))

        return call

    return layer("max.pipelines.architectures.llama3.llama3.StackedMLP", change)


def attention_left_out_of_residual() -> Planting:
    """Let the second of two blocks add its MLP to what came in, not to that plus attention."""

    def change(usual: Caller) -> Caller:
        calls = itertools.count()

        def call(
            self: Any, layer_idx: Any, x: Any, kv_collection: Any, freqs_cis: Any,
            input_row_offsets: Any,
        ) -> Any:  # fmt: skip
            rest = {"freqs_cis": freqs_cis, "input_row_offsets": input_row_offsets}
            if next(calls) % 2 == 0:
                return usual(self, layer_idx, x, kv_collection, **rest)
            attended = self.self_attn(layer_idx, self.input_layernorm(x), kv_collection, **rest)
            summed = x + attended * self.residual_multiplier
            mlp = self.mlp(self.post_attention_layernorm(summed))
            return x + mlp * self.residual_multiplier

        return call

    return layer("max.nn.transformer.transformer.TransformerBlock", change)


def rope_theta(theta: float) -> Planting:
    """Build Llama's rotary table of another base."""
    change = with_arguments(rope_theta=lambda _: theta)
    path = "max.pipelines.architectures.llama3.llama3"
    return operation(path, "create_rope_embedding", change)


def upstream_print_hook() -> Planting:
    """Let MAX's own print hook name the layers of a ModuleV3 before it is compiled."""

    def plant() -> AbstractContextManager[object]:
        return _hook_in_place()

    return plant


@contextmanager
def _hook_in_place() -> Iterator[None]:
    from max.experimental.nn import Module
    from max.nn.hooks import PrintHook

    hook = PrintHook()

    def change(usual: Caller) -> Caller:
        def compile_named(self: Any, *args: Any, **kwargs: Any) -> Any:
            hook.name_layers(self)
            return usual(self, *args, **kwargs)

        return compile_named

    try:
        with apply_patches([_patch(Module, "compile", change, wraps=True)]):
            yield
    finally:
        hook.remove()


def _patch(target: Any, name: str, replacement: Any, *, wraps: bool = False) -> Patch:
    return Patch(
        target=target,
        name=name,
        replacement=replacement,
        missing_api="none, a fault is planted",
        remove_when="the faulty run is over",
        wraps=wraps,
    )


def _found(path: str) -> Any:
    """Return a module, or what one holds."""
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError:
        module, _, name = path.rpartition(".")
        return getattr(importlib.import_module(module), name)


def _heads(x: Any, order: list[int]) -> Any:
    """Reorder the heads of a tensor [tokens, heads, head size]."""
    from max.graph import ops

    return ops.concat([x[:, head : head + 1, :] for head in order], axis=1)
