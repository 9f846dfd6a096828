"""The operations that PyTorch runs inside of modules, seen by a dispatch mode."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from comparison.schema.operations import (
    CONSTANT_PREFIX,
    WEIGHT_PREFIX,
    Argument,
    CapturedOperation,
    OperationOutput,
    StepOperations,
)
from test_common.op_capture import OperationLog, output_names, source_line
from test_common.tensor_tree import input_tensors, output_tensors
from test_common.torch_tensors import reason_unreadable

if TYPE_CHECKING:
    import torch

# What these give holds no values yet.
_UNFILLED = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided")
_PLAIN = (bool, int, float, str)
_MOST_MARKED = 1 << 26  # elements of a memory of which overlaps are looked up


class TorchOperations:
    """Takes down every operation while a module runs whose name matches.

    Whoever owns the hooks of the modules tells of their calls. Between the first matching call
    and its end, a dispatch mode shows every operation that reaches PyTorch's dispatcher, custom
    ones included; what a fused kernel does inside remains one operation.
    """

    def __init__(
        self,
        globs: Sequence[str],
        save: Callable[[str, torch.Tensor], bool],
        *,
        saves_views: bool = False,
    ) -> None:
        """Make a capture that sees nothing yet.

        Args:
            globs: names of the modules.
            save: takes an output by its name as soon as it is there, and tells whether it did.
            saves_views: whether it is given views as well.
        """
        from torch.utils.weak import WeakTensorKeyDictionary

        self.log = OperationLog(globs)
        self._save, self._saves_views = save, saves_views
        self._mode: Any = None
        self._calls_inside = 0  # those that the mode has to stay on for
        self._paused = False
        self._thread: int | None = None
        self._names: Any = WeakTensorKeyDictionary()
        self._weights: Any = WeakTensorKeyDictionary()

    def name_weights(self, model: torch.nn.Module, root: str) -> None:
        """Learn the weights and buffers of a model.

        Args:
            model: the model.
            root: what stands before their paths.
        """
        for tensors in (model.named_parameters(), model.named_buffers()):
            for path, tensor in tensors:
                self._weights.setdefault(tensor, f"{WEIGHT_PREFIX}{root}.{path}")

    def enter(self, path: str, call_name: str, args: Sequence[Any], kwargs: Any) -> None:
        """Note that a module begins.

        Args:
            path: the module's name.
            call_name: the name for the tensors of this call.
            args: what it is given.
            kwargs: what it is given by keyword.
        """
        if not self._is_own_thread():
            return
        self.log.begin_call(path, call_name)
        if not self.log.is_on:
            return
        self._note(call_name, input_tensors(args, kwargs, is_tensor=_is_tensor).tensors)
        self._calls_inside += 1
        if self._mode is None:
            self._mode = _mode_of(self)
            self._mode.__enter__()

    def leave(self, call_name: str, outputs: Any) -> None:
        """Note that the module that began last has ended.

        Args:
            call_name: as it began.
            outputs: what it gives; None after an exception.
        """
        if not self._is_own_thread():
            return
        if self.log.is_on:
            self.note_outputs(call_name, outputs)
            self._calls_inside -= 1
            if self._calls_inside == 0:
                self._switch_off()
        self.log.end_call()

    def note_outputs(self, call_name: str, outputs: Any) -> None:
        """Note what a module gives, before anyone puts other tensors in its place.

        Args:
            call_name: the name for the tensors of this call.
            outputs: what it gives.
        """
        self._note(call_name, output_tensors(outputs, is_tensor=_is_tensor).tensors)

    def leave_all(self) -> None:
        """Note that nothing runs any more, however that came about."""
        self.log.leave_all()
        self._calls_inside = 0
        self._switch_off()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Overlook what runs inside of the block."""
        before, self._paused = self._paused, True
        try:
            yield
        finally:
            self._paused = before

    def take_step(self) -> StepOperations | None:
        """Return what was taken down since the last step, None where that is nothing."""
        step = self.log.step_so_far()
        self.log.end_step()
        self._names.clear()
        return step

    def run(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Run one operation and take it down."""
        if self._paused or not self.log.is_on or not hasattr(func, "_schema"):
            return func(*args, **kwargs)
        given = _Given.of(func, args, kwargs)
        inputs = tuple(self._name(tensor) for tensor in given.tensors)
        before = [_storage(tensor) for tensor in given.tensors]
        result = func(*args, **kwargs)
        outputs = _outputs(result, given)
        name = self.log.next_name(func.overloadpacket.__name__)
        source = source_line(_is_torch)
        records = []
        for out_name, tensor in zip(output_names(name, len(outputs)), outputs, strict=True):
            view_of = None
            if not _is_one_of(tensor, given.written):
                view_of = _viewed(tensor, inputs, before)
            else:
                self._overwrite(tensor, out_name)
            unfilled = func.overloadpacket.__name__ in _UNFILLED
            wanted = not unfilled and (view_of is None or self._saves_views)
            saved = wanted and self._save(out_name, tensor)
            self._names[tensor] = out_name
            records.append(
                OperationOutput(
                    name=out_name,
                    dtype=str(tensor.dtype).removeprefix("torch."),
                    shape=tuple(tensor.shape),
                    view_of=view_of,
                    saved=saved,
                )
            )
        self.log.add(
            CapturedOperation(
                op=str(func),
                module=self.log.module,
                inputs=inputs,
                arguments=given.plain,
                outputs=tuple(records),
                source=source,
            )
        )
        return result

    def _is_own_thread(self) -> bool:
        """Tell whether this thread is the first one that was seen: others would mix their calls."""
        if self._thread is None:
            self._thread = threading.get_ident()
        return self._thread == threading.get_ident()

    def _switch_off(self) -> None:
        mode, self._mode = self._mode, None
        if mode is not None:
            mode.__exit__(None, None, None)

    def _note(self, call_name: str, tensors: Sequence[tuple[str, Any]]) -> None:
        """Name what a module is given, and tell what of it an operation made."""
        for suffix, tensor in tensors:
            name = f"{call_name}-{suffix}"
            known = self._names.get(tensor)
            if known is None:
                self._names[tensor] = name
            else:
                self.log.tell(name, known)

    def _name(self, tensor: torch.Tensor) -> str:
        name = self._names.get(tensor) or self._weights.get(tensor)
        if name is not None:
            return str(name)
        kind = str(tensor.dtype).removeprefix("torch.")
        if tensor.numel() == 1 and tensor.device.type == "cpu" and not reason_unreadable(tensor):
            return f"{CONSTANT_PREFIX}{tensor.item()!r}"
        return f"{CONSTANT_PREFIX}{kind}{list(tensor.shape)}"

    def _overwrite(self, tensor: torch.Tensor, name: str) -> None:
        """Let all that shares elements with a tensor be what was just written there."""
        place = _storage(tensor)
        if place is None:
            return
        sharing = [other for other in self._names if _storage(other) == place]
        for other in sharing if len(sharing) < 2 else _overlapping(tensor, sharing):
            self._names[other] = name


@dataclass(frozen=True, slots=True, kw_only=True)
class _Given:
    """What an operation is given.

    Attributes:
        tensors: its tensors, in order.
        written: those of them that it changes.
        plain: its other arguments.
    """

    tensors: list[Any]
    written: list[Any]
    plain: dict[str, Argument]

    @classmethod
    def of(cls, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> _Given:
        """Sort the arguments by the operation's schema."""
        declared = func._schema.arguments
        named = [*zip(declared, args, strict=False)]
        named += [
            (argument, kwargs[argument.name]) for argument in declared if argument.name in kwargs
        ]
        tensors: list[Any] = []
        written: list[Any] = []
        plain: dict[str, Argument] = {}
        for argument, value in named:
            found = _tensors_in(value)
            tensors += found
            if argument.alias_info is not None and argument.alias_info.is_write:
                written += found
            if not found and (kept := _plain(value)) is not None:
                plain[argument.name] = kept
        return cls(tensors=tensors, written=written, plain=plain)


def _mode_of(operations: TorchOperations) -> Any:
    """Make a dispatch mode, a class that exists only with torch."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class _Watching(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
        ) -> Any:
            del types
            return operations.run(func, args, kwargs or {})

    return _Watching()


def _outputs(result: Any, given: _Given) -> list[Any]:
    """List what an operation returns, and what it changes without returning it."""
    found = _tensors_in(result)
    return [*found, *(t for t in given.written if not _is_one_of(t, found))]


def _tensors_in(value: Any) -> list[Any]:
    if _is_tensor(value):
        return [value]
    if isinstance(value, list | tuple):
        return [tensor for item in value for tensor in _tensors_in(item)]
    return []


def _plain(value: Any) -> Argument | None:
    """Return an argument that a file can hold, None for what tells nothing."""
    if isinstance(value, list | tuple):
        parts = [_plain(item) for item in value]
        plain = all(isinstance(part, _PLAIN) for part in parts)
        return tuple(parts) if parts and plain else None  # type: ignore[arg-type]  # all are plain
    if isinstance(value, _PLAIN):
        return value
    kind = type(value)
    if kind.__module__ == "torch" and kind.__name__ in ("dtype", "memory_format"):
        return str(value).removeprefix("torch.")
    return None


def _is_tensor(value: Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor)


def _is_one_of(tensor: Any, others: Sequence[Any]) -> bool:
    return any(tensor is other for other in others)


def _storage(tensor: torch.Tensor) -> int | None:
    """Return where a tensor's memory begins, None where it has none to share."""
    if tensor.is_meta:  # a plan is made: there is no memory, but what shares it is known
        return tensor.untyped_storage()._cdata
    if reason_unreadable(tensor) is not None or tensor.numel() == 0:
        return None
    return tensor.untyped_storage().data_ptr()


def _overlapping(tensor: torch.Tensor, others: Sequence[Any]) -> list[Any]:
    """Return those of the tensors in one memory that have elements of a tensor."""
    import torch

    size = tensor.untyped_storage().nbytes() // tensor.element_size()
    if size > _MOST_MARKED:  # a cache; what is written there is not looked up in detail
        return [other for other in others if _layout(other) == _layout(tensor)]
    marks = torch.zeros(size, dtype=torch.bool)
    torch.as_strided(marks, *_layout(tensor)).fill_(True)
    return [
        other
        for other in others
        if other.element_size() != tensor.element_size()
        or bool(torch.as_strided(marks, *_layout(other)).any())
    ]


def _layout(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tuple(tensor.shape), tensor.stride(), tensor.storage_offset()


def _viewed(
    tensor: torch.Tensor, inputs: Sequence[str], storages: Sequence[int | None]
) -> str | None:
    """Name the input whose memory a tensor is."""
    place = _storage(tensor)
    if place is None:
        return None
    return next((name for name, own in zip(inputs, storages, strict=True) if own == place), None)


def _is_torch(file: str) -> bool:
    return file.startswith(_torch_folder())


def _torch_folder() -> str:
    import torch

    return f"{Path(torch.__file__).parent}/"
