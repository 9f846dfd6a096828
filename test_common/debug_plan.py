"""The plan of a debug run: what it will capture, hold and take, before anything is run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from comparison.schema.errors import BadInputError, BudgetError, EngineError
from comparison.schema.manifest import Manifest
from test_common.capture_plan import CapturePlan, plan_capture, planned_run
from test_common.debug_context import debug_context
from test_common.debug_options import DebugOptions
from test_common.debug_writer import queue_bytes_of
from test_common.debuggable_oracle import DebuggableOracle
from test_common.draft_manifest import draft_manifest
from test_common.earlier_run import check_same_run, earlier_manifest
from test_common.early_refusals import refuse_early
from test_common.engine_memory import engine_bytes
from test_common.machine_speed import MachineSpeed, measured_speed
from test_common.mapped_weights import mapped_bytes
from test_common.oracle_errors import checked_result, oracle_errors
from test_common.pipelines import TorchModelAndDataProcessor
from test_common.remote_code import with_trust
from test_common.run_device import resolve_device
from test_common.run_rows import rows_of_run

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class DebugPlan:
    """What a run will be.

    Attributes:
        capture: what is captured, of the Hugging Face model.
        framework: the engine that is to run it.
        encoding: of the weights.
        speed: of this machine; None where nobody asked.
        on_gpu: whether weights and tensors lie in a GPU's memory.
        queue_bytes: greatest size of the copies that wait to be written.
        held_bytes: what the process with the model holds without it.
        mapped_bytes: of the weights that Torch leaves in their files, which are mapped.
        streamed: whether weights stay in their files, and are read one at a time.
    """

    capture: CapturePlan
    framework: str
    encoding: str
    speed: MachineSpeed | None
    on_gpu: bool
    queue_bytes: int
    held_bytes: int
    mapped_bytes: int = 0
    streamed: bool = False

    @property
    def weight_bytes(self) -> int:
        """Of the weights that are held at a time."""
        if self.streamed:
            return self.capture.largest_weight_bytes
        return self.capture.weight_bytes - self.mapped_bytes

    @property
    def memory_bytes(self) -> int:
        """Main memory that the process with the model needs at most."""
        model = 0 if self.on_gpu else self.weight_bytes + self.capture.live_bytes
        return self.held_bytes + model + self.queue_bytes

    @property
    def forward_seconds(self) -> float:
        """How long the forwards take: each reads all weights, and computes its products."""
        if self.speed is None:
            return 0.0
        reading = self.capture.weight_bytes / self.speed.memory_bytes
        return sum(max(flops / self.speed.flops, reading) for flops in self.capture.forwards)

    @property
    def hook_seconds(self) -> float:
        """How long hooks hold the model up: each small tensor's share, and copies of large ones."""
        if self.speed is None:
            return 0.0
        copying = self.capture.size_bytes / self.speed.memory_bytes
        return self.capture.tensors * self.speed.tensor_seconds + copying

    @property
    def write_seconds(self) -> float:
        """How long writing takes by itself."""
        return 0.0 if self.speed is None else self.capture.size_bytes / self.speed.write_bytes

    @property
    def seconds(self) -> float:
        """How long all takes: hooks hold the model up, writing goes on beside it."""
        return max(self.forward_seconds + self.hook_seconds, self.write_seconds)


def plan_debug_run(
    oracle: DebuggableOracle, options: DebugOptions, *, measures: bool = True
) -> DebugPlan:
    """Find out what a run will capture, without its weights.

    Args:
        oracle: says how to build the model.
        options: what is to be run.
        measures: whether to measure how fast this machine is.

    Raises:
        BadInputError: the options do not fit the model or this machine, the model takes
            pictures, or the dump to go on with is of another run.
        EngineError: the model cannot be built or run without values.
    """
    oracle = with_trust(oracle, trusted=options.trust_remote_code)
    refuse_early(
        oracle,
        encoding=options.encoding,
        device=options.device,
        num_hidden_layers=options.num_hidden_layers,
        overrides=options.hf_config_overrides,
    )
    import torch

    if oracle.takes_images:
        raise BadInputError(
            f"{options.pipeline} takes pictures, and what it is given is known in a run only: a "
            "plan is made of models of text; run it with --max-bytes instead"
        )
    with debug_context(oracle, options):
        rows = rows_of_run(oracle, options, ())
    device = resolve_device(options.device, framework=options.framework)
    encoding = oracle.resolve_encoding(options.encoding, device_type=device.partition(":")[0])
    with debug_context(oracle, options):
        if options.resume:
            draft = draft_manifest(
                oracle, options, encoding=encoding, device=device, rows=rows, images=()
            )
            _check_resumed(options, draft)
        model = _model_without_values(oracle, encoding)
        run = planned_run(
            rows=rows.token_ids,
            options=options,
            task_name=oracle.task_name,
            use_cache=oracle.use_cache,
        )
        capture = plan_capture(model, run)
    on_gpu = device != "cpu"
    speed = None
    if measures:
        place = torch.device("cuda" if on_gpu and torch.cuda.is_available() else "cpu")
        out = options.output or Path.cwd()
        speed = measured_speed(out, dtype=_computed_in(model), device=place)
    return DebugPlan(
        capture=capture,
        framework=options.framework,
        encoding=encoding,
        speed=speed,
        on_gpu=on_gpu,
        queue_bytes=min(queue_bytes_of(options), capture.size_bytes),
        held_bytes=engine_bytes(
            options.framework,
            caches=not on_gpu and not run.embeds,
            ranks=options.tensor_parallel_size or 1,
        ),
        mapped_bytes=_mapped(oracle, model) if options.framework == "torch" and not on_gpu else 0,
        streamed=options.stream,
    )


def check_budget(plan: DebugPlan, options: DebugOptions) -> None:
    """Refuse a run that will come to one of its limits.

    Args:
        plan: of the run.
        options: of the run.

    Raises:
        BudgetError: the run will write or hold more than it may.
    """
    problems = []
    size, memory = plan.capture.size_bytes, plan.memory_bytes
    if options.max_bytes is not None and size > options.max_bytes:
        problems.append(
            f"the dump will take {shown_size(size)}, more than --max-bytes "
            f"{shown_size(options.max_bytes)}: choose with --filter and --steps"
        )
    problems += _memory_problems(memory, options)
    if problems:
        raise BudgetError("; ".join(problems))


def check_memory(plan: DebugPlan, options: DebugOptions) -> None:
    """Refuse a run that will hold too much; one that writes too much is cut when it does.

    Raises:
        BudgetError: the run will hold more than it may.
    """
    problems = _memory_problems(plan.memory_bytes, options)
    if problems:
        raise BudgetError("; ".join(problems))


def _memory_problems(memory_bytes: int, options: DebugOptions) -> list[str]:
    """Say whether a run will hold more memory than it may."""
    if options.max_memory is None or memory_bytes <= options.max_memory:
        return []
    return [
        f"the run will hold {shown_size(memory_bytes)}, more than --max-memory "
        f"{shown_size(options.max_memory)}: take fewer layers, a smaller encoding or a shorter "
        "prompt"
    ]


def shown_size(size_bytes: int) -> str:
    """Write a size as people do."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size_bytes >= factor:
            return f"{size_bytes / factor:.1f} {unit}"
    return f"{size_bytes} bytes"


def _check_resumed(options: DebugOptions, draft: Manifest) -> None:
    """Refuse what the run would refuse: to go on with the dump of another run."""
    earlier = None if options.output is None else earlier_manifest(options.output)
    if options.output is not None and earlier is not None:
        check_same_run(options.output, earlier, draft)


def _model_without_values(oracle: DebuggableOracle, encoding: str) -> torch.nn.Module:
    """Build the Torch model on the meta device; an oracle that loads weights all the same may."""
    with oracle_errors(oracle, "create_torch_pipeline"):
        built = checked_result(
            oracle,
            "create_torch_pipeline",
            oracle.create_torch_pipeline(encoding=encoding, device="meta"),
            TorchModelAndDataProcessor,
        )
    model: Any = built.model
    try:
        return model.to("meta")
    except Exception as error:  # it is an oracle's own class
        raise EngineError(f"{type(model).__name__} cannot be put on the meta device") from error


def _mapped(oracle: DebuggableOracle, model: torch.nn.Module) -> int:
    revision = oracle.config_params.get("huggingface_model_revision")
    return mapped_bytes(model, oracle.model_path, revision=revision)


def _computed_in(model: torch.nn.Module) -> torch.dtype:
    import torch

    dtype = next((parameter.dtype for parameter in model.parameters()), torch.float32)
    return dtype if dtype.is_floating_point and dtype.itemsize > 1 else torch.float32
