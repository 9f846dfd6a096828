"""What the reference computes inside the guilty module, operation by operation.

The module runs again on what the candidate gave it, twice: in float64, and in float64 with every
operation's result rounded to the dtype that it has in the run. The difference is the rounding that
has to be expected of each operation. Both runs take the same course, which a run in the narrow
dtype would not: casts come and go with the dtype.

Legend: T tokens of a row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from comparison.numerics.dtypes import Array
from comparison.schema.operations import CapturedOperation, StepOperations
from diagnosis.causes.module_calls import ModuleCall
from diagnosis.causes.region import Region
from diagnosis.drill.rounding import rounding_mode
from diagnosis.replay.float64_mode import LongestSum
from diagnosis.replay.reference_trace import as_array
from test_common.op_capture_torch import TorchOperations
from test_common.tensor_tree import input_tensors

if TYPE_CHECKING:
    import torch

INPUT = "input"  # as an operation: what the module is given


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceOutput:
    """What one operation of the reference gives.

    Attributes:
        name: its name.
        order: position in the order of execution; -1 for what the module is given.
        operation: the operation; None for what the module is given.
        exact: its values in float64, one array a row, as computed.
        rounded: the same, every result on the way rounded.
        longest_sum: terms of the longest sum of products so far.
    """

    name: str
    order: int
    operation: CapturedOperation | None
    exact: tuple[Array, ...] = field(repr=False)
    rounded: tuple[Array, ...] = field(repr=False)
    longest_sum: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceOperations:
    """The operations inside a module of the reference.

    Attributes:
        outputs: in order of execution, what the module is given first.
        step: how they hang together.
    """

    outputs: tuple[ReferenceOutput, ...]
    step: StepOperations


def reference_operations(region: Region) -> ReferenceOperations | None:
    """Run the guilty module and take its operations down.

    Args:
        region: the module, with what the candidate gave it.

    Returns:
        None where its rows do not take the same course.
    """
    exact = [*_recorded(region, rounds=False)]
    rounded = [*_recorded(region, rounds=True)]
    if not exact or len({tuple(run.values) for run in [*exact, *rounded]}) != 1:
        return None
    step = exact[0].step
    made = {
        output.name: (order, operation)
        for order, operation in enumerate(step.operations)
        for output in operation.outputs
    }
    outputs = [_given(name, region) for name in _inputs_of(region, region.calls[0])]
    for name in exact[0].values:
        order, operation = made[name]
        outputs.append(
            ReferenceOutput(
                name=name,
                order=order,
                operation=operation,
                exact=tuple(run.values[name] for run in exact),
                rounded=tuple(run.values[name] for run in rounded),
                longest_sum=max(run.longest[name] for run in exact),
            )
        )
    return ReferenceOperations(outputs=tuple(outputs), step=step)


@dataclass(slots=True)
class _Run:
    """One row's run.

    Attributes:
        values: by name of the output.
        longest: terms of the longest sum of products until it was there.
        step: how the operations hang together.
    """

    values: dict[str, Array] = field(default_factory=dict)
    longest: dict[str, int] = field(default_factory=dict)
    step: StepOperations = field(default_factory=lambda: StepOperations(operations=()))


def _recorded(region: Region, *, rounds: bool) -> Iterator[_Run]:
    runs: list[_Run] = []

    @contextmanager
    def recording() -> Iterator[None]:
        run = _Run()
        runs.append(run)
        rounding = rounding_mode(str(region.first.dtype)) if rounds else None
        with rounding or nullcontext(), _watched_operations(region, run, rounding):
            yield

    region.values(recording)
    yield from runs


@contextmanager
def _watched_operations(region: Region, run: _Run, rounding: Any) -> Iterator[None]:
    """Record the operations of the region's module, but for those of hooks that watch it."""
    recorder = _Recorder([region.name], run)
    recorder.name_weights(region.module, region.name)
    handles = [
        handle
        for path, module in region.module.named_modules()
        for handle in _attached(recorder, module, f"{region.name}.{path}".rstrip("."), rounding)
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
        recorder.leave_all()
        run.step = recorder.take_step() or run.step


def _attached(
    recorder: _Recorder, module: torch.nn.Module, path: str, rounding: Any
) -> Iterator[Any]:
    """Attach around the hooks that are there already: what these run is none of the module's."""

    def quiet(*_: Any) -> None:
        recorder.overlook(True)

    def computed(_: Any, args: tuple[Any, ...], output: Any) -> None:
        del args
        recorder.note_outputs(recorder.open_call, output)
        recorder.overlook(True)

    def before(_: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        recorder.enter(path, recorder.call_name(path), args, kwargs)
        recorder.overlook(False)

    def after(_: Any, args: tuple[Any, ...], output: Any) -> None:
        del args
        if rounding is not None:
            rounding.forget(output)
        recorder.leave(recorder.end_call(), output)
        recorder.overlook(False)

    yield module.register_forward_pre_hook(quiet, prepend=True)
    yield module.register_forward_pre_hook(before, with_kwargs=True)
    yield module.register_forward_hook(computed, prepend=True)
    yield module.register_forward_hook(after)


class _Recorder(TorchOperations):
    """Keeps values in memory, with the longest sum that went into each."""

    def __init__(self, globs: list[str], run: _Run) -> None:
        super().__init__(globs, self._keep, saves_views=True)
        self._run = run
        self._sums = LongestSum()
        self._longest = 0
        self._calls: Counter[str] = Counter()
        self._open: list[str] = []

    def call_name(self, path: str) -> str:
        """Name a call that begins."""
        self._calls[path] += 1
        count = self._calls[path]
        self._open.append(path if count == 1 else f"{path}({count})")
        return self._open[-1]

    @property
    def open_call(self) -> str:
        """The name of the call that began last."""
        return self._open[-1]

    def end_call(self) -> str:
        """Name the call that ends."""
        return self._open.pop()

    def overlook(self, paused: bool) -> None:
        """Overlook what runs from now on, or no more."""
        self._paused = paused

    def run(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Run one operation and take it down."""
        if not self._paused and hasattr(func, "overloadpacket"):
            self._sums.note(func.overloadpacket.__name__, args)
            self._longest = max(self._longest, self._sums.take())
        return super().run(func, args, kwargs)

    def _keep(self, name: str, tensor: torch.Tensor) -> bool:
        from torch.utils._python_dispatch import _disable_current_modes

        if tensor.is_complex():
            return False
        with _disable_current_modes():  # reading a value is no operation of the module
            self._run.values[name] = as_array(tensor).copy()
        self._run.longest[name] = self._longest
        return True


def _is_tensor(value: Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor)


def _inputs_of(region: Region, call: ModuleCall) -> dict[str, Any]:
    tree = input_tensors(call.args, call.kwargs, is_tensor=_is_tensor)
    return {f"{region.name}-{suffix}": tensor for suffix, tensor in tree.tensors}


def _given(name: str, region: Region) -> ReferenceOutput:
    """Take what the module is given, the candidate's own values, as if it were an output."""
    values = tuple(as_array(_inputs_of(region, call)[name]) for call in region.calls)
    return ReferenceOutput(name=name, order=-1, operation=None, exact=values, rounded=values)
