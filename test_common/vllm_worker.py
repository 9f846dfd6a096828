"""Runs one job on vLLM, in vLLM's own environment: `python -m test_common.vllm_worker FOLDER`."""

from __future__ import annotations

import json
import signal
import sys
import traceback
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from comparison.schema.errors import AccuracyToolsError, TryAgainError
from comparison.schema.manifest import CaptureCertificate, Manifest, Padding, Skip
from comparison.store.manifest_file import read_manifest, write_manifest
from test_common.capture_job import Captured, completed_manifest
from test_common.child_process import end_with_parent
from test_common.dump_writer import DumpWriter
from test_common.print_style import PrintStyle
from test_common.vllm_job import DRAFT_FILE, ERROR_FILE, LOGITS_FILE, RESULT_FILE, VllmJob

if TYPE_CHECKING:
    import numpy as np

    from test_common.config_reads import ConfigReads
    from test_common.vllm_rank import RankResult

_FAILED = 2
_TRY_AGAIN = 75
_LONG_LIST = " Supported architectures: "  # some hundreds, behind the reason


def run_job(job: VllmJob, draft: Manifest) -> tuple[Manifest, Captured]:
    """Load the model, run it, and write its dump.

    Args:
        job: what to run.
        draft: the manifest as far as it is known.

    Returns:
        The manifest of the run, and what the run gave.

    Raises:
        BadInputError: this build of vLLM is not for the device.
        CaptureError: no tensor was captured.
        EngineError: the run went another way than a dump can tell.
        TryAgainError: a signal killed the process of a rank.
    """
    from test_common.config_reads import watched_config_reads
    from test_common.remote_code import repository_code

    # The processes of several ranks read it where this one cannot see it.
    watches = job.watch_config and job.ranks == 1
    with (
        repository_code(trusted=job.trust_remote_code, label=job.model_path),
        watched_config_reads() if watches else nullcontext() as reads,
    ):
        return _run_watched(job, draft, reads)


def _run_watched(
    job: VllmJob, draft: Manifest, reads: ConfigReads | None
) -> tuple[Manifest, Captured]:
    from test_common import vllm_runner

    llm = vllm_runner.build_llm(job)
    try:
        return _run_on(llm, job, draft, reads)
    except AccuracyToolsError:
        raise
    except Exception as error:  # whatever the engine makes of it
        number = vllm_runner.killed_rank(llm)
        if number is None:
            raise
        name = signal.Signals(number).name
        raise TryAgainError(f"a rank of vLLM was killed by {name}") from error


def _run_on(
    llm: Any, job: VllmJob, draft: Manifest, reads: ConfigReads | None
) -> tuple[Manifest, Captured]:
    from test_common.vllm_steps import check_row_order

    writer = _writer_above_ranks(job)
    if writer is not None:
        writer.start(draft)
    print(llm.collective_rpc("begin_capture", args=(job, draft))[0], flush=True)
    generated, embeddings = _generate(llm, job)
    results: list[RankResult] = llm.collective_rpc("end_capture")
    check_row_order(results[0].token_ids, job.rows)
    captured = Captured(
        generated=generated,
        logits=tuple(results[0].logits) if embeddings is None else (embeddings,),
        padding=Padding.RAGGED,
        config=_config(llm),
        versions={name: version(name) for name in ("torch", "transformers")} | _vllm_version(),
        certificate=joined_certificate([result.certificate for result in results]),
        notes=results[0].notes,
        config_reads=None if reads is None else reads.fields(),
    )
    manifest = completed_manifest(draft, captured)
    llm.collective_rpc("finish_dump", args=(manifest,))
    if writer is not None and captured.certificate is not None:
        writer.finish(_with_files_of_ranks(manifest, results), captured.certificate)
    return manifest, captured


def _writer_above_ranks(job: VllmJob) -> DumpWriter | None:
    """Return what writes the manifest that is above the folders of several ranks."""
    if job.output is None or not job.capture or job.ranks == 1:
        return None
    return DumpWriter(Path(job.output), job.overwrite, style=PrintStyle(job.style))


def joined_certificate(
    certificates: Sequence[CaptureCertificate | None],
) -> CaptureCertificate | None:
    """Add up what the ranks captured.

    Args:
        certificates: one a rank; None where nothing was to be captured.
    """
    known = [certificate for certificate in certificates if certificate is not None]
    if len(known) < 2:
        return known[0] if known else None
    return CaptureCertificate(
        registered=sum(certificate.registered for certificate in known),
        fired=sum(certificate.fired for certificate in known),
        saved=sum(certificate.saved for certificate in known),
        skipped=tuple(
            Skip(name=f"rank{rank}/{skip.name}", reason=skip.reason)
            for rank, certificate in enumerate(known)
            for skip in certificate.skipped
        ),
    )


def _with_files_of_ranks(manifest: Manifest, results: Sequence[RankResult]) -> Manifest:
    return replace(
        manifest,
        file_names={stem: name for r in results for stem, name in r.file_names.items()},
        raw_tensors={
            f"rank{rank}/{path}": raw
            for rank, result in enumerate(results)
            for path, raw in result.raw_tensors.items()
        },
    )


def main(folder: Path) -> int:
    """Run the job of a folder and leave its result there.

    Args:
        folder: see `vllm_job`.

    Returns:
        0, else 2, or 75 where another try may do, with the reason in `ERROR_FILE`.
    """
    import numpy as np

    job = VllmJob.read(folder)
    if job.parent is not None:
        end_with_parent(job.parent)
    try:
        manifest, captured = run_job(job, read_manifest(folder / DRAFT_FILE))
    except TryAgainError as error:
        _fail(folder, str(error))
        return _TRY_AGAIN
    except AccuracyToolsError as error:
        return _fail(folder, str(error))
    # Engines and models raise whatever they like; the parent quotes the last line.
    except Exception as error:
        traceback.print_exc()
        said = str(error).partition(_LONG_LIST)[0]
        return _fail(folder, f"vLLM cannot run the model: {type(error).__name__}: {said}")
    np.savez(folder / LOGITS_FILE, *captured.logits)
    write_manifest(folder / RESULT_FILE, manifest)
    return 0


def _generate(
    llm: Any, job: VllmJob
) -> tuple[tuple[tuple[int, ...], ...], np.ndarray[Any, Any] | None]:
    """Return the tokens that each row chose, or the embeddings."""
    from test_common import vllm_runner

    if job.embeds:
        return tuple(() for _ in job.rows), vllm_runner.embed(llm, job.rows)
    return vllm_runner.generate(llm, job.rows, num_steps=job.num_steps), None


def _config(llm: Any) -> dict[str, Any]:
    config = llm.llm_engine.vllm_config.model_config.hf_config
    return dict(json.loads(config.to_json_string(use_diff=False)))


def _vllm_version() -> dict[str, str]:
    import vllm

    return {"vllm": str(vllm.__version__)}


def _fail(folder: Path, message: str) -> int:
    (folder / ERROR_FILE).write_text(" ".join(message.split()), encoding="utf-8")
    return _FAILED


if __name__ == "__main__":
    # Ctrl-C is for the parent to tell of; the dump of a killed process says that it is partial.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(main(Path(sys.argv[1])))
