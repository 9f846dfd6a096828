"""Runs a batch of token ids through a MAX pipeline, one step after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from comparison.schema.manifest import Padding
from test_common.max_step_printer import StepPrinter
from test_common.max_vision import VisionRow
from test_common.pipelines import MaxPipelineAndTokenizer

if TYPE_CHECKING:
    import numpy as np

    _Logits = Sequence[Sequence[np.ndarray[Any, Any]]]  # float32 [V], of each row and step


@dataclass(frozen=True, slots=True, kw_only=True)
class MaxRun:
    """What a run gave besides its dump.

    Attributes:
        generated: token ids chosen, one list a row, one id a step; empty lists for encoders.
        logits: float32 [B, V] a step; for an encoder its embeddings [B, H], or without pooling
            [B, S, H], zero behind a row's last token.
        padding: how the rows share the batch.
        saved: number of tensors written.
    """

    generated: tuple[tuple[int, ...], ...]
    logits: tuple[np.ndarray[Any, Any], ...]
    padding: Padding
    saved: int


def run_max(
    built: MaxPipelineAndTokenizer,
    rows: Sequence[Sequence[int]],
    *,
    num_steps: int,
    printer: StepPrinter,
    prepared: Sequence[VisionRow] | None = None,
) -> MaxRun:
    """Generate greedily; step 0 is the prefill of all rows in one ragged batch.

    Args:
        built: the pipeline.
        rows: token ids, one list a row, of any lengths.
        num_steps: number of steps, the prefill included.
        printer: where the steps' tensors go.
        prepared: the rows with their pictures, None for a model of text alone.
    """
    if prepared is None:
        iterator, recorded = _text_batch(built, rows, num_steps)
    else:
        iterator, recorded = _vision_batch(built, prepared)
    steps: list[dict[int, list[int]]] = []
    with iterator:
        for number in range(num_steps):
            with printer.step(number):
                steps.append(iterator.step())
        logits = recorded()
    return MaxRun(
        generated=tuple(tuple(step[row][0] for step in steps) for row in range(len(rows))),
        logits=_by_step(logits, num_steps),
        padding=Padding.RAGGED,
        saved=printer.saved,
    )


def _text_batch(
    built: MaxPipelineAndTokenizer, rows: Sequence[Sequence[int]], num_steps: int
) -> tuple[Any, Callable[[], _Logits]]:
    """Claim a batch of token ids; the function gives its logits after the run."""
    from max.pipelines.lib.generate import GenerateIterator

    iterator = GenerateIterator(
        built.pipeline,
        [list(row) for row in rows],
        max_new_tokens=num_steps,
        temperature=0.0,
        ignore_eos=True,
        output_logits=True,
    )
    return iterator, lambda: iterator.logits


def _vision_batch(
    built: MaxPipelineAndTokenizer, prepared: Sequence[VisionRow]
) -> tuple[Any, Callable[[], _Logits]]:
    """Claim a batch of contexts with pictures, for which MAX records no logits itself."""
    from max.pipelines.lib.generate import GenerateIterator

    iterator = GenerateIterator.from_contexts(built.pipeline, [row.context for row in prepared])
    return iterator, lambda: [row.recorder.logits for row in prepared]


def run_max_encoder(
    built: MaxPipelineAndTokenizer, rows: Sequence[Sequence[int]], *, printer: StepPrinter
) -> MaxRun:
    """Embed all rows in one batch, padded on the right as MAX does it.

    Args:
        built: an embeddings pipeline.
        rows: token ids, one list a row.
        printer: where the tensors go.
    """
    import asyncio

    import numpy as np
    from max.pipelines.modeling.types import (
        EmbeddingsGenerationInputs,
        RequestID,
        TextGenerationRequest,
    )

    batch = {}
    for row in rows:
        identity = RequestID()
        request = TextGenerationRequest(request_id=identity, model_name="model", prompt=list(row))
        batch[identity] = asyncio.run(built.tokenizer.new_context(request))
    with printer.step(0):
        outputs = built.pipeline.execute(EmbeddingsGenerationInputs([batch]))
    embeddings = _stacked([np.asarray(outputs[key].embeddings) for key in batch])
    return MaxRun(
        generated=tuple(() for _ in rows),
        logits=(embeddings.astype(np.float32),),
        padding=Padding.RIGHT,
        saved=printer.saved,
    )


def _stacked(rows: Sequence[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    """Make one array of the rows' vectors [H], or of the vectors of their tokens [tokens, H]."""
    import numpy as np

    longest = max(row.shape[0] for row in rows)
    ragged = rows[0].ndim > 1
    return np.stack(
        [np.pad(row, ((0, longest - len(row)), (0, 0))) if ragged else row for row in rows]
    )


def _by_step(
    logits: Sequence[Sequence[np.ndarray[Any, Any]]], num_steps: int
) -> tuple[np.ndarray[Any, Any], ...]:
    """Turn logits[row][step] of [V] into one [B, V] a step."""
    import numpy as np

    return tuple(np.stack([row[step] for row in logits]) for step in range(num_steps))
