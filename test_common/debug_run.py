"""Runs a pipeline on one engine with hooks on every layer: the work behind debug_model."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from comparison.schema.manifest import Manifest
from test_common.capture_job import Captured, CaptureJob, completed_manifest
from test_common.debug_context import debug_context
from test_common.debug_images import images_of_run
from test_common.debug_options import DebugOptions
from test_common.debug_writer import marked_when_cut, writer_of_run
from test_common.debuggable_oracle import DebuggableOracle
from test_common.draft_manifest import draft_manifest
from test_common.early_refusals import refuse_early
from test_common.remote_code import with_trust
from test_common.run_device import resolve_device
from test_common.run_rows import rows_of_run
from test_common.verified_capture import add_effect, verified

if TYPE_CHECKING:
    import numpy as np

    from test_common.dump_writer import DumpWriter


@dataclass(frozen=True, slots=True, kw_only=True)
class DebugRun:
    """What a debug run gave.

    Attributes:
        manifest: what is, or would be, written to `manifest.json`.
        logits: float32 [B, V] a step; of an encoder its embeddings [B, H], or without pooling
            [B, S, H], zero behind a row's last token.
        output: the dump folder, or None.
        size_bytes: size of the tensor files that were written.
        seconds: how long the run took, building included.
        was_whole: whether the dump was there as a whole, and nothing was run (`resume`).
    """

    manifest: Manifest
    logits: tuple[np.ndarray[Any, Any], ...]
    output: Path | None
    size_bytes: int = 0
    seconds: float = 0.0
    was_whole: bool = False


def run_debug_model(
    oracle: DebuggableOracle,
    options: DebugOptions,
    *,
    capture: bool = True,
    writer: DumpWriter | None = None,
) -> DebugRun:
    """Build the oracle's model on an engine, run it, and dump or print every tensor.

    Args:
        oracle: says how to build the model.
        options: what to run.
        capture: False runs the model without any hook, for the logits alone.
        writer: takes the tensors, instead of one made of the options.

    Raises:
        BadInputError: the options do not fit the model or this machine.
        UnwritableOutputError: the dump folder cannot be used.
        CaptureError: the run captured nothing.
        EngineError: the engine cannot build or run the model.
        BudgetError: the run came to `max_bytes` or `max_memory`; the dump is marked as partial.
        TryAgainError: the Hub fails for now.
    """
    began = time.perf_counter()
    oracle = with_trust(oracle, trusted=options.trust_remote_code)
    refuse_early(
        oracle,
        encoding=options.encoding,
        device=options.device,
        num_hidden_layers=options.num_hidden_layers,
        overrides=options.hf_config_overrides,
    )
    if writer is None and options.output is not None:
        writer = writer_of_run(options, options.output)
    if writer is None or not capture:
        run = _run(oracle, options, capture=capture, writer=None)
    else:
        with closing(writer), marked_when_cut(writer):
            run = _run(oracle, options, capture=capture, writer=writer)
    return replace(run, seconds=time.perf_counter() - began)


def _run(
    oracle: DebuggableOracle, options: DebugOptions, *, capture: bool, writer: DumpWriter | None
) -> DebugRun:
    images = images_of_run(oracle, options)
    device = resolve_device(options.device, framework=options.framework)
    encoding = oracle.resolve_encoding(options.encoding, device_type=device.partition(":")[0])
    with debug_context(oracle, options) as overrides:
        rows = rows_of_run(oracle, options, images)
        draft = draft_manifest(
            oracle, options, encoding=encoding, device=device, rows=rows, images=images
        )
        whole = None if writer is None else writer.whole_dump(draft)
        if whole is not None:
            return DebugRun(manifest=whole, logits=(), output=options.output, was_whole=True)
        job = CaptureJob(
            draft=draft,
            rows=rows.token_ids,
            num_steps=options.num_steps,
            encoding=encoding,
            device=device,
            num_hidden_layers=options.kept_layers,
            overrides=overrides,
            max_batch_size=options.max_batch_size,
            prefer_module_v3=options.prefer_module_v3,
            tensor_parallel_size=options.tensor_parallel_size,
            capture=capture,
            writer=writer,
            filter=options.filter or None,
            steps=options.steps,
            style=options.style,
            precision=options.precision,
            on_built=lambda: writer.start(draft) if writer is not None else None,
            vision=rows.vision,
            weights=options.weights,
            ops=options.ops,
            watch_config=options.watch_config,
            check_observer=options.check_observer,
            max_bytes=options.max_bytes,
            max_memory=options.max_memory,
            stream=options.stream,
        )
        captured = _captured(options.framework, oracle, job)
        if options.verify_capture and capture:
            captured = verified(_capture(options.framework), oracle, job, captured)
    if rows.vision is not None:
        captured = replace(captured, notes=(*captured.notes, *rows.vision.notes))
    manifest = completed_manifest(draft, captured)
    if writer is not None and captured.certificate is not None and not captured.manifest_written:
        manifest = writer.finish(manifest, captured.certificate)
    elif writer is not None and options.verify_capture:
        add_effect(writer.out, captured)
    return DebugRun(
        manifest=manifest,
        logits=captured.logits,
        output=options.output,
        size_bytes=captured.bytes_written or (writer.bytes_written if writer is not None else 0),
    )


def _captured(framework: str, oracle: DebuggableOracle, job: CaptureJob) -> Captured:
    """Run the job; vLLM's process watches the configuration by itself."""
    capture = _capture(framework)
    if not job.watch_config or framework == "vllm":
        return capture(oracle, job)
    from test_common.config_reads import watched_config_reads

    with watched_config_reads() as reads:
        captured = capture(oracle, job)
        return replace(captured, config_reads=reads.fields())


def _capture(framework: str) -> Callable[[DebuggableOracle, CaptureJob], Captured]:
    """Return the engine's runner; importing it imports the engine."""
    if framework == "max":
        from test_common.capture_max import capture_on_max

        return capture_on_max
    if framework == "vllm":
        from test_common.capture_vllm import capture_on_vllm

        return capture_on_vllm
    from test_common.capture_torch import capture_on_torch

    return capture_on_torch
