"""The MAX hook on real layers; graphs are traced here, and compiled in tests/e2e only."""

from typing import Any

import numpy as np
import pytest
from max.dtype import DType
from max.graph import DeviceRef, Graph, TensorType
from max.nn import Linear
from max.nn.layer import LayerList, Module, layer

from comparison.schema.errors import CaptureError
from test_common.max_print_hook import MaxPrintHook
from test_common.print_hook import CaptureWarning

CPU = DeviceRef.CPU()


class Block(Module):
    def __init__(self, path_that_is_unused: bool = False) -> None:
        super().__init__()
        self.up = Linear(in_dim=4, out_dim=6, dtype=DType.float32, device=CPU)
        self.down = Linear(in_dim=6, out_dim=4, dtype=DType.float32, device=CPU)
        if path_that_is_unused:
            self.unused = Linear(in_dim=4, out_dim=4, dtype=DType.float32, device=CPU)

    def __call__(self, x: Any, *, scale: Any = None) -> tuple[Any, Any]:
        y = self.down(self.up(x))
        return y, x + y if scale is None else y * scale


class Model(Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = LayerList([Block(), Block(path_that_is_unused=True)])

    def __call__(self, x: Any) -> Any:
        x, _ = self.layers[0](x)
        x, _ = self.layers[0](x, scale=x)
        return self.layers[1](x)[0]


def trace(hook: MaxPrintHook) -> str:
    model = Model()
    shapes = {name: w.shape.static_dims for name, w in model.raw_state_dict().items()}
    model.load_state_dict({name: np.zeros(s, dtype=np.float32) for name, s in shapes.items()})
    hook.name_layers(model)
    with Graph("g", input_types=[TensorType(DType.float32, [3, 4], CPU)]) as graph:
        graph.output(model(graph.inputs[0].tensor))
    return str(graph)


def test_names_are_paths_in_order_of_execution() -> None:
    with MaxPrintHook() as hook:
        text = trace(hook)
    names = hook.recorded_names()
    assert names[:8] == (
        "model-input_0",
        "model.layers.layers.0-input_0",
        "model.layers.layers.0.up-input_0",
        "model.layers.layers.0.up-output",
        "model.layers.layers.0.down-input_0",
        "model.layers.layers.0.down-output",
        "model.layers.layers.0-output_0",
        "model.layers.layers.0-output_1",
    )
    assert names[-1] == "model-output"
    assert all(name in text for name in names)


class TinyVision(Model):
    pass


@pytest.mark.parametrize(
    ("roots", "names"),
    [
        ((TinyVision, Model, Model), ["model.vision", "model", "model2"]),
        ((Model, TinyVision), ["model", "model.vision"]),
    ],
)
def test_a_tower_has_a_name_of_its_own_whenever_it_comes(
    roots: tuple[type[Model], ...], names: list[str]
) -> None:
    models = [root() for root in roots]
    hook = MaxPrintHook()
    for model in models:
        hook.name_layers(model)
    assert [hook.name_of(model) for model in models] == names
    tower = models[names.index("model.vision")]
    assert hook.name_of(tower.layers[0]) == "model.vision.layers.layers.0"
    with pytest.warns(CaptureWarning, match="nothing was captured"):
        hook.remove()


def test_a_second_call_and_a_keyword_have_their_own_names() -> None:
    with MaxPrintHook() as hook:
        trace(hook)
    names = hook.recorded_names()
    assert "model.layers.layers.0(2)-input_0" in names
    assert "model.layers.layers.0(2)-input_scale" in names
    assert "model.layers.layers.0.up(2)-output" in names
    assert len(names) == len(set(names))


def test_a_layer_that_is_not_traced_is_listed() -> None:
    with MaxPrintHook() as hook:
        trace(hook)
    skipped = {skip.name: skip.reason for skip in hook.certificate().skipped}
    assert "not called while the graph was traced" in skipped["model.layers.layers.1.unused"]


def test_labels_come_from_the_given_function() -> None:
    with MaxPrintHook(label=lambda name: name.upper()) as hook:
        text = trace(hook)
    assert "MODEL.LAYERS.LAYERS.0.UP-OUTPUT" in text
    assert "model.layers.layers.0.up-output" in hook.recorded_names()


def test_a_filter_keeps_what_it_names() -> None:
    with MaxPrintHook("*.down") as hook:
        trace(hook)
    assert set(hook.recorded_names()) == {
        f"model.layers.layers.{name}-{side}"
        for name in ("0.down", "0.down(2)", "1.down")
        for side in ("input_0", "output")
    }


def test_nothing_traced_is_an_error() -> None:
    with MaxPrintHook() as hook, pytest.raises(CaptureError):
        hook.require_capture()


def test_removal_leaves_other_hooks_alone() -> None:
    def other(*_: Any) -> None:
        return None

    layer.add_layer_hook(other)
    try:
        hook = MaxPrintHook()
        assert len(layer._LAYER_HOOKS) == 2
        hook.remove()
        hook.remove()  # a second time
        assert len(layer._LAYER_HOOKS) == 1
        assert layer._LAYER_HOOKS[0] is other
    finally:
        layer._LAYER_HOOKS.remove(other)


def test_what_is_no_model_is_refused() -> None:
    with MaxPrintHook() as hook, pytest.raises(TypeError, match="found str"):
        hook.name_layers("model")
