"""Runs an oracle's model on MAX and captures every tensor."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import version
from typing import Any

from comparison.schema.errors import AccuracyToolsError, BadInputError, EngineError
from test_common.capture_job import EMBEDDINGS_TASK, BuildsPipelines, Captured, CaptureJob
from test_common.capture_progress import writing_shown
from test_common.max_builder import apply_max_hooks, capture_settings, fewer_layers
from test_common.max_cpu_patches import max_cpu_patches
from test_common.max_print_hook import MaxPrintHook
from test_common.max_runner import MaxRun, run_max, run_max_encoder
from test_common.max_step_printer import StepPrinter
from test_common.max_vision import VisionRow, vision_rows
from test_common.max_weights import MaxWeights
from test_common.model_banner import print_banner
from test_common.oracle_errors import checked_result, oracle_errors
from test_common.patching import Patch, apply_patches
from test_common.pillow_processors import pillow_processor_patches
from test_common.pipelines import MaxPipelineAndTokenizer
from test_common.progress import stage


def capture_on_max(oracle: BuildsPipelines, job: CaptureJob) -> Captured:
    """Build the pipeline with print operations in its graph, and run the job's rows.

    Args:
        oracle: builds the pipeline.
        job: what to run.

    Raises:
        CaptureError: no tensor was captured.
        EngineError: MAX cannot build or run the model; its own last error is quoted.
    """
    patches = (*_cpu_patches(oracle, job), *_processor_patches(job))
    weights = MaxWeights()
    noting = weights.patches() if job.weights else ()
    with _hook(job) as hook:
        printer = StepPrinter(
            hook, job.writer, steps=job.steps, style=job.style, precision=job.precision
        )
        with apply_patches([*patches, *_capture_patches(job, hook), *noting]):
            built = _build(oracle, job)
            prepared = _prepared(built, job)
            job.on_built()
            if job.weights and job.writer is not None:
                job.writer.save_weights(weights.record())
            with writing_shown(job.writer, "running on MAX", num_steps=job.num_steps):
                run = _run(oracle, built, job, printer, prepared)
        return Captured(
            generated=run.generated,
            logits=run.logits,
            padding=run.padding,
            config=_config(built),
            versions={name: version(name) for name in ("max", "transformers")},
            certificate=None if hook is None else replace(hook.require_capture(), saved=run.saved),
            patches=tuple(patch.label for patch in patches),
            notes=(*_notes(built, job), *(() if hook is None else hook.notes)),
        )


@contextmanager
def _hook(job: CaptureJob) -> Iterator[MaxPrintHook | None]:
    if not job.capture:
        yield None
        return
    label = job.writer.stem if job.writer is not None else str
    with MaxPrintHook(job.filter, label=label, ops=job.ops) as hook:
        yield hook


def _cpu_patches(oracle: BuildsPipelines, job: CaptureJob) -> tuple[Patch, ...]:
    """Choose the patches for a CPU; on a machine with a GPU there are none."""
    from max.driver import accelerator_count

    if job.device != "cpu" or accelerator_count() > 0:
        return ()
    names = list(oracle.max_cpu_patches)
    if job.encoding == "bfloat16" and "widen_cpu_encodings" not in names:
        names.append("widen_cpu_encodings")
    if names:
        print(f"MAX is patched for the CPU: {', '.join(names)}", flush=True)
    return max_cpu_patches(names, encoding=job.encoding)


def _processor_patches(job: CaptureJob) -> tuple[Patch, ...]:
    """Choose the patches of transformers that MAX's preparation of pictures needs here."""
    return () if job.vision is None else pillow_processor_patches()


def graph_patches(oracle: BuildsPipelines, job: CaptureJob) -> tuple[Patch, ...]:
    """Return the patches under which a run builds its graph, without those of a capture."""
    return (*_cpu_patches(oracle, job), *_capture_patches(job, None))


def _capture_patches(job: CaptureJob, hook: MaxPrintHook | None) -> tuple[Patch, ...]:
    patches = capture_settings(
        max_batch_size=job.max_batch_size or len(job.rows), prefer_module_v3=job.prefer_module_v3
    )
    if job.num_hidden_layers is not None:
        patches += fewer_layers(job.num_hidden_layers)
    return patches + (apply_max_hooks(hook) if hook is not None else ())


def _build(oracle: BuildsPipelines, job: CaptureJob) -> MaxPipelineAndTokenizer:
    with (
        stage("building the graph on MAX (minutes, when it is not cached)"),
        oracle_errors(oracle, "create_max_pipeline", layers=job.num_hidden_layers),
    ):
        built = checked_result(
            oracle,
            "create_max_pipeline",
            oracle.create_max_pipeline(
                encoding=job.encoding, device_specs=device_specs(job.device)
            ),
            MaxPipelineAndTokenizer,
        )
    print_banner(type(built.pipeline._pipeline_model))
    return built


def _prepared(built: MaxPipelineAndTokenizer, job: CaptureJob) -> list[VisionRow] | None:
    """Let MAX prepare the pictures while there is no dump yet that an error would leave behind."""
    if job.vision is None:
        return None
    return vision_rows(built.tokenizer, job.rows, job.vision, max_new_tokens=job.num_steps)


def _run(
    oracle: BuildsPipelines,
    built: MaxPipelineAndTokenizer,
    job: CaptureJob,
    printer: StepPrinter,
    prepared: Sequence[VisionRow] | None,
) -> MaxRun:
    with _engine_errors():
        if oracle.task_name == EMBEDDINGS_TASK:
            return run_max_encoder(built, job.rows, printer=printer)
        return run_max(built, job.rows, num_steps=job.num_steps, printer=printer, prepared=prepared)


@contextmanager
def _engine_errors() -> Iterator[None]:
    """Quote what MAX says when it cannot run what it built."""
    try:
        yield
    except (AccuracyToolsError, OSError):
        raise
    # Compilers and models raise whatever they like.
    except Exception as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        last = lines[-1] if lines else "no message"
        raise EngineError(f"MAX cannot run the model: {type(error).__name__}: {last}") from error


def device_specs(device: str) -> list[Any]:
    """Return the `DeviceSpec` of each device of a run.

    Raises:
        BadInputError: there is no such GPU.
    """
    from max.driver import DeviceSpec, accelerator_count

    if device == "cpu":
        return [DeviceSpec.cpu()]
    indices = [int(index) for index in (device.partition(":")[2] or "0").split(",")]
    count = accelerator_count()
    if max(indices) >= count:
        raise BadInputError(f"device {device} does not exist: MAX sees {count} GPU(s)")
    return [DeviceSpec.accelerator(index) for index in indices]


def _config(built: MaxPipelineAndTokenizer) -> dict[str, Any]:
    config = built.pipeline._pipeline_model.pipeline_config.model.huggingface_config
    text = config.to_json_string(use_diff=False) if config is not None else "{}"
    return dict(json.loads(text))


def _notes(built: MaxPipelineAndTokenizer, job: CaptureJob) -> tuple[str, ...]:
    module = type(built.pipeline._pipeline_model).__module__
    if job.prefer_module_v3 and "modulev3" not in module.lower():
        return (f"MAX has no ModuleV3 variant of this architecture: {module} was run",)
    return ()
