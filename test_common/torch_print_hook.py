"""The print hook for PyTorch models."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Container, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from comparison.schema.manifest import Manifest, Padding
from test_common.console_sink import ConsoleSink
from test_common.dump_writer import DumpWriter
from test_common.error_text import describe
from test_common.module_calls import FoundModule, ModuleCalls, is_callable, is_script, walk_modules
from test_common.op_capture_torch import TorchOperations
from test_common.print_hook import BasePrintHook, Filter, TensorSink
from test_common.torch_tensors import own_part, reason_unreadable
from test_common.write_queue import useful_queue_bytes

if TYPE_CHECKING:
    import torch

_NOT_CALLED = (
    "registered but its hook never ran: an unused branch, or called by .forward() directly "
    "(hooks need module(...)), or run inside torch.compile"
)
_COMPILED = "runs inside torch.compile, where hooks do not run: run the model without it"

_SCRIPTED = "a ScriptModule, which runs no hooks: use the model before torch.jit"


class TorchPrintHook(BasePrintHook):
    """Saves or prints every input and output of every module of a PyTorch model.

    Inputs are taken before the module runs and outputs right after it, so that later changes in
    place do not show. With `export_path` each tensor goes to `export_path/<step>/<name>.pt`, else
    an abbreviated form goes to the console.

        hook = TorchPrintHook(export_path="/tmp/torch_tensors")
        hook.name_layers(model)
        model(input_ids)
        hook.remove()
    """

    def __init__(
        self,
        export_path: str | Path | None = None,
        filter: Filter | None = None,  # the documented name
        *,
        sink: TensorSink | None = None,
        overwrite: bool = False,
        steps: Container[int] | None = None,
        ops: Sequence[str] = (),
    ) -> None:
        """Make a hook; `name_layers` attaches it.

        Args:
            export_path: folder for the tensors, made when the first one is saved.
            filter: a glob, several globs (matched with module and tensor names), or a function
                from the tensor's name to whether to keep it.
            sink: where to put tensors instead of `export_path` or the console; whoever gives it
                also writes the manifest.
            overwrite: whether an earlier dump in `export_path` may be replaced.
            steps: the steps to capture, None for all.
            ops: globs of the modules whose operations are captured too, each by itself.

        Raises:
            TypeError: `export_path`, `filter`, `steps` or `ops` is of another kind.
            ValueError: both `export_path` and `sink` are given, or `export_path` is empty.
            UnwritableOutputError: `export_path` cannot be used.
        """
        super().__init__(filter, steps, ops)
        if export_path is not None and sink is not None:
            raise ValueError("give export_path or sink, not both")
        if export_path is not None and not isinstance(export_path, str | os.PathLike):
            raise TypeError(f"export_path must be the path of a folder, found {export_path!r:.80}")
        if export_path == "":
            raise ValueError("export_path is empty: name a folder, or leave it out to print")
        self._writer: DumpWriter | None = None
        if export_path is not None:
            self._writer = DumpWriter(
                Path(export_path), overwrite=overwrite, queue_bytes=useful_queue_bytes()
            )
        self._manifest: Manifest | None = None
        own = ConsoleSink() if self._writer is None else self._writer
        self._sink: TensorSink = own if sink is None else sink
        self._module_calls = ModuleCalls(self)
        self._compiled: set[str] = set()
        self._roots: dict[str, torch.nn.Module] = {}
        self._operations: TorchOperations | None = None
        self._placed: Counter[str] = Counter()  # DTensors, by how they are spread over ranks

    def name_layers(self, model: torch.nn.Module, name: str = "model") -> None:
        """Attach the hook to every module that can be called.

        Modules are named by their path below `name`. One that is registered under two paths is
        hooked once, and the other path noted. Naming the same model again takes in modules that
        were exchanged; a second model is called `model2`. After `remove()` the hook begins a new
        step, if the last one holds anything.

        Args:
            model: the model.
            name: name of its root.

        Raises:
            TypeError: the model is no module, or a ScriptModule; or the name is no text.
            UnwritableOutputError: the manifest cannot be written.
        """
        _check_model(model, name)
        if self._writer is not None and (self._manifest is None or self._removed):
            self._manifest = self._manifest or _describe(model)
            self._writer.start(self._manifest)
        if self._removed and self._recorded.get(self._step):
            self.step()
        self._removed = False
        root = self._root_name(model, name)
        if self._ops:
            self._operations = self._operations or TorchOperations(
                self._ops, self.capture_operation
            )
            self._operations.name_weights(model, root)
        for found in walk_modules(model, root):
            self._hook(found)

    def step(self) -> None:
        """End a step: tensors of the next one go to the next folder."""
        self._drop_open_calls()
        self._write_operations()
        super().step()
        self._sink.step()

    def is_tensor(self, value: Any) -> bool:
        """Tell a tensor."""
        import torch

        return isinstance(value, torch.Tensor)

    def print_value(self, name: str, value: torch.Tensor) -> bool:
        """Save or print a tensor; note why where that is impossible."""
        value, placed = own_part(value)
        reason = reason_unreadable(value)
        if reason is not None:
            self.skip(name, reason)
            return False
        try:
            self._sink.save(name, value.detach() if value.requires_grad else value)
        # Never end the model's own run for one tensor; a disk that is full is another matter.
        except (RuntimeError, TypeError, ValueError, MemoryError) as error:
            if isinstance(error, OSError):  # as our own error of the folder is
                raise
            self.skip(name, f"cannot be saved: {describe(error)}")
            return False
        if placed is not None:
            self._placed[placed] += 1
        return True

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the dump has to know of operations, and of tensors spread over ranks."""
        counts = ", ".join(f"{count} of {placed}" for placed, count in self._placed.items())
        spread = (f"of DTensors this rank's own is saved: {counts}",) if counts else ()
        return (*super().notes, *spread)

    def _write_operations(self) -> None:
        """List the operations of the step that ends."""
        step = None if self._operations is None else self._operations.take_step()
        if step is None or not self._recorded.get(self._step):
            return
        outputs = [output for operation in step.operations for output in operation.outputs]
        self._operations_passed_on += sum(not output.saved for output in outputs)
        if isinstance(self._sink, DumpWriter):
            self._sink.save_operations(step)

    def reason_not_fired(self, name: str) -> str:
        """Say whether torch.compile is the reason, as far as can be seen."""
        return _COMPILED if name in self._compiled else _NOT_CALLED

    def _detach(self) -> None:
        self._module_calls.detach_all()
        self._drop_open_calls()
        self._write_operations()
        self._operations = None
        self._roots.clear()
        super()._detach()
        if self._writer is not None and self._manifest is not None:
            manifest = replace(self._manifest, steps=max(self._recorded, default=-1) + 1)
            # After an exception, or with nothing captured, the dump stays marked as partial.
            whole = not self._failed and bool(self._recorded)
            self._writer.finish(manifest, self.certificate(), complete=whole)

    def _drop_open_calls(self) -> None:
        """Forget the calls that run; their outputs can no longer be taken."""
        self._module_calls.drop_open()
        self._failed = self._failed or self._module_calls.failed
        if self._operations is not None:
            self._operations.leave_all()

    def _unobserved(self) -> AbstractContextManager[None]:
        """Keep what the hook itself does out of the captured operations."""
        return nullcontext() if self._operations is None else self._operations.paused()

    def _root_name(self, model: torch.nn.Module, name: str) -> str:
        """Return the name that the model has, or the next free one."""
        unique, number = name, 2
        while self._roots.get(unique, model) is not model:
            unique = f"{name}{number}"
            number += 1
        self._roots[unique] = model
        return unique

    def _hook(self, found: FoundModule) -> None:
        """Attach to one module, unless it is attached already or cannot be called."""
        if found.same_as is not None:
            self.skip(found.path, f"the same module as {found.same_as}, saved under that name")
            return
        if is_script(found.module):
            self.skip(found.path, _SCRIPTED)
            return
        if is_callable(found.module) and not self._module_calls.is_attached(found.module):
            # A module whose place in the model this one has taken.
            self._module_calls.detach(id(self.layer_of(found.path)))
            self.add_layer(found.module, found.path)
            self._module_calls.attach(found.module)
        if found.compiled:
            self._compiled.add(found.path)

    def compiled_call_of(self, module: torch.nn.Module) -> None:
        """Note that a module's hooks do not run because it is compiled."""
        name = self.name_of(module)
        if name is not None:
            self._compiled.add(name)

    def begin_call_of(self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: Any) -> str:
        """Capture what a module is called with, and return the name of the call."""
        with self._unobserved():
            call_name = self.begin_call(module)
            self.capture_inputs(module, call_name, args, kwargs)
            if self._operations is not None:
                self._operations.enter(str(self.name_of(module)), call_name, args, kwargs)
        return call_name

    def end_call_of(
        self, module: torch.nn.Module, began: str | None, outputs: Any, *, died: bool
    ) -> None:
        """Capture what a module returns."""
        if began is None:  # its inputs could not be saved: the run ends
            return
        with self._unobserved():
            if self._operations is not None:
                self._operations.leave(began, outputs)
            if not died:
                self.capture_outputs(module, began, outputs)
        if self._writer is not None and any(module is root for root in self._roots.values()):
            self._writer.flush()  # once the model's call returns, its files are there


def _check_model(model: object, name: object) -> None:
    import torch

    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"expected a torch.nn.Module, found {type(model).__name__}")
    if is_script(model):
        raise TypeError(f"{type(model).__name__} is {_SCRIPTED}")
    if not isinstance(name, str):
        raise TypeError(f"the name of a model must be a text, found {name!r:.80}")


def _describe(model: torch.nn.Module) -> Manifest:
    """Build a manifest from the model alone; nothing is known of prompts."""
    parameter = next(iter(model.parameters()), None)
    kind = type(model)
    return Manifest(
        engine="torch",
        versions={"torch": version("torch")},
        model=f"{kind.__module__}.{kind.__qualname__}",
        pipeline="",
        encoding="" if parameter is None else str(parameter.dtype).removeprefix("torch."),
        device="" if parameter is None else str(parameter.device),
        padding=Padding.NONE,
        rows=(),
        steps=0,
    )
