"""The print hook for vLLM models: torch modules that are called in vLLM's own way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from test_common.torch_print_hook import TorchPrintHook

if TYPE_CHECKING:
    import torch

RESIDUAL_SUM = "residual_sum"


class VllmPrintHook(TorchPrintHook):
    """Captures a vLLM model, whose tensors are kept as soon as they are seen.

    Fused kernels overwrite tensors in place, so each is copied or written before the module's
    caller goes on. A decoder layer returns what it adds and the residual apart; their sum, which
    is what other engines call the layer's output, is captured as `<layer>-output_residual_sum`.
    Each forward of the whole model is one step: the prefill of all rows, then one token a row.
    """

    passes_layers_by = True  # its lm_head, for one, is never called

    _model: torch.nn.Module | None = None
    _forwards = 0

    def name_layers(self, model: torch.nn.Module, name: str = "model") -> None:
        """Attach the hook to every module that can be called; see `TorchPrintHook`."""
        self._model = model
        super().name_layers(model, name)

    def begin_call_of(self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: Any) -> str:
        """Capture what a module is called with; the whole model's call begins a step."""
        if module is self._model:
            if self._forwards > 0:
                self.step()
            self._forwards += 1
        return super().begin_call_of(module, args, kwargs)

    def capture_outputs(self, layer: object, call_name: str, outputs: Any) -> None:
        """Capture what a call returned, and the sum of a layer's two parts."""
        super().capture_outputs(layer, call_name, outputs)
        if _is_layer_and_residual(layer, outputs):
            total = {RESIDUAL_SUM: outputs[0] + outputs[1]}
            super().capture_outputs(layer, call_name, total)


def _is_layer_and_residual(layer: Any, outputs: Any) -> bool:
    """Tell a decoder layer's pair from that of a norm or rotary embedding, which has no parts."""
    import torch

    return (
        isinstance(outputs, tuple)
        and len(outputs) == 2
        and all(isinstance(part, torch.Tensor) for part in outputs)
        and outputs[0].shape == outputs[1].shape
        and any(True for _ in layer.children())
    )
