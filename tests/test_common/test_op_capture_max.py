"""The operations of MAX's layers; graphs are traced here, and compiled in tests/e2e only."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from max.dtype import DType
from max.graph import DeviceRef, Graph, TensorType, ops
from max.nn import Linear
from max.nn.layer import Module

from comparison.schema.errors import CaptureError
from comparison.schema.operations import CapturedOperation, StepOperations
from test_common.max_print_hook import MaxPrintHook

CPU = DeviceRef.CPU()


class Gated(Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate = Linear(in_dim=4, out_dim=6, dtype=DType.float32, device=CPU)
        self.down = Linear(in_dim=6, out_dim=4, dtype=DType.float32, device=CPU)

    def __call__(self, x: Any) -> Any:
        return self.down(ops.silu(self.gate(x)) * 0.5)


class Doubling(Gated):
    def __call__(self, x: Any) -> Any:
        return super().__call__(x) * 2.0


class Model(Module):
    def __init__(self, kind: type[Gated] = Gated) -> None:
        super().__init__()
        self.mlp = kind()
        self.head = Linear(in_dim=4, out_dim=3, dtype=DType.float32, device=CPU)

    def __call__(self, x: Any) -> Any:
        return self.head(self.mlp(x) + x)


def _trace(globs: list[str], kind: type[Gated] = Gated) -> tuple[MaxPrintHook, StepOperations, str]:
    with MaxPrintHook(ops=globs) as hook:
        model = Model(kind)
        shapes = {name: w.shape.static_dims for name, w in model.raw_state_dict().items()}
        model.load_state_dict({name: np.zeros(s, dtype=np.float32) for name, s in shapes.items()})
        hook.name_layers(model)
        with Graph("g", input_types=[TensorType(DType.float32, ["n", 4], CPU)]) as graph:
            graph.output(model(graph.inputs[0].tensor))
        step = hook.step_operations
    assert step is not None
    return hook, step, str(graph)


def _named(step: StepOperations, end: str) -> CapturedOperation:
    return next(operation for operation in step.operations if operation.name.endswith(end))


def test_operations_of_layers_that_fit_and_of_those_inside() -> None:
    hook, step, text = _trace(["*.mlp"])

    modules = [operation.module for operation in step.operations]
    assert set(modules) == {"model.mlp", "model.mlp.gate", "model.mlp.down"}
    kinds = [operation.op.rpartition(".")[2] for operation in step.operations]
    assert kinds.count("matmul") == 2
    assert "silu" in kinds
    printed = [name for name in hook.recorded_names() if "@" in name]
    assert printed == [output.name for op in step.operations for output in op.outputs]
    assert all(f'"{name}"' in text for name in printed)


def test_dataflow_names_results_inputs_and_weights() -> None:
    _, step, _ = _trace(["*.mlp"])

    silu, product = _named(step, ".silu"), _named(step, "model.mlp@003.mul")
    matmul = next(
        op for op in step.operations if op.module == "model.mlp.down" and "matmul" in op.op
    )
    gate = next(op for op in step.operations if op.module == "model.mlp.gate" and "matmul" in op.op)
    assert "model.mlp-input_0" in gate.inputs
    assert step.tensors["model.mlp.gate-output"] == gate.name
    assert silu.inputs == (gate.name,)
    assert silu.name in product.inputs
    assert product.name in matmul.inputs
    assert step.tensors["model.mlp-output"] == matmul.name
    loaded = next(op for op in step.operations if op.op == "mo.constant.external")
    assert loaded.outputs[0].shape == (6, 4)
    users = [op for op in step.operations if any(n.startswith("weight:") for n in op.inputs)]
    assert any("gate.weight" in name for op in users for name in op.inputs)


def test_shapes_keep_the_names_of_dimensions() -> None:
    _, step, _ = _trace(["*.mlp"])
    assert _named(step, ".silu").outputs[0].shape == ("n", 6)
    assert _named(step, ".silu").outputs[0].dtype == "float32"


def test_the_line_of_the_models_code_is_kept() -> None:
    _, step, _ = _trace(["*.mlp"])
    file, _, line = _named(step, ".silu").source.rpartition(":")
    assert file.endswith("test_op_capture_max.py")
    with open(__file__, encoding="utf-8") as source:
        assert "ops.silu(" in source.read().splitlines()[int(line) - 1]


def test_a_call_of_the_class_above_is_the_same_call() -> None:
    _, step, _ = _trace(["*.mlp"], Doubling)
    own = [operation.name for operation in step.operations if operation.module == "model.mlp"]
    assert len(own) == len(set(own))
    assert not any("(2)" in name for name in own)


def test_nothing_stays_patched() -> None:
    before = Graph._add_op_generated, Gated.__call__
    _trace(["*"])
    assert (Graph._add_op_generated, Gated.__call__) == before


def test_globs_that_fit_nothing_are_an_error() -> None:
    with MaxPrintHook(ops=["*.attention"]) as hook:
        model = Model()
        shapes = {name: w.shape.static_dims for name, w in model.raw_state_dict().items()}
        model.load_state_dict({name: np.zeros(s, dtype=np.float32) for name, s in shapes.items()})
        hook.name_layers(model)
        with Graph("g", input_types=[TensorType(DType.float32, [3, 4], CPU)]) as graph:
            graph.output(model(graph.inputs[0].tensor))
    with pytest.raises(CaptureError, match=r"no module that ran fits \*\.attention"):
        hook.require_capture()
