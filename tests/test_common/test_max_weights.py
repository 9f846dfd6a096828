"""The weights that reach a graph of MAX, seen where it is loaded."""

from typing import Any

import numpy as np
from max.driver import CPU
from max.dtype import DType
from max.engine import InferenceSession
from max.graph import DeviceRef, Graph, TensorType, Weight, ops

from comparison.numerics.weight_sketch import sketch_weight
from test_common.max_weights import MaxWeights, names_read
from test_common.patching import apply_patches

ROWS, COLUMNS = 5, 3


def _graph() -> Graph:
    """Return a graph that reads two weights and computes nothing, which is built in seconds."""
    weight = Weight("layer.weight", DType.float32, (ROWS, COLUMNS), DeviceRef.CPU())
    given = TensorType(DType.float32, ["n", COLUMNS], device=DeviceRef.CPU())
    other = TensorType(DType.float32, [ROWS], device=DeviceRef.CPU())
    with Graph("weights", input_types=[given]) as graph:
        graph.output(*graph.inputs, weight, ops.constant_external("layer.bias", other))
    return graph


def _values() -> dict[str, Any]:
    random = np.random.default_rng(0)
    return {
        "layer.weight": random.standard_normal((ROWS, COLUMNS)).astype(np.float32),
        "layer.bias": random.standard_normal(ROWS).astype(np.float32),
        "left_over.weight": np.ones(4, np.float32),
    }


def test_a_graph_names_the_weights_that_it_reads() -> None:
    assert names_read(_graph()) == {"layer.weight", "layer.bias"}
    assert names_read("some.mef") is None


def test_what_a_session_is_given_is_recorded_and_what_no_graph_reads_is_said() -> None:
    values, weights = _values(), MaxWeights()
    with apply_patches(list(weights.patches())):
        InferenceSession(devices=[CPU()]).load(_graph(), weights_registry=values)
    record = weights.record()
    assert record.unread == ("left_over.weight",)
    found = record.named()
    assert set(found) == {"model.layer.weight", "model.layer.bias"}
    expected = sketch_weight("model.layer.weight", values["layer.weight"])
    assert expected.rows is not None
    np.testing.assert_array_equal(found["model.layer.weight"].rows, expected.rows)
    assert {weight.supplied for weight in record.weights} == {None}
