"""Watches the calls of a model's modules: when each begins, when it ends, and how."""

from __future__ import annotations

import functools
import sys
import threading
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from test_common.stand_in_forward import BEFORE, function_of, uncover_forward

if TYPE_CHECKING:
    import torch


class CallObserver(Protocol):
    """Who is told of calls; it is told of one at a time, in whatever thread they run."""

    def begin_call_of(self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: Any) -> Any:
        """Note that a module begins, and return what `end_call_of` is to get back."""

    def end_call_of(self, module: torch.nn.Module, began: Any, outputs: Any, *, died: bool) -> None:
        """Note that a module ends.

        Args:
            module: the module.
            began: what `begin_call_of` returned, None if that raised.
            outputs: what the call returns, None if it died.
            died: whether an exception ends it.
        """

    def compiled_call_of(self, module: torch.nn.Module) -> None:
        """Note that a module is compiled now, and its calls will not be seen."""


@dataclass(slots=True)
class _OpenCall:
    """A call that runs.

    Attributes:
        handled: the exception that was being handled when it began.
        began: what the observer returned.
    """

    handled: BaseException | None
    began: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundModule:
    """A module as it is met on the way through a model.

    Attributes:
        path: its dotted path.
        module: the module.
        compiled: whether it runs inside torch.compile.
        same_as: the path under which it was met before, None the first time.
    """

    path: str
    module: torch.nn.Module
    compiled: bool = False
    same_as: str | None = None


class ModuleCalls:
    """Attaches to modules and tells an observer of their calls.

    It attaches with forward hooks, which see `module(...)`; or, with `sees_forward`, by taking the
    place of each module's `forward`, which sees `module.forward(...)` too, as well as inputs behind
    all hooks of the model's own and outputs before them.

    Attributes:
        failed: whether a call was ended by an exception that no other module's call caught, or was
            dropped while it ran.
    """

    def __init__(self, observer: CallObserver, *, sees_forward: bool = False) -> None:
        """Make it; `attach` does the rest.

        Args:
            observer: who is told.
            sees_forward: whether calls of `module.forward(...)` are told too.
        """
        self.failed = False
        self.mutex = threading.RLock()  # replicas of a model run in threads
        self._observer = observer
        self._sees_forward = sees_forward
        self._removers: dict[int, list[Callable[[], None]]] = {}
        self._open: dict[tuple[int, int], list[_OpenCall]] = {}  # of a thread and a module

    def is_attached(self, module: torch.nn.Module) -> bool:
        """Tell whether calls of a module are told."""
        return id(module) in self._removers

    def attach(self, module: torch.nn.Module) -> None:
        """Tell of the calls of a module from now on."""
        removers = self._removers.setdefault(id(module), [])  # first: an interrupt may come between
        if self._sees_forward:
            before = vars(module).get("forward")
            stand_in = self._watched(module, module.forward)
            stand_in.__dict__[BEFORE] = lambda: None if self.is_attached(module) else (before,)
            bound = types.MethodType(stand_in, module)
            removers.append(functools.partial(uncover_forward, module, bound))
            vars(module)["forward"] = bound
            return
        hooks = (
            module.register_forward_pre_hook(self._begin, with_kwargs=True),
            # Also after an exception, so that the list of open calls stays right.
            module.register_forward_hook(self._end, with_kwargs=True, always_call=True),
        )
        removers.extend(hook.remove for hook in hooks)

    def detach(self, module_id: int) -> None:
        """Leave a module as it was; one that is not attached stays as it is."""
        for remove in self._removers.pop(module_id, []):
            remove()

    def detach_all(self) -> None:
        """Leave all modules as they were."""
        for module_id in list(self._removers):
            self.detach(module_id)

    def drop_open(self) -> None:
        """Forget the calls that run: their end will not be told."""
        self.failed = self.failed or any(self._open.values())
        self._open.clear()

    def _watched(self, module: torch.nn.Module, forward: Callable[..., Any]) -> Callable[..., Any]:
        """Make the stand-in for a module's forward, as a method, so that it is copied like one."""
        plain = function_of(forward, module)

        @functools.wraps(plain)
        def watched(own: torch.nn.Module, /, *args: Any, **kwargs: Any) -> Any:
            if own is not module:  # a copy of the model
                return plain(own, *args, **kwargs)
            if not self.is_attached(module):  # someone has kept this stand-in
                return forward(*args, **kwargs)
            outputs = None
            try:
                self._begin(module, args, kwargs)
                outputs = forward(*args, **kwargs)
                return outputs
            finally:
                self._end(module, args, kwargs, outputs)

        return watched

    def _begin(self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: Any) -> None:
        import torch

        if torch.compiler.is_compiling():
            self._observer.compiled_call_of(module)
            return
        with self.mutex:
            call = _OpenCall(sys.exc_info()[1])
            try:
                call.began = self._observer.begin_call_of(module, args, kwargs)
            finally:  # after that: the observer may drop what was left open
                self._open.setdefault(_thread_and(module), []).append(call)

    def _end(
        self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: Any, outputs: Any
    ) -> None:
        del args, kwargs  # seen before the module could change them
        import torch

        if torch.compiler.is_compiling():
            return
        with self.mutex:
            calls = self._open.get(_thread_and(module))
            if not calls:
                return
            call = calls.pop()
            if not calls:
                del self._open[_thread_and(module)]
            raised = sys.exc_info()[1]
            died = outputs is None and raised is not None and raised is not call.handled
            if died:
                # What a model catches itself is its own business.
                self.failed = self.failed or not any(self._open.values())
            self._observer.end_call_of(module, call.began, outputs, died=died)


def walk_modules(model: torch.nn.Module, root: str) -> Iterator[FoundModule]:
    """Yield the modules of a model, parents first, children in their order.

    A module that is met again is told of once more, with `same_as`, and not gone into; neither
    is a ScriptModule.

    Args:
        model: the model.
        root: what its path is to be.
    """
    seen: dict[int, str] = {}
    stack = [(root, model, False)]
    while stack:
        path, module, compiled = stack.pop()
        if id(module) in seen:
            yield FoundModule(path=path, module=module, same_as=seen[id(module)])
            continue
        seen[id(module)] = path
        if is_script(module):
            yield FoundModule(path=path, module=module)
            continue
        wrapped = module._modules.get("_orig_mod")  # torch.compile(module)
        inside = compiled or wrapped is not None or module._compiled_call_impl is not None
        within = compiled or (inside and wrapped is None)
        yield FoundModule(path=path, module=module, compiled=within)
        children = (module if wrapped is None else wrapped)._modules.items()
        stack.extend(
            (f"{path}.{name}", child, inside)
            for name, child in reversed(children)
            if child is not None
        )


def is_script(module: torch.nn.Module) -> bool:
    """Tell a ScriptModule, which runs neither hooks nor another forward."""
    import torch

    return isinstance(module, torch.jit.ScriptModule)


def is_callable(module: torch.nn.Module) -> bool:
    """Tell modules that can be called from mere containers such as ModuleList."""
    import torch

    return "forward" in vars(module) or type(module).forward is not torch.nn.Module.forward


def _thread_and(module: torch.nn.Module) -> tuple[int, int]:
    return threading.get_ident(), id(module)
