"""The rows on which the reference is replayed, each as one call without padding and cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from comparison.numerics.dtypes import Array
from comparison.schema.errors import BadInputError
from comparison.schema.manifest import Manifest, Row
from diagnosis.given_inputs import pictures_by_row
from diagnosis.replay.copies import copied

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceCall:
    """One call of the reference model.

    Attributes:
        args: positional arguments.
        kwargs: keyword arguments.
        tokens: number of tokens, prompt and those fed in decode steps; None where the inputs
            are no token ids.
        prompt_tokens: number of tokens of the prompt.
    """

    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any]
    tokens: int | None = None
    prompt_tokens: int = 0

    def run(self, model: torch.nn.Module) -> Any:
        """Call the model; inputs are copied, since models change them in place."""
        import torch

        args, kwargs = copied((self.args, dict(self.kwargs)))
        with torch.no_grad():
            return model(*args, **kwargs)


def calls_of_manifest(
    manifest: Manifest,
    model: torch.nn.Module,
    *,
    encoder: bool,
    pictures: Mapping[str, Array] | None = None,
) -> tuple[ReferenceCall, ...]:
    """Make one call a row: the prompt and what the candidate generated, all at once.

    Args:
        manifest: the candidate's.
        model: the reference; only arguments that it takes are given.
        encoder: whether the model embeds its rows and generates nothing.
        pictures: what goes with the prompts' pictures, by keyword, for the whole batch.

    Raises:
        BadInputError: several rows share pictures that cannot be told apart.
    """
    by_row = pictures_by_row(pictures or {}, len(manifest.rows))
    return tuple(
        _call(row, model, encoder=encoder, pictures=own)
        for row, own in zip(manifest.rows, by_row, strict=True)
    )


def _fed(generated: Sequence[int]) -> Sequence[int]:
    """Leave out the last token, which no step was fed with."""
    return generated[:-1]


def _call(
    row: Row, model: torch.nn.Module, *, encoder: bool, pictures: Mapping[str, Array]
) -> ReferenceCall:
    import torch

    from test_common.torch_batch import ModelCall, device_of

    ids = [*row.token_ids, *_fed(row.generated)]
    _require_known(ids, model)
    tensor = torch.tensor([ids], dtype=torch.long, device=device_of(model))  # [1, T]
    kwargs = ModelCall(model, [ids], dict(pictures) or None).arguments(
        tensor, torch.ones_like(tensor), positions=not encoder
    )
    return ReferenceCall(kwargs=kwargs, tokens=len(ids), prompt_tokens=len(row.token_ids))


def _require_known(ids: Sequence[int], model: torch.nn.Module) -> None:
    """Refuse rows that the reference cannot be given.

    Raises:
        BadInputError: a row has no token, or one that the embedding has no row for.
    """
    get = getattr(model, "get_input_embeddings", None)
    embedding = None if get is None else get()
    size = getattr(embedding, "num_embeddings", None)
    if not ids:
        raise BadInputError("a row of the candidate's manifest has no token")
    wrong = [token for token in ids if token < 0 or (size is not None and token >= size)]
    if wrong:
        raise BadInputError(
            f"token {wrong[0]} of the candidate's manifest is none of the reference's: it has "
            f"{'ids from 0 on' if size is None else f'0 to {size - 1}'}"
        )
