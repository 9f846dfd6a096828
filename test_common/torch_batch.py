"""Token rows as one padded batch, and the arguments with which a Torch model takes it.

Legend: B batch, S sequence.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Literal

from comparison.schema.errors import BadInputError
from test_common.torch_vision import VisionArguments

if TYPE_CHECKING:
    import numpy as np
    import torch

CACHE_ARGUMENT = "past_key_values"


class ModelCall:
    """Calls a model with those arguments only that its forward names."""

    def __init__(
        self,
        model: torch.nn.Module,
        rows: Sequence[Sequence[int]],
        vision_inputs: Mapping[str, np.ndarray[Any, Any]] | None = None,
    ) -> None:
        """Look at what the model's forward takes.

        Args:
            model: the model.
            rows: the token ids of each row, without padding.
            vision_inputs: further keyword inputs for the whole batch, of its pictures.

        Raises:
            BadInputError: rows of different length for a model that takes no mask, or pictures
                for one that takes none.
        """
        self._model = model
        self._parameters = inspect.signature(model.forward).parameters
        self.padded = len({len(row) for row in rows}) > 1
        if self.padded and not self.accepts("attention_mask"):
            raise BadInputError(
                f"{type(model).__name__}.forward {self._lack}, so rows of different "
                f"length ({', '.join(str(len(row)) for row in rows)}) cannot share a batch: run "
                "them one by one, give prompts of one length, or name the argument in the forward"
            )
        self._vision: VisionArguments | None = None
        if vision_inputs is not None:
            self._vision = VisionArguments(model, vision_inputs, accepts=self.accepts)

    def accepts(self, name: str) -> bool:
        """Tell whether the model's forward names an argument."""
        return name in self._parameters

    @property
    def _lack(self) -> str:
        """Say that the forward names no mask; one with `**kwargs` may still hand it on."""
        if self._hands_on:
            return "names no attention_mask, and may or may not hand one on by its **kwargs"
        return "takes no attention_mask"

    @property
    def _hands_on(self) -> bool:
        kinds = [parameter.kind for parameter in self._parameters.values()]
        return inspect.Parameter.VAR_KEYWORD in kinds

    @property
    def takes_cache(self) -> bool:
        """Tell whether the model keeps a cache of what it has seen when it is asked to."""
        return self.accepts(CACHE_ARGUMENT) and self._takes_use_cache

    @property
    def _takes_use_cache(self) -> bool:
        """Tell whether the model takes `use_cache`: models of pictures hand it to their decoder."""
        from transformers import PreTrainedModel

        handed_on = self._hands_on and isinstance(self._model, PreTrainedModel)
        return self.accepts("use_cache") or handed_on

    def notes(self, *, padding_side: str) -> list[str]:
        """Say what the model cannot be told of padded rows."""
        if padding_side == "left" and self.padded and not self.accepts("position_ids"):
            name = type(self._model).__name__
            return [f"{name}.forward takes no position_ids: it numbers padded rows by itself"]
        return []

    def __call__(
        self,
        ids: torch.Tensor,
        mask: torch.Tensor,
        *,
        cache: Any = None,
        caching: bool = False,
        positions: bool = True,
    ) -> Any:
        """Run the model on ids [B, new tokens], with a mask [B, all tokens so far]."""
        arguments = self.arguments(
            ids, mask, decoding=cache is not None, caching=caching, positions=positions
        )
        if cache is not None:
            arguments[CACHE_ARGUMENT] = cache
        with self._reaching_the_tower(decoding=cache is not None):
            if self.accepts("input_ids"):
                return self._model(**arguments)
            return self._model(arguments.pop("input_ids"), **arguments)

    def _reaching_the_tower(self, *, decoding: bool) -> AbstractContextManager[None]:
        """Watch that pictures, where there are any in this step, reach the model's tower."""
        if self._vision is None or decoding:
            return nullcontext()
        return self._vision.reaching_the_tower()

    def arguments(
        self,
        ids: torch.Tensor,
        mask: torch.Tensor,
        *,
        decoding: bool = False,
        caching: bool = False,
        positions: bool = True,
    ) -> dict[str, Any]:
        """Return the keyword arguments for ids [B, new tokens] and a mask [B, all tokens so far].

        The ids are among them as `input_ids`, also where the forward calls them otherwise.
        """
        arguments: dict[str, Any] = {"input_ids": ids}
        if self.accepts("attention_mask"):
            arguments["attention_mask"] = mask
        if positions and self.accepts("position_ids"):
            all_positions = (mask.cumsum(dim=1) - 1).clamp(min=0)  # [B, S]
            given: torch.Tensor | None = all_positions[:, -ids.shape[1] :]
            if self._vision is not None:
                given = self._vision.positions(given, decoding=decoding)
            arguments["position_ids"] = given
        if self._vision is not None and not decoding:
            arguments |= self._vision.with_prompt(ids)
        if self.accepts("use_cache") or (caching and self._takes_use_cache):
            arguments["use_cache"] = caching
        return arguments


def pad_rows(
    rows: Sequence[Sequence[int]],
    pad_token_id: int,
    *,
    side: Literal["left", "right"],
    device: torch.device,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Build ids and mask of the longest row's length.

    Args:
        rows: the token ids of each row.
        pad_token_id: what fills up short rows.
        side: where the filling goes.
        device: where to put the result.

    Returns:
        Token ids and a mask that is 1 for tokens and 0 for padding, int64 [B, S] each.
    """
    import torch

    length = max(len(row) for row in rows)
    ids = torch.full((len(rows), length), pad_token_id, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for index, row in enumerate(rows):
        place = slice(length - len(row), length) if side == "left" else slice(0, len(row))
        ids[index, place] = torch.tensor(list(row), dtype=torch.long)
        mask[index, place] = 1
    return ids.to(device), mask.to(device)


def check_rows(model: torch.nn.Module, rows: Sequence[Sequence[int]]) -> None:
    """Raise once for all rows that cannot be run.

    Args:
        model: the model; its input embedding says how large the vocabulary is.
        rows: the token ids of each row.

    Raises:
        BadInputError: no rows, an empty row, or ids outside of the vocabulary.
    """
    if not rows:
        raise BadInputError("no rows of token ids were given")
    problems = [f"row {index} is empty" for index, row in enumerate(rows) if not row]
    size = _vocabulary_size(model)
    for index, row in enumerate(rows):
        outside = [token for token in row if token < 0 or (size is not None and token >= size)]
        if outside:
            problems.append(
                f"row {index} has ids outside of the vocabulary of {size}: {outside[:5]}"
            )
    if problems:
        raise BadInputError("; ".join(problems))


def device_of(model: torch.nn.Module) -> torch.device:
    """Return the device of the model's first parameter, the CPU if it has none."""
    import torch

    parameter = next(iter(model.parameters()), None)
    return torch.device("cpu") if parameter is None else parameter.device


def _vocabulary_size(model: torch.nn.Module) -> int | None:
    """Return the number of rows of the input embedding, where the model says it."""
    find: Callable[[], Any] | None = getattr(model, "get_input_embeddings", None)
    if find is None:
        return None
    try:
        embedding = find()
    except NotImplementedError:  # what transformers raises for models without one
        return None
    size = getattr(embedding, "num_embeddings", None)
    return size if isinstance(size, int) else None
