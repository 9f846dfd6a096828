"""The print hook for PyTorch models."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Container, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from comparison.schema.manifest import Manifest, Padding
from test_common.console_sink import ConsoleSink
from test_common.dump_writer import DumpWriter
from test_common.error_text import describe
from test_common.op_capture_torch import TorchOperations
from test_common.print_hook import BasePrintHook, Filter, TensorSink
from test_common.torch_tensors import reason_unreadable

if TYPE_CHECKING:
    import torch
    from torch.utils.hooks import RemovableHandle

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
            self._writer = DumpWriter(Path(export_path), overwrite=overwrite)
        self._manifest: Manifest | None = None
        own = ConsoleSink() if self._writer is None else self._writer
        self._sink: TensorSink = own if sink is None else sink
        self._handles: dict[int, list[RemovableHandle]] = {}
        # Name of each call that runs, and the exception that was being handled when it began.
        self._open_calls: dict[int, list[tuple[str, BaseException | None]]] = {}
        self._mutex = threading.RLock()  # replicas of a model run in threads
        self._compiled: set[str] = set()
        self._roots: dict[str, torch.nn.Module] = {}
        self._operations: TorchOperations | None = None

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
        for path, module, compiled in self._walk(model, root):
            self._hook(module, path)
            if compiled:
                self._compiled.add(path)

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
        reason = reason_unreadable(value)
        if reason is not None:
            self.skip(name, reason)
            return False
        try:
            self._sink.save(name, value.detach())
        # Never end the model's own run for one tensor; a disk that is full is another matter.
        except (RuntimeError, TypeError, ValueError, MemoryError) as error:
            if isinstance(error, OSError):  # as our own error of the folder is
                raise
            self.skip(name, f"cannot be saved: {describe(error)}")
            return False
        return True

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
        for handles in self._handles.values():
            for handle in handles:
                handle.remove()
        self._handles.clear()
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
        self._failed = self._failed or any(self._open_calls.values())
        self._open_calls.clear()
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

    def _walk(
        self, model: torch.nn.Module, root: str
    ) -> Iterator[tuple[str, torch.nn.Module, bool]]:
        """Yield path, module and whether it is compiled, each module once, parents first."""
        seen: dict[int, str] = {}
        stack = [(root, model, False)]
        while stack:
            path, module, compiled = stack.pop()
            if id(module) in seen:
                self.skip(path, f"the same module as {seen[id(module)]}, saved under that name")
                continue
            seen[id(module)] = path
            if _is_script(module):
                self.skip(path, _SCRIPTED)
                continue
            wrapped = module._modules.get("_orig_mod")  # torch.compile(module)
            inside = compiled or wrapped is not None or module._compiled_call_impl is not None
            yield path, module, compiled or (inside and wrapped is None)
            children = (module if wrapped is None else wrapped)._modules.items()
            stack.extend(
                (f"{path}.{name}", child, inside)
                for name, child in reversed(children)
                if child is not None
            )

    def _hook(self, module: torch.nn.Module, path: str) -> None:
        """Attach to one module, unless it is attached already or cannot be called."""
        if not _is_callable(module) or id(module) in self._handles:
            return
        # A module whose place in the model this one has taken.
        for handle in self._handles.pop(id(self.layer_of(path)), []):
            handle.remove()
        self.add_layer(module, path)
        self._handles[id(module)] = [
            module.register_forward_pre_hook(self._before, with_kwargs=True),
            # Also after an exception, so that the list of open calls stays right.
            module.register_forward_hook(self._after, with_kwargs=True, always_call=True),
        ]

    def _before(self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: Any) -> None:
        import torch

        if torch.compiler.is_compiling():
            name = self.name_of(module)
            if name is not None:
                self._compiled.add(name)
            return
        with self._mutex, self._unobserved():
            call_name = self.begin_call(module)
            call = (call_name, sys.exc_info()[1])
            self._open_calls.setdefault(id(module), []).append(call)
            self.capture_inputs(module, call_name, args, kwargs)
            if self._operations is not None:
                self._operations.enter(str(self.name_of(module)), call_name, args, kwargs)

    def _after(
        self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: Any, outputs: Any
    ) -> None:
        del args, kwargs  # taken before the module could change them
        import torch

        if torch.compiler.is_compiling():
            return
        with self._mutex, self._unobserved():
            calls = self._open_calls.get(id(module))
            if not calls:
                return
            call_name, handled_before = calls.pop()
            if self._operations is not None:
                self._operations.leave(call_name, outputs)
            raised = sys.exc_info()[1]
            if outputs is None and raised is not None and raised is not handled_before:
                # What a model catches itself is its own business.
                self._failed = self._failed or not any(self._open_calls.values())
                return
            self.capture_outputs(module, call_name, outputs)


def _check_model(model: object, name: object) -> None:
    import torch

    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"expected a torch.nn.Module, found {type(model).__name__}")
    if _is_script(model):
        raise TypeError(f"{type(model).__name__} is {_SCRIPTED}")
    if not isinstance(name, str):
        raise TypeError(f"the name of a model must be a text, found {name!r:.80}")


def _is_script(module: torch.nn.Module) -> bool:
    import torch

    return isinstance(module, torch.jit.ScriptModule)


def _is_callable(module: torch.nn.Module) -> bool:
    """Tell modules that can be called from mere containers such as ModuleList."""
    import torch

    return "forward" in vars(module) or type(module).forward is not torch.nn.Module.forward


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
