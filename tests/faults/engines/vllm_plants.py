"""Plants faults in the code of vLLM, inside its worker: this module runs in vLLM's environment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from test_common.patching import Patch


def rope_pairs_neighbours() -> Patch:
    """Rotate neighbouring channels, where the halves of a head belong together."""
    from vllm.model_executor.layers.rotary_embedding.base import RotaryEmbedding

    def change(usual: Callable[..., Any]) -> Callable[..., Any]:
        def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
            style, self.is_neox_style = self.is_neox_style, not self.is_neox_style
            try:
                return usual(self, *args, **kwargs)
            finally:
                self.is_neox_style = style

        return forward

    return _patch(RotaryEmbedding, "forward_cpu", change)


def gelu_for_silu() -> Patch:
    """Take gelu for the gate of an MLP."""
    from torch.nn import functional
    from vllm.model_executor.layers.activation import SiluAndMul

    def change(usual: Callable[..., Any]) -> Callable[..., Any]:
        del usual

        def forward(x: Any) -> Any:
            gate, up = x.chunk(2, dim=-1)
            return functional.gelu(gate) * up

        return forward

    return _patch(SiluAndMul, "forward_native", change)


def no_keys_of_decoded_tokens() -> Patch:
    """Store zeros for the keys of decoded tokens in the cache of the second layer."""
    from vllm.model_executor.layers.attention.attention import Attention

    def change(usual: Callable[..., Any]) -> Callable[..., Any]:
        def forward(self: Any, query: Any, key: Any, *args: Any, **kwargs: Any) -> Any:
            decodes = key.shape[0] <= _ROWS and ".1." in self.layer_name
            return usual(self, query, key * 0 if decodes else key, *args, **kwargs)

        return forward

    return _patch(Attention, "forward", change)


_ROWS = 2  # a step of so few tokens is no prefill here

PLANTS: Mapping[str, Callable[[], Patch]] = {
    plant.__name__: plant
    for plant in (rope_pairs_neighbours, gelu_for_silu, no_keys_of_decoded_tokens)
}


def _patch(target: Any, name: str, wrapper: Callable[..., Any]) -> Patch:
    return Patch(
        target=target,
        name=name,
        replacement=wrapper,
        missing_api="none, a fault is planted",
        remove_when="the faulty run is over",
        wraps=True,
    )
