"""Runs a Torch model on a batch of token rows, with a print hook told of each step.

Legend: B batch, S sequence, H hidden, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from comparison.schema.errors import BadInputError, EngineError
from comparison.schema.manifest import Padding
from test_common.error_text import shown
from test_common.print_hook import BasePrintHook
from test_common.torch_batch import CACHE_ARGUMENT, ModelCall, check_rows, device_of, pad_rows

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import torch

Pooling = Literal["mean", "cls", "last"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchRun:
    """What greedy decoding gave.

    Attributes:
        generated: for each row the tokens it chose, one a step.
        logits: for each step the raw logits after each row's last token, float32 [B, V].
        padding: how the rows shared the batch.
        notes: what a reader of the dump must know of how the model was called.
    """

    generated: tuple[tuple[int, ...], ...]
    logits: tuple[npt.NDArray[np.float32], ...]
    padding: Padding
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchEncoderRun:
    """What an embedding model gave.

    Attributes:
        hidden: the last hidden state, float32 [B, S, H], padding included.
        embeddings: one vector a row, float32 [B, H]; without pooling one a token, [B, S, H], zero
            behind a row's last token.
        padding: how the rows shared the batch.
        notes: what a reader of the dump must know of how the model was called.
    """

    hidden: npt.NDArray[np.float32]
    embeddings: npt.NDArray[np.float32]
    padding: Padding
    notes: tuple[str, ...] = ()


def check_runnable(
    model: object,
    rows: Sequence[Sequence[int]],
    *,
    logits: bool,
    vision_inputs: Mapping[str, npt.NDArray[Any]] | None = None,
) -> None:
    """Raise what is known without a run, so that a model that cannot be run leaves no dump behind.

    Args:
        model: what an oracle gave as the model.
        rows: the token ids of each row, without padding.
        logits: whether the model is to give logits, and not embeddings.
        vision_inputs: further keyword inputs for the whole batch, of its pictures.

    Raises:
        BadInputError: the rows are none for this model, as in `run_torch`.
        EngineError: it is no module, or a transformers model without a head.
    """
    import torch

    if not isinstance(model, torch.nn.Module):
        raise EngineError(f"the model must be a torch.nn.Module, it is {shown(model)}")
    check_rows(model, rows)
    ModelCall(model, rows, vision_inputs)
    if logits and _has_no_head(model):
        raise EngineError(
            f"{type(model).__name__} has no head and gives no logits: let the oracle's "
            "auto_model_cls be AutoModelForCausalLM, or its task EMBEDDINGS_GENERATION"
        )


def run_torch(
    model: torch.nn.Module,
    rows: Sequence[Sequence[int]],
    *,
    num_steps: int,
    pad_token_id: int | None = None,
    hook: BasePrintHook | None = None,
    use_cache: bool = True,
    vision_inputs: Mapping[str, npt.NDArray[Any]] | None = None,
) -> TorchRun:
    """Decode greedily: step 0 is the prefill, each further step feeds the token chosen before.

    Rows of different length are one batch with padding on the left, a mask, and positions that
    start at 0 with each row's first token. The model is put into eval mode.

    Args:
        model: a causal language model.
        rows: the token ids of each row, without padding.
        num_steps: number of steps in all, 1 for the prefill alone.
        pad_token_id: what fills up short rows; 0 if it is None, the mask hides it.
        hook: its `step()` is called between steps.
        use_cache: feed [B, 1] after the prefill; without, feed the whole sequence again.
        vision_inputs: further keyword inputs for the whole batch, of its pictures; they are given
            with the whole sequence only.

    Returns:
        Tokens and logits; `num_steps` of each a row.

    Raises:
        BadInputError: no rows, an empty row, ids outside of the vocabulary, no steps, or rows of
            different length for a model that takes no mask.
        EngineError: the model returns no logits.
    """
    import torch

    if num_steps < 1:
        raise BadInputError(f"num_steps must be at least 1, got {num_steps}")
    check_rows(model, rows)
    call = ModelCall(model, rows, vision_inputs)
    notes = call.notes(padding_side="left")
    if pad_token_id is None and call.padded:
        notes.append("no pad token is known: short rows are filled up with 0")
    ids, mask = pad_rows(rows, pad_token_id or 0, side="left", device=device_of(model))
    cache: Any = None
    caching = use_cache and call.takes_cache
    fed, logits, tokens = ids, [], []
    model.eval()
    with torch.no_grad():
        for step in range(num_steps):
            if step > 0 and hook is not None:
                hook.step()
            output = call(fed, mask, cache=cache, caching=caching)
            last = _logits(output)[:, -1].float()  # [B, V]
            chosen = last.argmax(dim=-1, keepdim=True)  # [B, 1]
            logits.append(last.cpu().numpy())
            tokens.append(chosen[:, 0].tolist())
            cache = getattr(output, CACHE_ARGUMENT, None) if caching else None
            ids = torch.cat([ids, chosen], dim=1)
            mask = torch.cat([mask, torch.ones_like(chosen)], dim=1)
            fed = chosen if cache is not None else ids
    if num_steps > 1 and cache is None:
        notes.append("no cache: each decode step feeds the whole sequence")
    return TorchRun(
        generated=tuple(zip(*tokens, strict=True)),
        logits=tuple(logits),
        padding=Padding.LEFT if call.padded else Padding.NONE,
        notes=tuple(notes),
    )


def run_torch_encoder(
    model: torch.nn.Module,
    rows: Sequence[Sequence[int]],
    *,
    pad_token_id: int | None = None,
    hook: BasePrintHook | None = None,
    pooling: Pooling | None = "mean",
) -> TorchEncoderRun:
    """Run an embedding model once, on one batch with padding on the right.

    The model numbers the positions itself. It is put into eval mode. The run is one step, so the
    hook's `step()` is not called.

    Args:
        model: an encoder that returns a last hidden state.
        rows: the token ids of each row, without padding.
        pad_token_id: what fills up short rows; 0 if it is None, the mask hides it.
        hook: a hook on the model; taken so that both runners are called alike.
        pooling: how a row's hidden states become one vector; None leaves them as they are.

    Returns:
        Hidden states and embeddings.

    Raises:
        BadInputError: no rows, an empty row, ids outside of the vocabulary, or rows of different
            length for a model that takes no mask.
        EngineError: the model returns no hidden state.
    """
    import torch

    del hook  # one step: nothing to tell it
    check_rows(model, rows)
    call = ModelCall(model, rows)
    notes = call.notes(padding_side="right")
    if pad_token_id is None and call.padded:
        notes.append("no pad token is known: short rows are filled up with 0")
    ids, mask = pad_rows(rows, pad_token_id or 0, side="right", device=device_of(model))
    model.eval()
    with torch.no_grad():
        hidden = _hidden_state(call(ids, mask, positions=False)).float()  # [B, S, H]
        if pooling is None:
            embeddings = hidden * mask.unsqueeze(-1)  # [B, S, H]
        else:
            embeddings = pool_embeddings(hidden, mask, pooling)  # [B, H]
    return TorchEncoderRun(
        hidden=hidden.cpu().numpy(),
        embeddings=embeddings.cpu().numpy(),
        padding=Padding.RIGHT if call.padded else Padding.NONE,
        notes=tuple(notes),
    )


def pool_embeddings(
    hidden: torch.Tensor, mask: torch.Tensor, pooling: Pooling = "mean"
) -> torch.Tensor:
    """Make one vector of each row's hidden states.

    Args:
        hidden: hidden states [B, S, H].
        mask: 1 for tokens and 0 for padding on the right, [B, S].
        pooling: `mean` over the tokens, the first token (`cls`), or the `last` token.

    Returns:
        One vector a row, [B, H], not normalised.
    """
    import torch

    if pooling == "cls":
        return hidden[:, 0]
    if pooling == "last":
        last = mask.sum(dim=1) - 1  # [B]
        return hidden[torch.arange(len(hidden), device=hidden.device), last]
    weights = mask.unsqueeze(-1).to(hidden.dtype)  # [B, S, 1]
    return (hidden * weights).sum(dim=1) / weights.sum(dim=1)


def _has_no_head(model: torch.nn.Module) -> bool:
    """Tell a transformers model whose output is hidden states; of other models nothing is known."""
    from transformers import PreTrainedModel

    if not isinstance(model, PreTrainedModel) or model.can_generate():
        return False
    return model.get_output_embeddings() is None


def _logits(output: Any) -> torch.Tensor:
    """Return the logits [B, S, V] of a model output, a tuple that begins with them, or a tensor."""
    return _find_tensor(output, ("logits",), "logits")


def _hidden_state(output: Any) -> torch.Tensor:
    """Return the last hidden state [B, S, H]."""
    return _find_tensor(output, ("last_hidden_state", "token_embeddings"), "hidden state")


def _find_tensor(output: Any, fields: Sequence[str], what: str) -> torch.Tensor:
    import torch

    found: Any = output
    for name in fields:
        if isinstance(output, dict):
            found = output.get(name, found)
        else:
            found = getattr(output, name, found)
    if isinstance(found, tuple | list) and found:
        found = found[0]
    if not isinstance(found, torch.Tensor) or found.dim() != 3:
        kind = f"of shape {list(found.shape)}" if isinstance(found, torch.Tensor) else ""
        raise EngineError(
            f"the model returned {type(output).__name__} {kind} where a [batch, sequence, ...] "
            f"tensor of the {what} was expected"
        )
    return found
