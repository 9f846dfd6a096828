"""Runs an oracle's model on Torch and captures every tensor."""

from __future__ import annotations

import json
from importlib.metadata import version
from typing import Any

from test_common.capture_job import EMBEDDINGS_TASK, BuildsPipelines, Captured, CaptureJob
from test_common.model_banner import print_banner
from test_common.torch_print_hook import TorchPrintHook
from test_common.torch_runner import TorchEncoderRun, TorchRun, run_torch, run_torch_encoder


def capture_on_torch(oracle: BuildsPipelines, job: CaptureJob) -> Captured:
    """Build the model, run the job's rows, and take the model apart again.

    Args:
        oracle: builds the model.
        job: what to run.

    Raises:
        CaptureError: no tensor was captured.
        EngineError: the model cannot be built or run.
    """
    built = oracle.create_torch_pipeline(encoding=job.encoding, device=job.device)
    print_banner(type(built.model))
    job.on_built()
    hook = TorchPrintHook(filter=job.filter, sink=job.writer) if job.capture else None
    if hook is None:
        run = _run(oracle, built.model, built.data_processor, job, hook=None)
    else:
        with hook:
            hook.name_layers(built.model)
            run = _run(oracle, built.model, built.data_processor, job, hook=hook)
    return Captured(
        generated=run.generated if isinstance(run, TorchRun) else tuple(() for _ in job.rows),
        logits=run.logits if isinstance(run, TorchRun) else (run.embeddings,),
        padding=run.padding,
        config=json.loads(built.model.config.to_json_string(use_diff=False)),
        versions={name: version(name) for name in ("torch", "transformers")},
        certificate=hook.require_capture() if hook is not None else None,
        notes=run.notes,
    )


def _run(
    oracle: BuildsPipelines,
    model: Any,
    tokenizer: Any,
    job: CaptureJob,
    *,
    hook: TorchPrintHook | None,
) -> TorchRun | TorchEncoderRun:
    pad = getattr(tokenizer, "pad_token_id", None)
    if oracle.task_name == EMBEDDINGS_TASK:
        return run_torch_encoder(model, job.rows, pad_token_id=pad, hook=hook)
    return run_torch(
        model,
        job.rows,
        num_steps=job.num_steps,
        pad_token_id=pad,
        hook=hook,
        use_cache=oracle.use_cache,
    )
