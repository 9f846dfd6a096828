"""What a Torch model takes besides token ids when there are pictures.

Legend: B batch, S sequence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from comparison.schema.errors import BadInputError, EngineError
from test_common.image_families import image_token_id

if TYPE_CHECKING:
    import numpy as np
    import torch

_TOWERS = ("vision", "visual", "image")  # parts of the names of what sees pictures
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
        self._token_types = [name for name in _TOKEN_TYPES if accepts(name)]
        config = getattr(model, "config", None)
        self._token_id = image_token_id(config) if self._token_types else None
        self._tower = [
            (name, module)
            for name, module in model.named_modules()
            if any(word in name.lower() for word in _TOWERS)
        ]
        # A model of positions in a picture numbers the prompt itself, and keeps the shift.
        self._numbering = next(
            (module for module in model.modules() if hasattr(module, "get_rope_index")), None
        )

    def with_prompt(self, ids: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return the arguments that go with the whole sequence, ids [B, S]."""
        if self._token_id is None:
            return dict(self._tensors)
        types = (ids == self._token_id).long()  # [B, S]
        return {**self._tensors, **dict.fromkeys(self._token_types, types)}

    @contextmanager
    def reaching_the_tower(self) -> Iterator[None]:
        """Look at whether the model's tower runs; where none is known by its name, nothing is said.

        Raises:
            EngineError: it does not.
        """
        ran: list[str] = []
        hooks = [
            module.register_forward_pre_hook(lambda *_, name=name: ran.append(name))
            for name, module in self._tower
        ]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()
        if self._tower and not ran:
            raise EngineError(
                f"no picture reaches the model: {', '.join(self._tensors)} were given, and "
                f"{self._tower[0][0]} did not run; let the oracle's prepare give what the model's "
                "forward hands to it"
            )

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
