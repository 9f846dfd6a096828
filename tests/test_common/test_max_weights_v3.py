"""Weights of a ModuleV3 of MAX, read from the checkpoint or not."""

import numpy as np
import pytest
from max.driver import CPU
from max.dtype import DType
from max.experimental.nn import Module as ModuleV3
from max.experimental.nn import module_dataclass
from max.experimental.tensor import Tensor, TensorType, default_device

from test_common.max_weights import MaxWeights
from test_common.patching import apply_patches

pytestmark = pytest.mark.full  # the eager interpreter's operations are compiled on first use
COLUMNS = 3


@module_dataclass
class _Scaled(ModuleV3):
    scale: Tensor

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale


def test_a_module_that_computes_with_its_own_tensors_is_told() -> None:
    with default_device(CPU()):
        kept, module = Tensor.ones([COLUMNS]), _Scaled(Tensor.ones([COLUMNS]))
        object.__setattr__(module, "scale", kept)
        given = TensorType(DType.float32, [2, COLUMNS], CPU())
        checkpoint = {"scale": np.full(COLUMNS, 7, np.float32)}
        right, wrong = MaxWeights(), MaxWeights()
        with apply_patches(list(right.patches())):
            module.compile(given, weights=checkpoint)
        # As MAX's own print hook does: the copy that is traced has the original's `forward`.
        object.__setattr__(module, "forward", module.forward)
        with apply_patches(list(wrong.patches())):
            module.compile(given, weights=checkpoint)
    (read,) = right.record().weights
    assert (read.name, read.supplied) == ("model.scale", None)
    assert read.rows is not None
    assert read.rows.tolist() == [[7.0] * COLUMNS]
    (own,) = wrong.record().weights
    assert (own.name, own.supplied) == ("model.scale", False)
    assert own.rows is not None
    assert own.rows.tolist() == [[1.0] * COLUMNS]
    assert wrong.record().unread == ()
