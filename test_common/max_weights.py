"""Takes down the weights that really reach a graph of MAX, whoever builds it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from comparison.numerics.weight_record import WeightRecord, WeightSketch
from test_common.patching import Patch
from test_common.weight_recorder import sketches_of

if TYPE_CHECKING:
    import torch

_API = "weights of a compiled model"
_REMOVE = "a model of MAX gives the weights that it was loaded with"
_EXTERNAL = "mo.constant.external"


class MaxWeights:
    """The weights of every graph that is loaded while its patches are on.

    A graph names the weights that it reads, and the session is given their values when the graph
    is loaded. Of these both are held together: what is given and not read is no weight of the
    model. A module of the eager API (V3) that computes with tensors of its own, instead of those
    that are declared for its weights, has these values in the graph itself: the checkpoint does
    not reach it.
    """

    def __init__(self) -> None:
        """Begin with no weights."""
        self._weights: dict[str, WeightSketch] = {}
        self._unread: dict[str, None] = {}
        self._reads: dict[int, tuple[Any, frozenset[str] | None]] = {}  # by id of what is kept
        self._own: list[dict[int, tuple[str, Any]]] = []  # of the modules that are being traced
        self._embedded: dict[str, Any] = {}  # of these, what the graph has in it

    def record(self) -> WeightRecord:
        """Return what was seen so far."""
        unread = tuple(name for name in self._unread if f"model.{name}" not in self._weights)
        return WeightRecord(weights=tuple(self._weights.values()), unread=unread)

    def patches(self) -> tuple[Patch, ...]:
        """Make the patches that let it see what is loaded."""
        from max.engine import InferenceSession
        from max.experimental.nn import Module as ModuleV3
        from max.experimental.realization_context import GraphRealizationContext

        wrappers: tuple[tuple[Any, str, Any], ...] = (
            (InferenceSession, "compile_reusing_mefs", self._noting_reads),
            (InferenceSession, "init_all", self._noting_values),
            (ModuleV3, "compile", self._noting_own),
            (GraphRealizationContext, "add_source", self._noting_embedded),
        )
        return tuple(
            Patch(
                target=target,
                name=name,
                replacement=wrapper,
                wraps=True,
                missing_api=_API,
                remove_when=_REMOVE,
            )
            for target, name, wrapper in wrappers
        )

    def _noting_reads(self, compile_graph: Callable[..., Any]) -> Callable[..., Any]:
        def compile_reusing_mefs(session: Any, model: Any, *args: Any, **kwargs: Any) -> Any:
            compiled = compile_graph(session, model, *args, **kwargs)
            self._reads[id(compiled)] = (compiled, names_read(model))
            return compiled

        return compile_reusing_mefs

    def _noting_values(self, init_all: Callable[..., Any]) -> Callable[..., Any]:
        def init_and_note(
            session: Any, compiled: Any, *, weights_registry: Mapping[str, Any] | None = None
        ) -> Any:
            _, read = self._reads.get(id(compiled), (None, None))
            given = dict(weights_registry or {})
            kept = {name: v for name, v in given.items() if read is None or name in read}
            self._unread.update(dict.fromkeys(given.keys() - kept.keys()))
            self._add(kept, supplied=None)
            return init_all(session, compiled, weights_registry=weights_registry)

        return init_and_note

    def _noting_own(self, compile_module: Callable[..., Any]) -> Callable[..., Any]:
        def compile_and_note(module: Any, *args: Any, **kwargs: Any) -> Any:
            self._own.append({id(tensor): (name, tensor) for name, tensor in module.parameters})
            self._embedded.clear()
            try:
                compiled = compile_module(module, *args, **kwargs)
            finally:
                self._own.pop()
            self._add(self._embedded, supplied=False)
            return compiled

        return compile_and_note

    def _noting_embedded(self, add_source: Callable[..., Any]) -> Callable[..., Any]:
        def add_and_note(context: Any, tensor: Any) -> Any:
            own = self._own[-1].get(id(tensor)) if self._own else None
            if own is not None:
                name, kept = own
                self._embedded[name] = kept
            return add_source(context, tensor)

        return add_and_note

    def _add(self, values: Mapping[str, Any], *, supplied: bool | None) -> None:
        named = [(name, _as_torch(value)) for name, value in values.items()]
        told = None if supplied is None else dict.fromkeys(values, supplied)
        for sketch in sketches_of(named, supplied=told):
            self._weights.setdefault(sketch.name, sketch)


def names_read(model: Any) -> frozenset[str] | None:
    """Return the names of the weights that a graph reads; None for what is no graph.

    Args:
        model: a `max.graph.Graph`; modules of several graphs and files are not looked into.
    """
    from max._mlir.ir import WalkResult
    from max.graph import Graph

    if not isinstance(model, Graph):
        return None
    names: set[str] = set()

    def note(operation: Any) -> Any:
        if operation.name == _EXTERNAL:
            names.add(operation.attributes["name"].value)
        return WalkResult.ADVANCE

    model._mlir_op.walk(note)
    return frozenset(names)


def _as_torch(value: Any) -> torch.Tensor:
    """View a value of a registry of weights as a tensor of Torch, without a copy on the CPU."""
    import numpy as np
    import torch
    from max.driver import CPU, Buffer

    if isinstance(value, torch.Tensor):
        return value
    if isinstance(value, np.ndarray):
        with warnings.catch_warnings():  # of arrays that are read-only, as this is
            warnings.simplefilter("ignore", UserWarning)
            return torch.from_numpy(value)
    if isinstance(value, Buffer) and not value.device.is_host:
        value = value.to(CPU())
    return torch.from_dlpack(value)
