"""The tree of the calls that a model's modules make of one another."""

from __future__ import annotations

import re
import sys
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from test_common.error_text import describe
from test_common.module_calls import ModuleCalls, is_callable, is_script, walk_modules
from test_common.value_description import Described, ValueDescriber

if TYPE_CHECKING:
    import torch

_NUMBERED = re.compile(r".*\.(\d+)", re.DOTALL)


@dataclass(slots=True, kw_only=True)
class CallNode:
    """One call of a module.

    Attributes:
        path: the module's path, which begins with the class of the model.
        number: 1 for the module's first call within the outermost call, then 2, 3...
        is_root: whether it is the outermost call, that of the whole model as a rule.
        is_leaf: whether the module has no modules in it.
        inputs: `args` and `kwargs`, as far as there are any; of the model itself always both.
        outputs: what the call returned; None where that was not described.
        raised: the exception that ended the call, empty where none did.
        children: the calls made inside of it, in order.
        layers: those of them that are layers, of which only the first and last may be wanted.
        is_hidden: whether it is not wanted; then its path alone is kept.
    """

    path: str
    number: int
    is_root: bool
    is_leaf: bool
    inputs: Described
    outputs: Described | None = None
    raised: str = ""
    children: list[CallNode] = field(default_factory=list)
    layers: list[CallNode] = field(default_factory=list)
    is_hidden: bool = False

    def add(self, child: CallNode, *, prunes_layers: bool) -> None:
        """Add a call that has ended; a layer hides the one before it, but for the first."""
        self.children.append(child)
        if prunes_layers and child.is_layer():
            if len(self.layers) > 1:
                self.layers[-1].hide()
            self.layers.append(child)

    def is_layer(self) -> bool:
        """Tell a numbered module that calls a part of itself."""
        numbered = _NUMBERED.fullmatch(self.path)
        if numbered is None:
            return False
        inside = f".{numbered[1]}."
        return any(inside in child.path for child in self.children)

    def hide(self) -> None:
        """Let go of all but the path."""
        self.is_hidden = True
        self.inputs = {}
        self.outputs = None
        self.children = []
        self.layers = []


@dataclass(slots=True, kw_only=True)
class _Frame:
    """A call that runs.

    Attributes:
        node: what is known of it; None where it is not described.
        grad: whether gradients were recorded when it began.
        may_be_hidden: whether it is, or is inside, a layer that a later one may hide.
    """

    node: CallNode | None
    grad: bool
    may_be_hidden: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CallTreeScope:
    """What is described of a model's calls.

    Attributes:
        container_outputs: outputs of modules that have modules in them.
        outer_calls: calls of parts of the model from outside of it, as generation makes of an
            encoder; each is a tree of its own.
        prunes_layers: whether of the layers that a module calls only the first and the last are
            wanted.
        numbered: whether the names of files tell a module's later calls from its first.
    """

    container_outputs: bool = False
    outer_calls: bool = False
    prunes_layers: bool = False
    numbered: bool = False


class CallTreeCapture:
    """Describes every call inside of each call of a model, without gradients.

    Values are described when they are seen: inputs before a module runs, outputs right after.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        describer: Callable[[], ValueDescriber | None],
        done: Callable[[CallNode], None],
        *,
        scope: CallTreeScope,
    ) -> None:
        """Make a capture; `attach` begins it.

        Args:
            model: the model.
            describer: gives at the begin of each outermost call what describes its values; None
                to describe nothing.
            done: takes each outermost call when it has ended.
            scope: what is described.
        """
        self._model = model
        self._name = type(model).__name__
        self._new_describer = describer
        self._done = done
        self._scope = scope
        self._calls = ModuleCalls(self, sees_forward=True)
        self._paths: dict[int, str] = {}
        self._local = threading.local()  # calls nest within one thread
        self.compiled: set[str] = set()

    def attach(self) -> None:
        """See every call from now on."""
        for found in walk_modules(self._model, self._name):
            if found.same_as is None and not is_script(found.module) and is_callable(found.module):
                self._paths[id(found.module)] = found.path
                self._calls.attach(found.module)

    def detach(self) -> None:
        """Leave the model as it was."""
        self._calls.detach_all()
        self._calls.drop_open()

    def compiled_call_of(self, module: torch.nn.Module) -> None:
        """Note that a module's calls are not seen because it is compiled."""
        self.compiled.add(self._paths[id(module)])

    def begin_call_of(self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: Any) -> _Frame:
        """Describe what a module is called with."""
        import torch

        stack = self._stack
        grad = torch.is_grad_enabled()
        if not stack:
            self._local.numbers = Counter()
            wanted = module is self._model or self._scope.outer_calls
            self._local.describer = self._new_describer() if wanted else None
        # The model's own code sees gradients in what it is given, and so does who reads of it.
        may_be_hidden = self._may_be_hidden(module)
        with torch.set_grad_enabled(stack[0].grad if len(stack) == 1 else grad):
            node = self._begin_node(module, args, kwargs, later=may_be_hidden)
        if not stack:
            torch.set_grad_enabled(False)
        stack.append(_Frame(node=node, grad=grad, may_be_hidden=may_be_hidden))
        return stack[-1]

    def end_call_of(
        self, module: torch.nn.Module, began: _Frame | None, outputs: Any, *, died: bool
    ) -> None:
        """Describe what a module returns, and hand on the tree of an outermost call."""
        if began is None:  # its inputs could not be written: the run ends
            return
        import torch

        stack, node = self._stack, began.node
        while stack and stack.pop() is not began:
            continue
        if not stack:
            torch.set_grad_enabled(began.grad)
        if node is None:
            return
        if died:
            error = sys.exc_info()[1]
            node.raised = "" if error is None else describe(error)
        elif node.is_leaf or node.is_root or self._scope.container_outputs:
            with torch.set_grad_enabled(stack[0].grad if len(stack) == 1 else began.grad):
                node.outputs = self._describe(outputs, node, "outputs", later=began.may_be_hidden)
        if stack and stack[-1].node is not None:
            stack[-1].node.add(node, prunes_layers=self._scope.prunes_layers)
        elif not stack:
            self._done(node)

    @property
    def _stack(self) -> list[_Frame]:
        if not hasattr(self._local, "stack"):
            self._local.stack = []
        stack: list[_Frame] = self._local.stack
        return stack

    def _may_be_hidden(self, module: torch.nn.Module) -> bool:
        """Tell a call that may be inside of a layer between the first and the last."""
        if not self._scope.prunes_layers or not self._stack:
            return False
        around = self._stack[-1]
        if around.may_be_hidden or around.node is None or not around.node.layers:
            return around.may_be_hidden
        return _NUMBERED.fullmatch(self._paths[id(module)]) is not None

    def _begin_node(
        self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: Any, *, later: bool
    ) -> CallNode | None:
        if self._local.describer is None:
            return None
        path = self._paths[id(module)]
        self._local.numbers[path] += 1
        is_root = not self._stack
        node = CallNode(
            path=path,
            number=self._local.numbers[path],
            is_root=is_root,
            is_leaf=next(module.children(), None) is None,
            inputs={},
        )
        given = {"args": args, "kwargs": kwargs}
        if not is_root:
            given = {kind: values for kind, values in given.items() if values}
        node.inputs = self._describe(given, node, "inputs", later=later)
        return node

    def _describe(self, value: Any, node: CallNode, what: str, *, later: bool) -> Described:
        describer: ValueDescriber = self._local.describer
        again = self._scope.numbered and node.number > 1
        path = f"{node.path}({node.number})" if again else node.path
        return describer.describe(value, f"{path}_{what}", later=later)
