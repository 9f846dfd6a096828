"""Runs an oracle's model on Torch and captures every tensor."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.metadata import version
from typing import Any

import numpy.typing as npt

from test_common.capture_job import EMBEDDINGS_TASK, BuildsPipelines, Captured, CaptureJob
from test_common.capture_progress import writing_shown
from test_common.console_sink import ConsoleSink
from test_common.model_banner import print_banner
from test_common.observer_effect import measured_effect
from test_common.oracle_errors import checked_result, oracle_errors
from test_common.pipelines import TorchModelAndDataProcessor
from test_common.progress import stage
from test_common.streamed_model import streamed_weights
from test_common.torch_print_hook import TorchPrintHook
from test_common.torch_runner import (
    TorchEncoderRun,
    TorchRun,
    check_runnable,
    run_torch,
    run_torch_encoder,
)
from test_common.weight_recorder import weights_of_module


def capture_on_torch(oracle: BuildsPipelines, job: CaptureJob) -> Captured:
    """Build the model, run the job's rows, and take the model apart again.

    Args:
        oracle: builds the model.
        job: what to run.

    Raises:
        CaptureError: no tensor was captured.
        EngineError: the model cannot be built or run.
    """
    with (
        stage("building the model on Torch"),
        streamed_weights(wanted=job.stream),
        oracle_errors(oracle, "create_torch_pipeline", layers=job.num_hidden_layers),
    ):
        built = checked_result(
            oracle,
            "create_torch_pipeline",
            oracle.create_torch_pipeline(encoding=job.encoding, device=job.device),
            TorchModelAndDataProcessor,
        )
    check_runnable(
        built.model,
        job.rows,
        logits=oracle.task_name != EMBEDDINGS_TASK,
        vision_inputs=None if job.vision is None else job.vision.model_inputs,
    )
    print_banner(type(built.model))
    job.on_built()
    if job.weights and job.writer is not None:
        job.writer.save_weights(weights_of_module(built.model))
    hook = None
    if job.capture:
        sink = job.writer or ConsoleSink(style=job.style, precision=job.precision)
        hook = TorchPrintHook(filter=job.filter, sink=sink, steps=job.steps, ops=job.ops)
    if hook is None:
        run = _run(oracle, built, job, hook=None)
    else:
        with hook, writing_shown(job.writer, "running on Torch", num_steps=job.num_steps):
            hook.name_layers(built.model)
            run = _run(oracle, built, job, hook=hook)
    effect = None
    if hook is not None and job.check_observer:
        once = replace(job, num_steps=1)
        effect = measured_effect(_first(run), lambda: _first(_run(oracle, built, once, hook=None)))
    return Captured(
        generated=run.generated if isinstance(run, TorchRun) else tuple(() for _ in job.rows),
        logits=run.logits if isinstance(run, TorchRun) else (run.embeddings,),
        padding=run.padding,
        config=_config(built.model),
        versions={name: version(name) for name in ("torch", "transformers")},
        certificate=hook.require_capture() if hook is not None else None,
        notes=(*run.notes, *(() if hook is None else hook.notes), *_note(effect)),
        observer_effect=effect,
    )


def _first(run: TorchRun | TorchEncoderRun) -> tuple[npt.NDArray[Any]]:
    """Return what the first step gave."""
    return (run.logits[0] if isinstance(run, TorchRun) else run.embeddings,)


def _note(effect: float | None) -> tuple[str, ...]:
    if not effect:
        return ()
    return (
        "capture changes what the model computes: without hooks its first step gives values that "
        f"are off by {effect:.3g} of the greatest",
    )


def _config(model: Any) -> dict[str, Any]:
    """Return the model's configuration, empty for a module that has none."""
    config = getattr(model, "config", None)
    as_json = getattr(config, "to_json_string", None)
    return dict(json.loads(as_json(use_diff=False))) if as_json is not None else {}


def _run(
    oracle: BuildsPipelines,
    built: TorchModelAndDataProcessor,
    job: CaptureJob,
    *,
    hook: TorchPrintHook | None,
) -> TorchRun | TorchEncoderRun:
    pad = getattr(built.data_processor, "pad_token_id", None)
    # The model's code may raise anything, and be anybody's.
    with oracle_errors(oracle, "running the model"):
        if oracle.task_name == EMBEDDINGS_TASK:
            pools = oracle.config_params.get("pool_embeddings", True)
            return run_torch_encoder(
                built.model,
                job.rows,
                pad_token_id=pad,
                hook=hook,
                pooling="mean" if pools else None,
            )
        return run_torch(
            built.model,
            job.rows,
            num_steps=job.num_steps,
            pad_token_id=pad,
            hook=hook,
            use_cache=oracle.use_cache,
            vision_inputs=None if job.vision is None else job.vision.model_inputs,
        )
