"""Runs one job on vLLM, in vLLM's own environment: `python -m test_common.vllm_worker FOLDER`."""

from __future__ import annotations

import json
import sys
import traceback
from importlib.metadata import version
from pathlib import Path
from typing import Any

from comparison.schema.errors import AccuracyToolsError
from comparison.schema.manifest import CaptureCertificate, Manifest, Padding
from comparison.store.manifest_file import read_manifest, write_manifest
from test_common.capture_job import Captured, completed_manifest
from test_common.console_sink import ConsoleSink
from test_common.dump_writer import DumpWriter
from test_common.model_banner import print_banner
from test_common.patching import apply_patches
from test_common.print_style import PrintStyle
from test_common.vllm_job import DRAFT_FILE, ERROR_FILE, LOGITS_FILE, RESULT_FILE, VllmJob
from test_common.vllm_print_hook import VllmPrintHook


def run_job(job: VllmJob, draft: Manifest) -> tuple[Manifest, Captured]:
    """Load the model, run it, and write its dump.

    Args:
        job: what to run.
        draft: the manifest as far as it is known.

    Returns:
        The manifest of the run, and what the run gave.

    Raises:
        CaptureError: no tensor was captured.
        EngineError: the run went another way than a dump can tell.
    """
    from test_common import vllm_runner

    layers = job.num_hidden_layers
    with apply_patches(() if layers is None else vllm_runner.fewer_layers(layers)):
        llm = vllm_runner.build_llm(job)
    model = vllm_runner.model_of(llm)
    print_banner(type(model))
    writer = None
    if job.output is not None and job.capture:
        writer = DumpWriter(Path(job.output), job.overwrite, style=PrintStyle(job.style))
        writer.start(draft)
    with vllm_runner.recorded_steps(model) as steps:
        certificate, generated = _generate(job, llm, model, writer)
    vllm_runner.check_row_order(steps.token_ids, job.rows)
    captured = Captured(
        generated=generated,
        logits=tuple(steps.logits),
        padding=Padding.RAGGED,
        config=_config(llm),
        versions={name: version(name) for name in ("torch", "transformers")} | _vllm_version(),
        certificate=certificate,
    )
    manifest = completed_manifest(draft, captured)
    if writer is not None and certificate is not None:
        writer.finish(manifest, certificate)
    return manifest, captured


def main(folder: Path) -> int:
    """Run the job of a folder and leave its result there.

    Args:
        folder: see `vllm_job`.

    Returns:
        0, or 2 with the reason in `ERROR_FILE`.
    """
    import numpy as np

    try:
        manifest, captured = run_job(VllmJob.read(folder), read_manifest(folder / DRAFT_FILE))
    except AccuracyToolsError as error:
        return _fail(folder, str(error))
    # Engines and models raise whatever they like; the parent quotes the last line.
    except Exception as error:
        traceback.print_exc()
        return _fail(folder, f"vLLM cannot run the model: {type(error).__name__}: {error}")
    np.savez(folder / LOGITS_FILE, *captured.logits)
    write_manifest(folder / RESULT_FILE, manifest)
    return 0


def _generate(
    job: VllmJob, llm: Any, model: Any, writer: DumpWriter | None
) -> tuple[CaptureCertificate | None, tuple[tuple[int, ...], ...]]:
    from test_common import vllm_runner

    if not job.capture:
        return None, vllm_runner.generate(llm, job.rows, num_steps=job.num_steps)
    sink = writer or ConsoleSink(style=PrintStyle(job.style), precision=job.precision)
    with VllmPrintHook(filter=job.filter, sink=sink, steps=job.steps) as hook:
        hook.name_layers(model)
        generated = vllm_runner.generate(llm, job.rows, num_steps=job.num_steps)
    return hook.require_capture(), generated


def _config(llm: Any) -> dict[str, Any]:
    config = llm.llm_engine.vllm_config.model_config.hf_config
    return dict(json.loads(config.to_json_string(use_diff=False)))


def _vllm_version() -> dict[str, str]:
    import vllm

    return {"vllm": str(vllm.__version__)}


def _fail(folder: Path, message: str) -> int:
    (folder / ERROR_FILE).write_text(" ".join(message.split()), encoding="utf-8")
    return 2


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
