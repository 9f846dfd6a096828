"""Runs an oracle's model on vLLM, which lives in an environment and a process of its own."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from comparison.schema.errors import BadInputError, EngineError, TryAgainError
from comparison.schema.manifest import Manifest
from comparison.store.manifest_file import read_manifest, write_manifest
from test_common.capture_job import EMBEDDINGS_TASK, BuildsPipelines, Captured, CaptureJob
from test_common.capture_mode import CaptureMode
from test_common.child_process import child_process, killing_signal
from test_common.oracle_errors import checked_result, oracle_errors
from test_common.pipelines import VLLMPipeline
from test_common.sketch_writer import SketchWriter
from test_common.vllm_environment import vllm_command
from test_common.vllm_job import DRAFT_FILE, ERROR_FILE, LOGITS_FILE, RESULT_FILE, VllmJob

_TRY_AGAIN = 75
_VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"


def capture_on_vllm(oracle: BuildsPipelines, job: CaptureJob) -> Captured:
    """Start the worker, let it run the job and write the dump, and read what it left.

    Args:
        oracle: says which model.
        job: what to run.

    Raises:
        BadInputError: there is no vLLM environment, or the job is not one for vLLM.
        EngineError: the worker failed; its reason is quoted.
        TryAgainError: a signal killed the worker, or one of its ranks.
    """
    _check_pooling(oracle)
    command = vllm_command()
    with tempfile.TemporaryDirectory(prefix="vllm-job-") as name:
        folder = Path(name)
        _write_job(folder, oracle, job)
        _run_worker([*_visible_devices(job.device), *command, str(folder)], folder)
        return _captured(folder, job)


def _check_pooling(oracle: BuildsPipelines) -> None:
    """Refuse embeddings of which the oracle wants one a token.

    Raises:
        BadInputError: it wants that.
    """
    pools = oracle.config_params.get("pool_embeddings", True)
    if oracle.task_name == EMBEDDINGS_TASK and not pools:
        raise BadInputError(
            "vLLM pools embeddings here, and the oracle says pool_embeddings=False: use "
            "--framework torch or max"
        )


def _write_job(folder: Path, oracle: BuildsPipelines, job: CaptureJob) -> None:
    with oracle_errors(oracle, "create_vllm_pipeline"):
        pipeline = checked_result(
            oracle,
            "create_vllm_pipeline",
            oracle.create_vllm_pipeline(encoding=job.encoding, device_specs=[job.device]),
            VLLMPipeline,
        )
    tokenizer = pipeline.tokenizer_path
    ranks = _ranks(job, pipeline)
    mode = job.writer.mode if isinstance(job.writer, SketchWriter) else CaptureMode.FULL
    if ranks > 1 and mode is not CaptureMode.FULL:
        raise BadInputError(
            f"mode {mode} takes one process, found {ranks}: parts of tensors cannot be joined from "
            "sketches; use --mode full"
        )
    VllmJob(
        model_path=str(pipeline.model_path),
        tokenizer_path=None if tokenizer is None else str(tokenizer),
        trust_remote_code=pipeline.trust_remote_code,
        rows=[list(row) for row in job.rows],
        num_steps=job.num_steps,
        encoding=pipeline.encoding,
        device=job.device,
        ranks=ranks,
        embeds=oracle.task_name == EMBEDDINGS_TASK,
        seed=job.draft.seed or 0,
        num_hidden_layers=job.num_hidden_layers,
        overrides=dict(job.overrides),
        capture=job.capture,
        output=None if job.writer is None else str(job.writer.out.absolute()),
        overwrite=job.writer is not None and job.writer.overwrite,
        filter=None if job.filter is None else list(job.filter),
        steps=None if job.steps is None else sorted(job.steps),
        style=str(job.style),
        precision=job.precision,
        ops=list(job.ops),
        weights=job.weights,
        watch_config=job.watch_config,
        max_bytes=job.max_bytes,
        max_memory=job.max_memory,
        parent=os.getpid(),
        mode=mode,
    ).write(folder)
    options = {**job.draft.options, "tensor_parallel_size": ranks}
    write_manifest(folder / DRAFT_FILE, replace(job.draft, options=options))


def _ranks(job: CaptureJob, pipeline: VLLMPipeline) -> int:
    """Return the number of processes: what the user says, or one a device, or the oracle's."""
    named = _indices(job.device)
    return job.tensor_parallel_size or len(named) or pipeline.tensor_parallel_size


def _indices(device: str) -> list[int]:
    """Return the numbers in `gpu:0,1`."""
    return [int(index) for index in device.partition(":")[2].split(",") if index]


def _visible_devices(device: str, environ: Mapping[str, str] = os.environ) -> list[str]:
    """Return the command in front of the worker's that shows it the named devices only.

    Raises:
        BadInputError: a device is not among those that this process may use.
    """
    indices = _indices(device)
    if not indices:
        return []
    ours = [name for name in environ.get(_VISIBLE_DEVICES, "").split(",") if name]
    if ours and max(indices) >= len(ours):
        raise BadInputError(f"device {device}: {_VISIBLE_DEVICES} is {','.join(ours)}")
    names = [ours[index] if ours else str(index) for index in indices]
    return ["env", f"{_VISIBLE_DEVICES}={','.join(names)}"]


def _run_worker(command: Sequence[str], folder: Path) -> None:
    """Run the worker to its end; it shares our console, and goes when we go."""
    # Ctrl-C reaches the worker too, unless it came to us alone.
    with child_process(command) as worker:
        code = worker.wait()
    name = killing_signal(code)
    if name is not None:
        raise TryAgainError(f"the vLLM worker was killed by {name}; see its last lines above")
    if code != 0:
        error = folder / ERROR_FILE
        reason = error.read_text(encoding="utf-8") if error.exists() else f"exit code {code}"
        if code == _TRY_AGAIN:
            raise TryAgainError(f"the vLLM worker stopped: {reason}; see its last lines above")
        raise EngineError(f"the vLLM worker failed: {reason}")


def _captured(folder: Path, job: CaptureJob) -> Captured:
    import numpy as np

    manifest = read_manifest(folder / RESULT_FILE)
    with np.load(folder / LOGITS_FILE, allow_pickle=False) as steps:
        logits = tuple(steps[name] for name in steps.files)
    return Captured(
        generated=tuple(row.generated for row in manifest.rows),
        logits=logits,
        padding=manifest.padding,
        config=manifest.config,
        versions=manifest.versions,
        certificate=manifest.certificate,
        config_reads=manifest.config_reads,
        notes=_notes_of_worker(manifest, job.draft),
        manifest_written=True,
        bytes_written=_size_bytes(job),
    )


def _notes_of_worker(manifest: Manifest, draft: Manifest) -> tuple[str, ...]:
    known = draft.options.get("notes", ())
    return tuple(note for note in manifest.options.get("notes", ()) if note not in known)


def _size_bytes(job: CaptureJob) -> int:
    """Add up the files of the dump's steps; a link to an earlier file counts once."""
    if job.writer is None:
        return 0
    files = {
        file.stat().st_ino: file.stat().st_size
        for file in job.writer.out.glob("**/*")
        if file.is_file() and file.parent.name.isdecimal()
    }
    return sum(files.values())
