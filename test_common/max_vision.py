"""Contexts with pictures for MAX, made by the engine's own tokenizer and image processor.

A fault of that preparation is to be seen, so nothing of it is taken from the reference; only the
token ids are held against the reference's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from comparison.schema.errors import BadInputError, EngineError
from test_common.error_text import describe

if TYPE_CHECKING:
    import numpy as np

    from test_common.vision_inputs import VisionInputs

# MAX takes pictures with messages only; this gives a message's text unchanged.
_TEXT_AS_IT_IS = (
    "{% for part in messages[0]['content'] %}"
    "{% if part['type'] == 'text' %}{{ part['text'] }}{% endif %}{% endfor %}"
)
_AROUND = 4  # tokens shown on either side of the first that differs


@dataclass(frozen=True, slots=True)
class LogitsRecorder:
    """A logits processor that keeps a row's raw logits of each step and changes nothing.

    Attributes:
        logits: float32 [V] a step.
    """

    logits: list[np.ndarray[Any, Any]] = field(default_factory=list)

    def __call__(self, inputs: Any) -> None:
        """Copy the last token's logits: the engine uses their buffer again."""
        import numpy as np

        self.logits.append(np.array(inputs.logits[-1, :].to_numpy(), dtype=np.float32))


@dataclass(frozen=True, slots=True, kw_only=True)
class VisionRow:
    """One row as MAX takes it.

    Attributes:
        context: MAX's TextAndVisionContext.
        recorder: gets the row's logits while it runs.
    """

    context: Any
    recorder: LogitsRecorder


def vision_rows(
    tokenizer: Any,
    rows: Sequence[Sequence[int]],
    vision: VisionInputs,
    *,
    max_new_tokens: int,
) -> list[VisionRow]:
    """Let MAX's tokenizer prepare text and pictures of each row.

    Args:
        tokenizer: the pipeline's tokenizer.
        rows: the reference's token ids, those of the pictures included.
        vision: the pictures, and the text of each row with a placeholder for each.
        max_new_tokens: steps that the contexts have room for.

    Raises:
        BadInputError: a row has no text.
        EngineError: MAX cannot prepare a row, or makes other token ids than the reference.
    """
    without = [index for index, text in enumerate(vision.texts) if text is None]
    if without:
        raise BadInputError(
            f"MAX prepares pictures together with text: give prompt {without[0]} as text, not as "
            "token ids"
        )
    made = []
    for index, (row, text) in enumerate(zip(rows, vision.texts, strict=True)):
        recorder = LogitsRecorder()
        full = with_leading_token(tokenizer.delegate, str(text), row)
        request = _request(full, vision, recorder, max_new_tokens=max_new_tokens)
        context = _context(tokenizer, request, index)
        ids = [int(token) for token in context.tokens.prompt]
        problem = first_difference(row, ids, decode=tokenizer.delegate.decode)
        if problem is not None:
            raise EngineError(
                f"MAX makes other token ids of prompt {index} than the reference: {problem}; the "
                "runs cannot be compared"
            )
        made.append(VisionRow(context=context, recorder=recorder))
    return made


def with_leading_token(tokenizer: Any, text: str, row: Sequence[int]) -> str:
    """Write a BOS token out that the reference's tokenizer added: MAX adds none to messages.

    Args:
        tokenizer: a transformers tokenizer.
        text: a prompt.
        row: the token ids that the reference made of it.
    """
    leading = tokenizer.bos_token
    if leading is None or not row or row[0] != tokenizer.bos_token_id or text.startswith(leading):
        return text
    return f"{leading}{text}"


def first_difference(expected: Sequence[int], found: Sequence[int], *, decode: Any) -> str | None:
    """Say where two lists of token ids differ first, with the text around; None where nowhere.

    Args:
        expected: the reference's.
        found: the engine's.
        decode: gives the text of a list of ids.
    """
    if list(expected) == list(found):
        return None
    pairs = zip(expected, found, strict=False)
    shorter = min(len(expected), len(found))
    at = next((i for i, (left, right) in enumerate(pairs) if left != right), shorter)
    span = slice(max(0, at - _AROUND), at + _AROUND + 1)
    return (
        f"{len(expected)} expected, {len(found)} found; the first difference is at position {at}: "
        f"expected {_at(expected, at)} in {decode(list(expected[span]))!r}, found "
        f"{_at(found, at)} in {decode(list(found[span]))!r}"
    )


def _at(ids: Sequence[int], position: int) -> str:
    return str(ids[position]) if position < len(ids) else "the end"


def _request(
    text: str, vision: VisionInputs, recorder: LogitsRecorder, *, max_new_tokens: int
) -> Any:
    from max.pipelines.context import SamplingParams
    from max.pipelines.modeling.types import (
        RequestID,
        TextGenerationRequest,
        TextGenerationRequestMessage,
    )

    pictures = [{"type": "image"} for _ in vision.images]
    content = [{"type": "text", "text": text}, *pictures]
    return TextGenerationRequest(
        request_id=RequestID(),
        model_name="model",
        messages=[TextGenerationRequestMessage(role="user", content=content)],
        images=[image.data for image in vision.images],
        chat_template_options={"chat_template": _TEXT_AS_IT_IS},
        sampling_params=SamplingParams(
            max_new_tokens=max_new_tokens,
            temperature=0.0,
            top_k=1,
            ignore_eos=True,
            logits_processors=[recorder],
        ),
    )


def _context(tokenizer: Any, request: Any, index: int) -> Any:
    try:
        return asyncio.run(tokenizer.new_context(request))
    # Processors raise whatever they like.
    except Exception as error:
        raise EngineError(
            f"MAX cannot prepare the pictures of prompt {index}: {describe(error)}"
        ) from error
