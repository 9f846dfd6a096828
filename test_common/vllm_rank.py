"""What runs inside each worker of vLLM, next to its part of the model: the hooks and the dump."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vllm.model_executor.model_loader import register_model_loader
from vllm.model_executor.model_loader.default_loader import DefaultModelLoader

from comparison.schema.manifest import CaptureCertificate, Manifest, RawTensor
from test_common.capture_mode import CaptureMode
from test_common.console_sink import ConsoleSink
from test_common.dump_writer import DumpWriter
from test_common.later_layers import without_later_layers
from test_common.model_banner import banner
from test_common.print_style import PrintStyle
from test_common.sketch_writer import SketchWriter
from test_common.vllm_job import VllmJob
from test_common.vllm_print_hook import VllmPrintHook
from test_common.vllm_steps import StepRecorder
from test_common.weight_recorder import weights_of_module
from test_common.write_budget import WriteBudget
from test_common.write_queue import useful_queue_bytes

if TYPE_CHECKING:
    import numpy as np

EXTENSION = "test_common.vllm_rank.RankCapture"
SHORTENED = "shortened"  # the load format of models with fewer layers than their checkpoint
RECORDED = "recorded"  # the load format of models whose weights are to be written down
_AS_LOADED = "_weights_as_loaded"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankResult:
    """What one rank saw of a run.

    Attributes:
        certificate: what was captured, None where nothing was to be.
        token_ids: the flat batch of token ids a step.
        logits: raw logits a step, float32 [B, V]; none on ranks that do not gather them.
        file_names: file stems that do not spell their tensor's name, with that name.
        raw_tensors: relative path to dtype and shape, for files of bare bytes.
        notes: what a reader of the dump has to know.
    """

    certificate: CaptureCertificate | None
    token_ids: list[list[int]]
    logits: list[np.ndarray[Any, Any]]
    file_names: dict[str, str]
    raw_tensors: dict[str, RawTensor]
    notes: tuple[str, ...] = ()


class RankCapture:
    """Methods that vLLM's worker gets by `worker_extension_cls`, called by name on every rank."""

    # Both are the worker's own.
    rank: int
    get_model: Any

    _recorder: StepRecorder
    _capture_hook: VllmPrintHook | None
    _dump_writer: DumpWriter | None

    def begin_capture(self, job: VllmJob, draft: Manifest) -> str:
        """Attach hooks to this rank's part of the model.

        Args:
            job: what to run.
            draft: the manifest as far as it is known.

        Returns:
            What to print of the model's class.
        """
        model = self.get_model()
        self._recorder = StepRecorder(model)
        self._capture_hook = self._dump_writer = None
        if not job.capture:
            return banner(type(model))
        if job.output is not None:
            out = dump_folder(job, self.rank)
            self._dump_writer = _writer(job, out)
            self._dump_writer.start(draft)
            if job.weights:
                self._dump_writer.save_weights(getattr(model, _AS_LOADED))
        prefix = "" if job.ranks == 1 else f"rank{self.rank}/"
        console = ConsoleSink(style=PrintStyle(job.style), precision=job.precision, prefix=prefix)
        sink = self._dump_writer or console
        self._capture_hook = VllmPrintHook(
            filter=job.filter, sink=sink, steps=job.steps, ops=job.ops
        )
        self._capture_hook.name_layers(model)
        return banner(type(model))

    def end_capture(self) -> RankResult:
        """Detach the hooks and tell what they saw.

        Raises:
            CaptureError: no tensor was captured.
        """
        hook, writer = self._capture_hook, self._dump_writer
        self._recorder.remove()
        if hook is not None:
            hook.remove()
        return RankResult(
            certificate=None if hook is None else hook.require_capture(),
            token_ids=self._recorder.token_ids,
            logits=self._recorder.logits,
            file_names={} if writer is None else writer.file_names,
            raw_tensors={} if writer is None else writer.raw_tensors,
            notes=() if hook is None else hook.notes,
        )

    def finish_dump(self, manifest: Manifest) -> None:
        """Write the final manifest of this rank's folder, if it writes one.

        Args:
            manifest: of the whole run.
        """
        if self._dump_writer is not None and self._capture_hook is not None:
            self._dump_writer.finish(manifest, self._capture_hook.certificate())


def _writer(job: VllmJob, out: Path) -> DumpWriter:
    mode = CaptureMode(job.mode)
    if mode is not CaptureMode.FULL:
        return SketchWriter(out, job.overwrite, mode=mode, budget=_budget(job))
    return DumpWriter(
        out,
        job.overwrite,
        style=PrintStyle(job.style),
        queue_bytes=useful_queue_bytes(),
        budget=_budget(job),
    )


def _budget(job: VllmJob) -> WriteBudget:
    """Give each rank an equal part."""
    return WriteBudget(
        max_bytes=None if job.max_bytes is None else job.max_bytes // job.ranks,
        max_memory_bytes=None if job.max_memory is None else job.max_memory // job.ranks,
    )


def dump_folder(job: VllmJob, rank: int) -> Path:
    """Return where a rank writes its steps.

    Args:
        job: the run, with an output folder.
        rank: number of the rank.
    """
    out = Path(str(job.output))
    return out if job.ranks == 1 else out / f"rank{rank}"


@register_model_loader(SHORTENED)
class ShortenedModelLoader(DefaultModelLoader):
    """Drops the weights of layers that a shortened model does not have."""

    def __init__(self, load_config: Any) -> None:
        """Load as by default, whatever the format is called."""
        super().__init__(dataclasses.replace(load_config, load_format="auto"))

    def get_all_weights(self, model_config: Any, model: Any) -> Iterator[tuple[str, Any]]:
        """Yield the names and tensors of the layers that are kept."""
        weights = super().get_all_weights(model_config, model)
        return without_later_layers(weights, model_config.hf_text_config.num_hidden_layers)


@register_model_loader(RECORDED)
class RecordingModelLoader(ShortenedModelLoader):
    """Takes the weights down before kernels get them in layouts of their own, or pack them away.

    Nothing is dropped of a model that has all layers of its checkpoint.
    """

    def load_weights(self, model: Any, model_config: Any) -> None:
        """Load the checkpoint into a model."""
        super().load_weights(model, model_config)
        setattr(model, _AS_LOADED, weights_of_module(model))
