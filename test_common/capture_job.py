"""What the runner of an engine is given, and what it gives back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from comparison.schema.manifest import CaptureCertificate, Manifest, Padding
from test_common.pipelines import (
    MaxPipelineAndTokenizer,
    TorchModelAndDataProcessor,
    VLLMPipeline,
)
from test_common.print_style import PrintStyle

if TYPE_CHECKING:
    import numpy as np

    from test_common.dump_writer import DumpWriter
    from test_common.vision_inputs import VisionInputs

EMBEDDINGS_TASK = "EMBEDDINGS_GENERATION"


class BuildsPipelines(Protocol):
    """The part of an oracle that a runner calls."""

    use_cache: bool
    max_cpu_patches: tuple[str, ...]
    config_params: Mapping[str, Any]

    @property
    def task_name(self) -> str:
        """Name of the pipeline task."""

    def create_max_pipeline(
        self, *, encoding: str, device_specs: Sequence[Any]
    ) -> MaxPipelineAndTokenizer:
        """Build the model on MAX."""

    def create_torch_pipeline(self, *, encoding: str, device: Any) -> TorchModelAndDataProcessor:
        """Build the model on Torch."""

    def create_vllm_pipeline(self, *, encoding: str, device_specs: Sequence[Any]) -> VLLMPipeline:
        """Say what vLLM has to load."""


def _nothing() -> None:
    """Do nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureJob:
    """One run of one engine.

    Attributes:
        draft: the manifest as far as it is known before the run.
        rows: token ids, one list a row.
        num_steps: steps to run, the prefill included.
        encoding: encoding of the weights.
        device: `cpu`, `gpu` or `gpu:<index>`.
        num_hidden_layers: layers kept, or None for all.
        overrides: fields of the Hugging Face configuration that are changed.
        max_batch_size: rows in a batch, or None.
        prefer_module_v3: whether to choose MAX's ModuleV3 variant.
        tensor_parallel_size: vLLM processes to split the tensors over; None for one a device.
        capture: False runs without any hook.
        writer: where tensors go, or None for the console.
        filter: which tensors to capture, None for all.
        steps: which steps to capture, None for all.
        style: how tensors are printed or written.
        precision: digits behind the point in style `full`.
        on_built: called once the model stands and before its first step, so that a model that
            cannot be built leaves no dump behind.
        vision: the pictures of the rows, None for a model of text alone.
        weights: whether to write down the weights that the model runs with.
        ops: globs of the modules whose operations are captured too.
        watch_config: whether to note which fields of the configuration are read.
        check_observer: whether to run the first step again without hooks, on Torch, and tell
            whether capture changes what the model gives.
        stream: whether weights stay in their safetensors files, on Torch.
        max_bytes: greatest size of the dump's tensor files, None for no limit; `writer` keeps to
            it, and so must those of other processes.
        max_memory: greatest memory that the process with the model may hold, None for no limit.
    """

    draft: Manifest
    rows: Sequence[Sequence[int]]
    num_steps: int
    encoding: str
    device: str
    num_hidden_layers: int | None = None
    overrides: Mapping[str, Any] = field(default_factory=dict)
    max_batch_size: int | None = None
    prefer_module_v3: bool = False
    tensor_parallel_size: int | None = None
    capture: bool = True
    writer: DumpWriter | None = None
    filter: Sequence[str] | None = None
    steps: frozenset[int] | None = None
    style: PrintStyle = PrintStyle.NATIVE
    precision: int = 6
    on_built: Callable[[], None] = _nothing
    vision: VisionInputs | None = None
    weights: bool = False
    ops: Sequence[str] = ()
    watch_config: bool = False
    check_observer: bool = False
    stream: bool = False
    max_bytes: int | None = None
    max_memory: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Captured:
    """What a run of an engine gave besides its tensors.

    Attributes:
        generated: token ids chosen, one list a row, one id a step; empty for encoders.
        logits: float32 [B, V] a step; of an encoder its embeddings [B, H], or without pooling
            [B, S, H], zero behind a row's last token.
        padding: how the rows share the batch.
        config: the resolved configuration, JSON values only.
        versions: package name to version.
        certificate: what was captured, None where nothing was to be.
        patches: labels of the patches that changed the engine.
        notes: what a reader of the dump has to know, one sentence each.
        manifest_written: whether the dump has its final manifest already.
        bytes_written: size of the tensor files, where another process wrote them.
        config_reads: fields of the configuration that were read, each with modules that read it;
            None where that was not watched.
        observer_effect: as in Manifest.
    """

    generated: tuple[tuple[int, ...], ...]
    logits: tuple[np.ndarray[Any, Any], ...]
    padding: Padding
    config: Mapping[str, Any]
    versions: Mapping[str, str]
    certificate: CaptureCertificate | None = None
    patches: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    manifest_written: bool = False
    bytes_written: int = 0
    config_reads: Mapping[str, Sequence[str]] | None = None
    observer_effect: float | None = None


def completed_manifest(draft: Manifest, captured: Captured) -> Manifest:
    """Add to a manifest what only the run could tell.

    Args:
        draft: what was known before the run.
        captured: what the run gave.
    """
    rows = tuple(
        replace(row, generated=tokens)
        for row, tokens in zip(draft.rows, captured.generated, strict=True)
    )
    return replace(
        draft,
        rows=rows,
        padding=captured.padding,
        config=dict(captured.config),
        versions=dict(captured.versions),
        certificate=captured.certificate,
        complete=True,
        patches=captured.patches,
        observer_effect=captured.observer_effect,
        config_reads=None
        if captured.config_reads is None
        else {field: list(readers) for field, readers in captured.config_reads.items()},
        options={
            **draft.options,
            "notes": [*draft.options.get("notes", ()), *captured.notes],
        },
    )
