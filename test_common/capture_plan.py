"""What a capture will be made of, found out without weights and without computing anything.

The Hugging Face model is built on torch's meta device, where tensors have a shape and no memory,
and run there under the same hooks. So names, shapes and aliases are those of the run itself; where
the code of a model looks at values, there are none, and the plan cannot be made.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from comparison.schema.errors import EngineError
from test_common.capture_job import EMBEDDINGS_TASK
from test_common.error_text import describe
from test_common.live_memory import LiveMemory
from test_common.print_style import PrintStyle
from test_common.pt_frame import pt_frame
from test_common.safetensors_step import header_bytes_of_step
from test_common.torch_batch import CACHE_ARGUMENT, ModelCall, check_rows, pad_rows
from test_common.torch_print_hook import TorchPrintHook

if TYPE_CHECKING:
    import torch

    from test_common.print_hook import Filter

# The prefill, and two decode steps, which differ by one token: all others follow from these.
_STEPS_RUN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPlan:
    """What one step captures.

    Attributes:
        tensors: number of tensors.
        files: number of those that are written; the others are aliases of them.
        size_bytes: size of these files.
        flops: floating point operations of the matrix products.
    """

    tensors: int
    files: int
    size_bytes: int
    flops: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturePlan:
    """What a capture is made of.

    Attributes:
        steps: every step of the run that is captured, by its number.
        forwards: floating point operations of every step of the run.
        weight_bytes: size of the model's parameters and buffers, each storage once.
        largest_weight_bytes: size of the largest of them.
        live_bytes: greatest size of all other tensors of the model's run at a time, its cache
            included.
    """

    steps: dict[int, StepPlan]
    forwards: tuple[int, ...]
    weight_bytes: int
    largest_weight_bytes: int
    live_bytes: int

    @property
    def tensors(self) -> int:
        """Number of tensors of all steps."""
        return sum(step.tensors for step in self.steps.values())

    @property
    def files(self) -> int:
        """Number of tensors that are written."""
        return sum(step.files for step in self.steps.values())

    @property
    def size_bytes(self) -> int:
        """Size of all files."""
        return sum(step.size_bytes for step in self.steps.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRun:
    """What is to be run.

    Attributes:
        rows: the token ids of each row.
        num_steps: steps in all.
        embeds: whether the model gives embeddings, in one step.
        use_cache: whether decode steps feed one token only.
        filter: as of the print hook.
        ops: as of the print hook.
        steps: the steps to capture, None for all.
        style: how tensors are written.
    """

    rows: Sequence[Sequence[int]]
    num_steps: int
    embeds: bool = False
    use_cache: bool = True
    filter: Filter | None = None
    ops: Sequence[str] = ()
    steps: Collection[int] | None = None
    style: PrintStyle = PrintStyle.NATIVE


def plan_capture(model: torch.nn.Module, run: PlannedRun) -> CapturePlan:
    """Run a model that holds no values, and count.

    Args:
        model: a model on the meta device.
        run: what is to be run.

    Raises:
        BadInputError: the rows are none for this model.
        EngineError: the model's code looks at values.
    """
    from torch.utils.flop_counter import FlopCounterMode

    check_rows(model, run.rows)
    sink = _CountingSink(run.style)
    hook = _MetaHook(filter=run.filter, sink=sink, ops=run.ops)
    padded = len({len(row) for row in run.rows}) > 1
    live = LiveMemory(model, conditions=not padded)
    flops: list[int] = []
    hook.name_layers(model)
    try:
        with live, FlopCounterMode(display=False) as counter:
            for _ in _forwards(model, run):
                hook.step()
                flops.append(counter.get_total_flops() - sum(flops))
    except Exception as error:  # whatever a model's own code makes of tensors without values
        raise EngineError(
            f"{type(model).__name__} cannot be planned: its code looks at values, and a plan has "
            f"shapes only ({describe(error)}); run it with --max-bytes instead"
        ) from error
    finally:
        hook.discard()
    counted = [
        StepPlan(tensors=tensors, files=files, size_bytes=size, flops=count)
        for (tensors, files, size), count in zip(sink.steps, flops, strict=False)
    ]
    steps = _extended(counted, 1 if run.embeds else run.num_steps)
    wanted = range(len(steps)) if run.steps is None else sorted(run.steps)
    return CapturePlan(
        steps={number: steps[number] for number in wanted if number < len(steps)},
        forwards=tuple(step.flops for step in steps),
        weight_bytes=live.weight_bytes,
        largest_weight_bytes=live.largest_weight_bytes,
        live_bytes=live.most_bytes,
    )


def _extended(steps: list[StepPlan], count: int) -> list[StepPlan]:
    """Add the steps that were not run: each differs from the one before as the last two do."""
    while len(steps) < count:
        before, last = steps[-2:]
        steps.append(
            StepPlan(
                tensors=last.tensors,
                files=last.files,
                size_bytes=2 * last.size_bytes - before.size_bytes,
                flops=2 * last.flops - before.flops,
            )
        )
    return steps[:count]


def _forwards(model: torch.nn.Module, run: PlannedRun) -> Any:
    """Call the model as `run_torch` and `run_torch_encoder` do, and yield after each step."""
    import torch

    call = ModelCall(model, run.rows)
    model.eval()
    side: Literal["left", "right"] = "right" if run.embeds else "left"
    ids, mask = pad_rows(run.rows, 0, side=side, device=torch.device("meta"))
    with torch.no_grad():
        if run.embeds:
            call(ids, mask, positions=False)
            yield
            return
        cache, caching, fed = None, run.use_cache and call.takes_cache, ids
        for _ in range(min(run.num_steps, _STEPS_RUN)):
            output = call(fed, mask, cache=cache, caching=caching)
            cache = getattr(output, CACHE_ARGUMENT, None) if caching else None
            chosen = ids[:, :1]
            ids = torch.cat([ids, chosen], dim=1)
            mask = torch.cat([mask, torch.ones_like(chosen)], dim=1)
            fed = chosen if cache is not None else ids
            del output
            yield


class _MetaHook(TorchPrintHook):
    """A hook that counts tensors which hold no values."""

    def print_value(self, name: str, value: torch.Tensor) -> bool:
        """Count a tensor."""
        self._sink.save(name, value.detach())
        return True

    def discard(self) -> None:
        """Detach without a word on what was captured."""
        self._detach()


class _CountingSink:
    """Counts tensors and the files that they would take.

    Attributes:
        steps: tensors, files and bytes of each step.
    """

    def __init__(self, style: PrintStyle) -> None:
        self.steps: list[tuple[int, int, int]] = []
        self._style = style
        self._links = style in (PrintStyle.NATIVE, PrintStyle.SAFETENSORS)
        self._names: list[str] | None = None
        self._begin()

    def _begin(self) -> None:
        self._tensors = self._files = self._size = 0
        if self._style is PrintStyle.SAFETENSORS:
            self._size = header_bytes_of_step(self._names)
            self._names = []
        self._seen: dict[Any, Any] = {}

    def save(self, name: str, tensor: torch.Tensor) -> None:
        """Count a tensor."""
        from torch.multiprocessing.reductions import StorageWeakRef

        if self._names is not None:
            self._names.append(name)
        self._tensors += 1
        # As long as it is referred to, no other storage gets its number.
        storage = StorageWeakRef(tensor.untyped_storage())
        place = (storage.cdata, tensor.storage_offset(), tensor.shape, tensor.stride())
        key = (*place, tensor.dtype, tensor._version)
        if self._links and key in self._seen:
            return
        self._seen[key] = storage
        self._files += 1
        frame = pt_frame(tensor) if self._style is PrintStyle.NATIVE else None
        self._size += tensor.nbytes + (0 if frame is None else len(frame[0]) + len(frame[1]))

    def step(self) -> None:
        """End a step."""
        self.steps.append((self._tensors, self._files, self._size))
        self._begin()


def planned_run(
    *, rows: Sequence[Sequence[int]], options: Any, task_name: str, use_cache: bool
) -> PlannedRun:
    """Return what a debug run would run.

    Args:
        rows: the token ids of each row.
        options: a `DebugOptions`.
        task_name: the oracle's.
        use_cache: the oracle's.
    """
    return PlannedRun(
        rows=rows,
        num_steps=options.num_steps,
        embeds=task_name == EMBEDDINGS_TASK,
        use_cache=use_cache,
        filter=options.filter or None,
        ops=options.ops,
        steps=options.steps,
        style=options.style,
    )
