"""What a Torch model takes besides token ids when there are pictures.

Legend: B batch, S sequence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from comparison.schema.errors import BadInputError
from test_common.image_families import image_token_id

if TYPE_CHECKING:
    import numpy as np
    import torch

# Arguments that tell text (0) from pictures (1), by family.
_TOKEN_TYPES = ("token_type_ids", "mm_token_type_ids")


class VisionArguments:
    """The arguments of a call that sees the pictures, and positions in a model that counts them.

    Pictures are given with the whole prompt; a decode step finds them in the cache.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        inputs: Mapping[str, np.ndarray[Any, Any]],
        *,
        accepts: Callable[[str], bool],
    ) -> None:
        """Move the pictures to the model.

        Args:
            model: the model.
            inputs: keyword inputs for the whole batch, as the image processor made them.
            accepts: tells whether the model's forward names an argument.

        Raises:
            BadInputError: the model's forward does not name one of them.
        """
        unknown = [name for name in inputs if not accepts(name)]
        if unknown:
            raise BadInputError(
                f"{type(model).__name__}.forward takes no {', '.join(unknown)}: let the oracle's "
                "auto_model_cls be AutoModelForImageTextToText"
            )
        self._tensors = _on_model(model, inputs)
        self._token_id = image_token_id(model.config)
        self._token_types = [name for name in _TOKEN_TYPES if accepts(name)]
        # A model of positions in a picture numbers the prompt itself, and keeps the shift.
        self._numbering = next(
            (module for module in model.modules() if hasattr(module, "get_rope_index")), None
        )

    def with_prompt(self, ids: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return the arguments that go with the whole sequence, ids [B, S]."""
        types = (ids == self._token_id).long()  # [B, S]
        return {**self._tensors, **dict.fromkeys(self._token_types, types)}

    def positions(self, positions: torch.Tensor, *, decoding: bool) -> torch.Tensor | None:
        """Return the positions to give, None where the model numbers the tokens itself.

        Args:
            positions: those of text, [B, new tokens].
            decoding: whether the prompt is in the cache.

        Returns:
            Positions [B, new tokens], or [3, B, new tokens] in a decode step of a model that
            counts time, height and width.
        """
        if self._numbering is None:
            return positions
        if not decoding:
            return None
        shift: Any = self._numbering.rope_deltas  # [B, 1], set by the prefill
        return (positions + shift.to(positions.device)).expand(3, -1, -1)


def _on_model(
    model: torch.nn.Module, inputs: Mapping[str, np.ndarray[Any, Any]]
) -> dict[str, torch.Tensor]:
    """Copy arrays to the model's device, floating ones in its dtype."""
    import torch

    parameter = next(model.parameters())
    tensors = {name: torch.tensor(value) for name, value in inputs.items()}
    return {
        name: tensor.to(parameter.device, parameter.dtype if tensor.is_floating_point() else None)
        for name, tensor in tensors.items()
    }
