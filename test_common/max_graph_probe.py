"""What graph MAX builds for a model, without compiling it: seconds instead of minutes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from comparison.schema.manifest import Manifest, Padding
from test_common.capture_job import CaptureJob
from test_common.capture_max import device_specs, graph_patches
from test_common.debug_context import debug_context
from test_common.debug_options import DebugOptions
from test_common.debuggable_oracle import DebuggableOracle
from test_common.patching import Patch, apply_patches
from test_common.run_device import resolve_device

_API = "building the graph of a pipeline without compiling it"
_REMOVE = "a pipeline of MAX gives its graph"
_SAMPLED = 4096  # values of a weight


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltGraph:
    """What was handed to the compiler.

    Attributes:
        graphs: hash of the text of each graph, in order.
        weights: hash of a sample of the values of all weights.
        failed: why no graph came to be; empty where one did.
    """

    graphs: tuple[str, ...]
    weights: str
    failed: str = ""


def build_max_graph(oracle: DebuggableOracle, options: DebugOptions, *, rows: int) -> BuiltGraph:
    """Build a pipeline as a capture does, up to the point where its graphs would be compiled.

    Args:
        oracle: builds the pipeline.
        options: of the run, with the configuration that is wanted.
        rows: number of rows of the run.
    """
    probe = _Probe()
    failed = ""
    with debug_context(oracle, options) as overrides:
        job = _job(oracle, options, rows, overrides)
        graph_of = [*graph_patches(oracle, job), *probe.patches()]
        failed = _build(oracle, job, graph_of, probe)
    return BuiltGraph(graphs=tuple(probe.graphs), weights=probe.weights.hexdigest(), failed=failed)


def _job(
    oracle: DebuggableOracle, options: DebugOptions, rows: int, overrides: Mapping[str, Any]
) -> CaptureJob:
    device = resolve_device(options.device, framework="max")
    encoding = oracle.resolve_encoding(options.encoding, device_type=device.partition(":")[0])
    draft = Manifest(
        engine="max",
        versions={},
        model=str(oracle.model_path),
        pipeline=options.pipeline,
        encoding=encoding,
        device=device,
        padding=Padding.NONE,
        rows=(),
        steps=1,
    )
    return CaptureJob(
        draft=draft,
        rows=[[0]] * rows,
        num_steps=1,
        encoding=encoding,
        device=device,
        num_hidden_layers=options.kept_layers,
        overrides=overrides,
        prefer_module_v3=options.prefer_module_v3,
    )


def _build(
    oracle: DebuggableOracle, job: CaptureJob, patches: Sequence[Patch], probe: _Probe
) -> str:
    """Build, and say why no graph came to be."""
    failed = ""
    with apply_patches(patches):
        try:
            oracle.create_max_pipeline(encoding=job.encoding, device_specs=device_specs(job.device))
        # Behind its graphs a pipeline finds no model that it could run; before, the value is one
        # that the engine refuses.
        except Exception as error:
            failed = "" if probe.graphs else f"{type(error).__name__}: {error}"
    return failed


class _Probe:
    """Takes graphs and weights instead of compiling and loading them."""

    def __init__(self) -> None:
        self.graphs: list[str] = []
        self.weights = hashlib.sha256()

    def patches(self) -> Iterator[Patch]:
        from max.engine import InferenceSession

        replacements: tuple[tuple[str, Any], ...] = (
            ("compile_reusing_mefs", self._take_graph),
            ("compile", self._take_graph),
            ("init_all", self._take_weights),
        )
        for name, replacement in replacements:
            yield Patch(
                target=InferenceSession,
                name=name,
                replacement=replacement,
                wraps=True,
                missing_api=_API,
                remove_when=_REMOVE,
            )

    def _take_graph(self, original: Callable[..., Any]) -> Callable[..., Any]:
        del original

        def compile_nothing(session: Any, model: Any, *args: Any, **kwargs: Any) -> Any:
            del session, args, kwargs
            module = getattr(model, "module", model)
            text = str(getattr(module, "mlir_module", module))
            self.graphs.append(hashlib.sha256(text.encode()).hexdigest())
            names = tuple(module.top_level_graph_names())
            return SimpleNamespace(_graph_names=names)

        return compile_nothing

    def _take_weights(self, original: Callable[..., Any]) -> Callable[..., Any]:
        del original

        def init_nothing(
            session: Any, compiled: Any, *, weights_registry: Mapping[str, Any] | None = None
        ) -> Any:
            del session
            for name, value in sorted((weights_registry or {}).items()):
                self.weights.update(name.encode() + _sample(value))
            return {name: SimpleNamespace() for name in compiled._graph_names}

        return init_nothing


def _sample(value: Any) -> bytes:
    """Return some bytes of a weight, spread over all of it."""
    import torch

    with suppress(TypeError, RuntimeError, BufferError):  # what torch has no dtype for
        flat = torch.from_dlpack(value).reshape(-1)
        step = max(flat.numel() // _SAMPLED, 1)
        return bytes(flat[::step].contiguous().view(torch.uint8).numpy().tobytes())
    return b""
