"""Runs a pipeline on one engine with hooks on every layer: the work behind debug_model."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from comparison.schema.errors import BadInputError
from comparison.schema.manifest import Manifest, Padding, Row
from test_common.capture_job import (
    EMBEDDINGS_TASK,
    BuildsPipelines,
    Captured,
    CaptureJob,
    completed_manifest,
)
from test_common.debug_images import images_of_run, taking_images
from test_common.debug_options import ALL_LAYERS, DebugOptions, device_problem
from test_common.debug_writer import marked_when_cut, writer_of_run
from test_common.lora_notes import adapter_notes
from test_common.remote_code import repository_code, with_trust
from test_common.verified_capture import add_effect, verified

if TYPE_CHECKING:
    import numpy as np

    from test_common.dump_writer import DumpWriter
    from test_common.images import LoadedImage
    from test_common.vision_inputs import VisionInputs


# Whose versions a run is told by; vLLM's are those of another environment.
_PACKAGES = {"max": ("max", "transformers"), "torch": ("torch", "transformers")}


class DebuggableOracle(BuildsPipelines, Protocol):
    """The part of an oracle that a debug run needs."""

    model_path: str | None
    default_batch_size: int | None
    apply_chat_template: bool
    add_bos_token: bool | None
    lora_path: str | None
    takes_images: bool

    @property
    def inputs(self) -> Sequence[str | Sequence[int]]:
        """The oracle's own prompts."""

    def resolve_encoding(self, encoding: str | None, *, device_type: str) -> str:
        """Choose the encoding for a kind of device."""


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
        rows, prompts, vision = _rows(oracle, options, images)
        draft = _draft(
            oracle,
            options,
            encoding=encoding,
            device=device,
            rows=rows,
            prompts=prompts,
            images=images,
        )
        whole = None if writer is None else writer.whole_dump(draft)
        if whole is not None:
            return DebugRun(manifest=whole, logits=(), output=options.output, was_whole=True)
        job = CaptureJob(
            draft=draft,
            rows=rows,
            num_steps=options.num_steps,
            encoding=encoding,
            device=device,
            num_hidden_layers=layer_count(options),
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
            vision=vision,
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
    if vision is not None:
        captured = replace(captured, notes=(*captured.notes, *vision.notes))
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


@contextmanager
def debug_context(oracle: DebuggableOracle, options: DebugOptions) -> Iterator[Mapping[str, Any]]:
    """Let every engine see the shortened and overridden configuration, and set the seed.

    Args:
        oracle: names the model.
        options: of these `num_hidden_layers`, `hf_config_overrides`, `seed` and
            `trust_remote_code`.

    Yields:
        The fields of the configuration that are changed.
    """
    from test_common.config_overrides import hf_config_overrides
    from test_common.seeding import seed_everything

    seed_everything(options.seed)
    with repository_code(trusted=options.trust_remote_code, label=options.pipeline):
        overrides = _overrides(oracle, options)
        with hf_config_overrides(overrides):
            yield overrides


def _overrides(oracle: DebuggableOracle, options: DebugOptions) -> Mapping[str, Any]:
    """Return what is to be changed in the configuration, tried once on the real one."""
    from test_common.config_overrides import (
        apply_hf_config_override,
        create_layer_overrides,
        load_hf_config,
        merge_overrides,
    )

    if oracle.model_path is None:
        return options.hf_config_overrides
    hub = _hub_arguments(oracle)
    layers = create_layer_overrides(oracle.model_path, options.num_hidden_layers, **hub)
    overrides = merge_overrides(layers, options.hf_config_overrides)
    # Loaders swallow what is raised while they load a configuration.
    apply_hf_config_override(load_hf_config(oracle.model_path, **hub), overrides)
    return overrides


def _hub_arguments(oracle: DebuggableOracle) -> dict[str, Any]:
    """Return what the oracle says of loading from the Hub."""
    return {
        "trust_remote_code": bool(oracle.config_params.get("trust_remote_code", False)),
        "revision": oracle.config_params.get("huggingface_model_revision"),
    }


def resolve_device(device: str, *, framework: str) -> str:
    """Turn `default` into what this machine has, and check the form of the rest.

    Args:
        device: `default`, `cpu`, `gpu`, or `gpu:` with one or several indices.
        framework: the engine that looks for the device.

    Returns:
        `cpu`, `gpu`, `gpu:<index>` or `gpu:<index>,<index>`.

    Raises:
        BadInputError: the device is of another form.
    """
    if device == "default":
        return "gpu" if _has_gpu(framework) else "cpu"
    problem = device_problem(device)
    if problem is not None:
        raise BadInputError(problem)
    return device


def _has_gpu(framework: str) -> bool:
    if framework == "max":
        from max.driver import accelerator_count

        return accelerator_count() > 0
    import torch  # vLLM's own build may differ, but both see the same devices

    return torch.cuda.is_available()


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


def rows_of_run(oracle: DebuggableOracle, options: DebugOptions) -> list[list[int]] | None:
    """Return the token ids that a run would be made of, one list a row.

    Args:
        oracle: names the model.
        options: as for the run.

    Returns:
        The rows; None of a model that takes pictures, which says only in a run what it is given.

    Raises:
        BadInputError: as the run would.
    """
    if oracle.takes_images:
        return None
    with debug_context(oracle, options):
        return _rows(oracle, options, ())[0]


def _rows(
    oracle: DebuggableOracle, options: DebugOptions, images: Sequence[LoadedImage]
) -> tuple[list[list[int]], Sequence[str | Sequence[int]], VisionInputs | None]:
    """Return token ids and prompts of the rows of the batch, and what their pictures add."""
    from test_common.prompts import encode_prompts

    prompts: Sequence[str | Sequence[int]] = options.prompts or oracle.inputs
    if not options.prompts:  # the oracle's own are cut to the batch, the user's are not
        prompts = prompts[: options.max_batch_size or oracle.default_batch_size]
    room = _room_for_prompts(oracle, options)
    if images:
        if oracle.task_name == EMBEDDINGS_TASK:
            raise BadInputError(
                f"{options.pipeline} takes images and makes embeddings, and these are run on text "
                "only"
            )
        from test_common.prepared_vision import prepared_vision

        ids, vision = prepared_vision(taking_images(oracle), prompts, images, max_length=room)
        return ids, prompts, vision
    ids = encode_prompts(
        oracle.model_path,
        prompts,
        apply_chat_template=oracle.apply_chat_template,
        add_bos_token=oracle.add_bos_token,
        max_length=room,
        **_hub_arguments(oracle),
    )
    return ids, prompts, None


def _room_for_prompts(oracle: DebuggableOracle, options: DebugOptions) -> int | None:
    """Return the greatest number of tokens that leaves room for the steps, None for no limit."""
    max_length = oracle.config_params.get("max_length")
    if max_length is None:
        return None
    room = int(max_length) - options.num_steps
    if room < 1:
        raise BadInputError(
            f"num_steps {options.num_steps} leaves no room for a prompt: the pipeline's "
            f"max_length is {max_length}"
        )
    return room


def layer_count(options: DebugOptions) -> int | None:
    """Return the number of layers that a run keeps, None for all."""
    if options.num_hidden_layers == ALL_LAYERS:
        return None
    return int(options.hf_config_overrides.get("num_hidden_layers", options.num_hidden_layers))


def _versions(framework: str) -> dict[str, str]:
    """Return the versions of what will run; who runs it says what is not installed."""
    found = {}
    for name in _PACKAGES.get(framework, ()):
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def _draft(
    oracle: DebuggableOracle,
    options: DebugOptions,
    *,
    encoding: str,
    device: str,
    rows: Sequence[Sequence[int]],
    prompts: Sequence[str | Sequence[int]],
    images: Sequence[LoadedImage],
) -> Manifest:
    """Write down what is known before the run."""
    return Manifest(
        engine=options.framework,
        versions=_versions(options.framework),
        model=str(oracle.model_path or options.pipeline),
        pipeline=options.pipeline,
        revision=oracle.config_params.get("huggingface_model_revision"),
        encoding=encoding,
        device=device,
        padding=Padding.NONE,
        rows=tuple(
            Row(prompt=prompt if isinstance(prompt, str) else None, token_ids=tuple(ids))
            for prompt, ids in zip(prompts, rows, strict=True)
        ),
        steps=1 if oracle.task_name == EMBEDDINGS_TASK else options.num_steps,
        seed=options.seed,
        options={
            "num_hidden_layers": options.num_hidden_layers,
            "hf_config_overrides": dict(options.hf_config_overrides),
            "prefer_module_v3": options.prefer_module_v3,
            "filter": list(options.filter),
            "ops": list(options.ops),
            "steps": None if options.steps is None else sorted(options.steps),
            "style": str(options.style),
            "mode": str(options.mode),
            "use_cache": oracle.use_cache,
            "trust_remote_code": options.trust_remote_code,
            "lora": None if oracle.lora_path is None else str(oracle.lora_path),
            "images": [{"source": image.source, "sha256": image.sha256} for image in images],
            "notes": list(adapter_notes(oracle.lora_path, layer_count(options))),
        },
    )
