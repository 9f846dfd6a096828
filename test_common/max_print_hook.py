"""The print hook for MAX: adds print operations to the graph while it is traced."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from comparison.schema.operations import StepOperations
from comparison.schema.tensor_names import parse_tensor_name
from test_common.op_capture_max import MaxOperations
from test_common.print_hook import BasePrintHook, Filter

# MAX compiles the tower of a multimodal model, with what projects to the decoder, by itself.
VISION_ROOT = "model.vision"

_NOT_TRACED = "registered but not called while the graph was traced"


class MaxPrintHook(BasePrintHook):
    """Prints every input and output of every layer of a MAX model when its graph runs.

    The hook works while the graph is built; the tensors come out when the graph is executed, to
    where `InferenceSession.set_debug_print_options` sends them. Layers of the graph API (V2) are
    reached through MAX's layer hooks; modules of the eager API (V3) through their `forward`.
    """

    passes_layers_by = True  # fused ones are not called while the graph is traced

    def __init__(
        self,
        filter: Filter | None = None,
        *,
        label: Callable[[str], str] = str,
        ops: Sequence[str] = (),
    ) -> None:
        """Make a hook and attach it to every layer call; `name_layers` gives the names.

        Args:
            filter: a glob, several globs, or a function from the tensor's name to whether to
                keep it.
            label: from a tensor's name to the label that the engine prints, or makes its file
                name of; `DumpWriter.stem` where files are written.
            ops: globs of the layers whose operations are printed too, each by itself.
        """
        super().__init__(filter, ops=ops)
        self._operations = MaxOperations(ops, self.capture_operation) if ops else None
        self._label = label
        self._roots: list[Any] = []
        self._wrapped: list[Any] = []
        _layer_hooks().append(self._after)

    def name_layers(self, model: Any) -> None:
        """Name all layers of a model by their attribute path.

        Args:
            model: a `max.nn.layer.Layer` (V2), or the module that V3's `Module.compile` traces.
                That is a copy: naming the original makes the compiled model run on its random
                initial weights.

        Raises:
            TypeError: the model is neither.
        """
        from max.experimental.nn import Module as ModuleV3
        from max.nn.layer import Layer

        if not isinstance(model, Layer | ModuleV3):
            raise TypeError(f"expected a layer or module of MAX, found {type(model).__name__}")
        root = self._root_name(model)
        self._roots.append(model)
        if isinstance(model, Layer):
            for path, layer in _walk_layers(model, root):
                self.add_layer(layer, path)
                if self._operations is not None:
                    self._operations.watch_class(type(layer), self.name_of)
        else:
            self._wrap(model, root)
            for path, module in model.descendants:
                self._wrap(module, f"{root}.{path}")

    def _root_name(self, model: Any) -> str:
        """Choose a name: a pipeline of several models names each; only the first is `model`."""
        if _looks_at_pictures(model):
            return VISION_ROOT
        others = sum(not _looks_at_pictures(root) for root in self._roots)
        return "model" if others == 0 else f"model{others + 1}"

    def is_tensor(self, value: Any) -> bool:
        """Tell a tensor of a graph that is being traced."""
        from max.experimental.tensor import Tensor
        from max.graph import TensorValue

        # A real V3 tensor has its values already and no place in the graph.
        return isinstance(value, TensorValue) or (isinstance(value, Tensor) and not value.real)

    def print_value(self, name: str, value: Any) -> bool:
        """Add a print operation to the graph."""
        from max.experimental import functional
        from max.graph import TensorValue

        if isinstance(value, TensorValue):
            value.print(self._label(name))
        else:
            functional.print(value, self._label(name))
        return True

    def reason_not_fired(self, name: str) -> str:
        """Say why a layer may not have fired."""
        del name
        return _NOT_TRACED

    @property
    def step_operations(self) -> StepOperations | None:
        """The operations of every step, None where there are none."""
        return None if self._operations is None else self._operations.step()

    def _detach(self) -> None:
        if self._operations is not None:
            self._operations.close()
        hooks = _layer_hooks()
        if self._after in hooks:
            hooks.remove(self._after)
        for module in self._wrapped:
            module.__dict__.pop("forward", None)
        self._wrapped.clear()
        self._roots.clear()
        super()._detach()

    def _after(
        self, layer: Any, args: Sequence[Any], kwargs: Mapping[str, Any], outputs: Any
    ) -> None:
        """Take a V2 layer's tensors; MAX calls this after the layer, so children come first."""
        call_name = self.begin_call(layer)
        self.capture_inputs(layer, call_name, args, kwargs)
        self._move_inputs_up(call_name)
        self.capture_outputs(layer, call_name, outputs)

    def _move_inputs_up(self, call_name: str) -> None:
        """Put the inputs just recorded before what the layer's children recorded."""
        recorded = self._recorded.get(self.current_step, [])
        split = len(recorded)
        while split and recorded[split - 1].startswith(f"{call_name}-input_"):
            split -= 1
        first = split
        children = f"{_path_of(call_name)}."
        while first and recorded[first - 1].startswith(children):
            first -= 1
        recorded[first:] = recorded[split:] + recorded[first:split]

    def _wrap(self, module: Any, path: str) -> None:
        """Name a V3 module and let its `forward` report; V3 has no layer hooks."""
        if not self.add_layer(module, path):
            return
        original = module.forward

        @functools.wraps(original)
        def forward(*args: Any, **kwargs: Any) -> Any:
            call_name = self.begin_call(module)
            self.capture_inputs(module, call_name, args, kwargs)
            if self._operations is None:
                outputs = original(*args, **kwargs)
            else:
                with self._operations.call_of(module, path, args, kwargs) as done:
                    outputs = done(original(*args, **kwargs))
            self.capture_outputs(module, call_name, outputs)
            return outputs

        # An instance attribute covers the class's method; modules may be frozen dataclasses.
        object.__setattr__(module, "forward", forward)
        self._wrapped.append(module)


def _layer_hooks() -> list[Any]:
    """Return MAX's list of layer hooks; its API can add one, but only clear them all."""
    from max.nn.layer import layer

    hooks: list[Any] = layer._LAYER_HOOKS
    return hooks


def _looks_at_pictures(model: Any) -> bool:
    """Tell the tower of a multimodal model by its class, such as PixtralVision."""
    return "vision" in type(model).__name__.lower()


def _path_of(call_name: str) -> str:
    """Return the module of `<module>(2)`."""
    parsed = parse_tensor_name(f"{call_name}-output")
    return parsed.module if parsed is not None else call_name


def _walk_layers(model: Any, root: str) -> Iterator[tuple[str, Any]]:
    """Yield path and layer, parents first, each layer once, through lists and tuples."""
    from max.nn.layer import Layer

    seen: set[int] = set()
    queue: list[tuple[str, Any]] = [(root, model)]
    while queue:
        path, value = queue.pop(0)
        if isinstance(value, Layer):
            if id(value) in seen:
                continue
            seen.add(id(value))
            yield path, value
            queue.extend((f"{path}.{key}", child) for key, child in vars(value).items())
        elif isinstance(value, list | tuple):
            queue.extend((f"{path}.{index}", child) for index, child in enumerate(value))
