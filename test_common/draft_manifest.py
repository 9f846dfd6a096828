"""The manifest of a debug run as far as it is known before."""

from __future__ import annotations

from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from comparison.schema.manifest import Manifest, Padding, Row
from test_common.capture_job import EMBEDDINGS_TASK
from test_common.debug_options import DebugOptions
from test_common.debuggable_oracle import DebuggableOracle
from test_common.early_refusals import model_layers
from test_common.lora_notes import adapter_notes
from test_common.run_rows import RunRows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from test_common.images import LoadedImage

# Whose versions a run is told by; vLLM's are those of another environment.
_PACKAGES = {"max": ("max", "transformers"), "torch": ("torch", "transformers")}


def draft_manifest(
    oracle: DebuggableOracle,
    options: DebugOptions,
    *,
    encoding: str,
    device: str,
    rows: RunRows,
    images: Sequence[LoadedImage],
) -> Manifest:
    """Write down what is known before the run.

    Args:
        oracle: says what is run.
        options: of the run.
        encoding: of the weights.
        device: as resolved.
        rows: of the batch.
        images: that every row gets.
    """
    return Manifest(
        engine=options.framework,
        versions=_versions(options.framework),
        model=str(oracle.model_path or options.pipeline),
        pipeline=options.pipeline,
        revision=oracle.config_params.get("huggingface_model_revision"),
        encoding=encoding,
        device=device,
        padding=_padding(oracle, options, rows),
        rows=tuple(
            Row(prompt=prompt if isinstance(prompt, str) else None, token_ids=tuple(ids))
            for prompt, ids in zip(rows.prompts, rows.token_ids, strict=True)
        ),
        steps=1 if oracle.task_name == EMBEDDINGS_TASK else options.num_steps,
        seed=options.seed,
        options={
            "num_hidden_layers": options.num_hidden_layers,
            "model_layers": model_layers(oracle.model_path),
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
            "notes": list(adapter_notes(oracle.lora_path, options.kept_layers)),
        },
    )


def _padding(oracle: DebuggableOracle, options: DebugOptions, rows: RunRows) -> Padding:
    """Tell how the rows will share a batch, which a run that is cut off does not get to say."""
    embeds = oracle.task_name == EMBEDDINGS_TASK
    if options.framework != "torch":
        return Padding.RIGHT if embeds and options.framework == "max" else Padding.RAGGED
    if len({len(ids) for ids in rows.token_ids}) < 2:
        return Padding.NONE
    return Padding.RIGHT if embeds else Padding.LEFT


def _versions(framework: str) -> dict[str, str]:
    """Return the versions of what will run; who runs it says what is not installed."""
    found = {}
    for name in _PACKAGES.get(framework, ()):
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found
