"""What each forward of a vLLM model was fed and gave."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from comparison.schema.errors import EngineError

if TYPE_CHECKING:
    import numpy as np
    import torch


class StepRecorder:
    """Records the steps of a model until it is removed.

    Attributes:
        token_ids: the flat batch of token ids a step.
        logits: raw logits a step, float32 [B, V]; they are no output of the model, and embedding
            models have none.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        """Attach to a model.

        Args:
            model: one of vLLM's.
        """
        self.token_ids: list[list[int]] = []
        self.logits: list[np.ndarray[Any, Any]] = []
        self._handles = [model.register_forward_pre_hook(self._keep_tokens, with_kwargs=True)]
        processor = getattr(model, "logits_processor", None)
        if processor is not None:
            self._handles.append(processor.register_forward_hook(self._keep_logits))

    def remove(self) -> None:
        """Detach from the model."""
        for handle in self._handles:
            handle.remove()

    def _keep_tokens(self, module: Any, args: Any, kwargs: Any) -> None:
        del module
        ids = kwargs.get("input_ids", args[0] if args else None)
        self.token_ids.append([] if ids is None else [int(token) for token in ids.tolist()])

    def _keep_logits(self, module: Any, args: Any, logits: Any) -> None:
        del module, args
        if logits is not None:
            self.logits.append(logits.detach().float().cpu().numpy().copy())


def check_row_order(fed: Sequence[Sequence[int]], rows: Sequence[Sequence[int]]) -> None:
    """Make sure that the flat batch holds the rows one after the other, in their order.

    Args:
        fed: token ids that the model was fed, one flat list a step.
        rows: token ids of each row.

    Raises:
        EngineError: the prefill was split, or its rows were reordered.
    """
    flat = [token for row in rows for token in row]
    if not fed or list(fed[0]) != flat:
        raise EngineError(
            f"vLLM was to prefill {len(rows)} row(s) of {len(flat)} tokens in one step, in their "
            f"order; it ran {[len(step) for step in fed[:3]]} tokens a step"
        )
