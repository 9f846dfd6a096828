"""The operations that MAX's models add to a graph inside of layers, printed when the graph runs."""

from __future__ import annotations

import functools
import inspect
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from comparison.schema.operations import (
    CONSTANT_PREFIX,
    WEIGHT_PREFIX,
    Argument,
    CapturedOperation,
    OperationOutput,
    StepOperations,
)
from test_common.op_capture import OperationLog, output_names, source_line
from test_common.patching import patched
from test_common.tensor_tree import TensorTree, input_tensors, output_tensors

_MISSING_API = "hooks that see each operation that is added to a graph, and calls of layers"
_REMOVE_WHEN = "Graph offers a hook of operations, and Layer one before its call"
# Both see all operations: what the bindings generate, and what was written by hand.
_FUNNELS = ("_add_op_generated", "_add_op_get_op_with_results")
_ENGINE_FOLDERS = ("/max/graph/", "/max/_core/", "/max/experimental/functional")
_WEIGHT_OPERATION = "constant.external"
_DIALECTS = re.compile(r"^(?:rmo\.|mo\.)+")
_NOT_OF_THE_MODEL = ("attach_profile_scopes", "name", "align", "is_placeholder", "has_alias")
_PLAIN = (bool, int, float, str)


class MaxOperations:
    """Prints the results of every operation while a layer is traced whose name matches.

    It works while the graph is built, as the print hook does; a graph is traced once, so what was
    seen holds for every step that runs it.
    """

    def __init__(self, globs: Sequence[str], print_value: Callable[[str, Any], bool]) -> None:
        """Patch the engine until `close`.

        Args:
            globs: names of the layers.
            print_value: adds a print operation for a result, and tells whether it did.
        """
        self.log = OperationLog(globs)
        self._print = print_value
        self._busy = False
        self._names: dict[Any, str] = {}
        self._calls: Counter[str] = Counter()
        self._open: list[Any] = []  # layers
        self._wrapped: set[type] = set()
        self._stack = ExitStack()
        self._patch_funnels()

    def close(self) -> None:
        """Take all patches back."""
        self._stack.close()
        self._open.clear()
        self._names.clear()

    def step(self) -> StepOperations | None:
        """Return the operations of every step, None where there are none."""
        return self.log.step_so_far()

    def watch_class(self, kind: type, name_of: Callable[[Any], str | None]) -> None:
        """Learn when layers of a class begin and end.

        Args:
            kind: class of a layer of the graph API.
            name_of: gives a layer's name.
        """
        for base in kind.__mro__:
            if base in self._wrapped or "__call__" not in base.__dict__ or base is object:
                continue
            self._wrapped.add(base)
            self._stack.enter_context(
                patched(
                    base,
                    "__call__",
                    self._following(base.__dict__["__call__"], name_of),
                    missing_api=_MISSING_API,
                    remove_when=_REMOVE_WHEN,
                )
            )

    def _following(self, call: Callable[..., Any], name_of: Callable[[Any], str | None]) -> Any:
        @functools.wraps(call)
        def followed(layer: Any, *args: Any, **kwargs: Any) -> Any:
            name = name_of(layer)
            if name is None or (self._open and self._open[-1] is layer):  # super().__call__
                return call(layer, *args, **kwargs)
            bound = inspect.signature(call).bind(layer, *args, **kwargs)
            with self.call_of(layer, name, bound.args[1:], bound.kwargs) as done:
                return done(call(layer, *args, **kwargs))

        return followed

    @contextmanager
    def call_of(
        self, layer: Any, path: str, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Iterator[Callable[[Any], Any]]:
        """Let the operations of the block be those of a layer.

        Args:
            layer: the layer.
            path: its name.
            args: what it is given, by position.
            kwargs: what it is given by keyword.

        Yields:
            A function that is told what the layer gives, and returns that.
        """
        self._calls[path] += 1
        count = self._calls[path]
        call_name = path if count == 1 else f"{path}({count})"
        self.log.begin_call(path, call_name)
        self._open.append(layer)
        if self.log.is_on:
            self._note(call_name, input_tensors(args, kwargs, is_tensor=_is_traced))

        def done(outputs: Any) -> Any:
            if self.log.is_on:
                self._note(call_name, output_tensors(outputs, is_tensor=_is_traced))
            return outputs

        try:
            yield done
        finally:
            self._open.pop()
            self.log.end_call()

    def _patch_funnels(self) -> None:
        from max.graph import Graph

        for name in _FUNNELS:
            self._stack.enter_context(
                patched(
                    Graph,
                    name,
                    self._seeing(getattr(Graph, name)),
                    missing_api=_MISSING_API,
                    remove_when=_REMOVE_WHEN,
                )
            )

    def _seeing(self, add: Callable[..., Any]) -> Any:
        @functools.wraps(add)
        def seen(graph: Any, op: Any, *args: Any, **kwargs: Any) -> Any:
            given = add(graph, op, *args, **kwargs)
            if self._busy or not self.log.is_on:
                return given
            # One gives the results, the other those and the operation.
            results = given[0] if isinstance(given, tuple) else given
            self._busy = True  # printing a result adds an operation too
            try:
                self._take(results, args, kwargs)
            finally:
                self._busy = False
            return given

        return seen

    def _take(self, results: Sequence[Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        tensors = [result for result in results if _is_value(result)]
        if not tensors:
            return
        # An operation's own class may have an attribute called `name`.
        owner = _identity(tensors[0]).owner.operation
        op, label = _operation_names(owner)
        inputs = [self._name(value) for value in _values([*args, *kwargs.values()])]
        name = self.log.next_name(label)
        names = output_names(name, len(tensors))
        outputs = []
        for out_name, tensor in zip(names, tensors, strict=True):
            self._names[_identity(tensor)] = out_name
            outputs.append(
                OperationOutput(
                    name=out_name,
                    dtype=str(tensor.dtype.name),
                    shape=tuple(_size(size) for size in tensor.shape),
                    saved=self._print(out_name, tensor),
                )
            )
        if op.endswith(_WEIGHT_OPERATION):  # whoever takes it takes a weight
            self._names[_identity(tensors[0])] = f"{WEIGHT_PREFIX}{_text(owner, 'name')}"
        self.log.add(
            CapturedOperation(
                op=op,
                module=self.log.module,
                inputs=tuple(inputs),
                arguments=_arguments(kwargs),
                outputs=tuple(outputs),
                source=source_line(_is_engine),
            )
        )

    def _note(self, call_name: str, tree: TensorTree) -> None:
        for suffix, value in tree.tensors:
            name, key = f"{call_name}-{suffix}", _identity(_in_graph(value))
            if key in self._names:
                self.log.tell(name, self._names[key])
            else:
                self._names[key] = name

    def _name(self, value: Any) -> str:
        key = _identity(value)
        if key in self._names:
            return self._names[key]
        shape = ", ".join(str(_size(size)) for size in getattr(value, "shape", ()))
        return f"{CONSTANT_PREFIX}{getattr(value, 'dtype', type(value).__name__)}[{shape}]"


def _is_value(value: Any) -> bool:
    from max.graph import TensorValue

    return isinstance(value, TensorValue)


def _is_traced(value: Any) -> bool:
    """Tell a value in the graph from a tensor of the eager API that has its numbers already."""
    from max.experimental.tensor import Tensor

    return _is_value(value) or (isinstance(value, Tensor) and not value.real)


def _in_graph(value: Any) -> Any:
    return value if _is_value(value) else value._graph_value


def _values(value: Any) -> list[Any]:
    if _is_value(value):
        return [value]
    if isinstance(value, list | tuple):
        return [found for item in value for found in _values(item)]
    return []


def _identity(value: Any) -> Any:
    """Return what two records of one value in the graph have in common, which can be hashed."""
    from max import mlir

    return mlir.Value._CAPICreate(value._mlir_value._CAPIPtr)


def _operation_names(owner: Any) -> tuple[str, str]:
    """Return the full and the short name; kernels of custom operations go by their own."""
    symbol = _text(owner, "symbol")
    name = str(owner.name)
    return (f"{name}.{symbol}" if symbol else name), symbol or _DIALECTS.sub("", name)


def _text(owner: Any, attribute: str) -> str:
    """Read a text attribute, empty where there is none."""
    if attribute not in owner.attributes:
        return ""
    return str(owner.attributes[attribute]).partition(" : ")[0].strip('"')


def _arguments(kwargs: Mapping[str, Any]) -> dict[str, Argument]:
    from max.graph import Shape

    plain = {key: value for key, value in kwargs.items() if isinstance(value, _PLAIN)}
    shapes = {
        key: tuple(_size(size) for size in value)
        for key, value in kwargs.items()
        if isinstance(value, Shape) and len(value)
    }
    return {key: value for key, value in (plain | shapes).items() if key not in _NOT_OF_THE_MODEL}


def _size(size: Any) -> int | str:
    try:
        return int(size)
    except TypeError:  # a dimension that has a name
        return str(size)


def _is_engine(file: str) -> bool:
    return any(folder in file for folder in _ENGINE_FOLDERS)
