"""test_common.unchanged_tensors"""

import weakref
from collections.abc import Callable

import pytest
import torch

from test_common.unchanged_tensors import UnchangedTensors

_EVIDENCE = (0.5, 1.0)


def _known(tensor: torch.Tensor) -> UnchangedTensors[str]:
    known = UnchangedTensors[str]()
    known.put(tensor, _EVIDENCE, "fact")
    return known


def test_same_tensor_has_its_fact() -> None:
    tensor = torch.ones(3, 4)
    known = _known(tensor)
    assert known.get(tensor, _EVIDENCE) == "fact"
    assert known.get(tensor.clone(), _EVIDENCE) is None
    assert known.get(tensor.view(3, 4), _EVIDENCE) is None


@pytest.mark.parametrize(
    "change",
    [lambda t: t.add_(1), lambda t: t.t_(), lambda t: setattr(t, "data", torch.ones(5))],
    ids=["in place", "transposed", "other data"],
)
def test_changed_tensor_has_none(change: Callable[[torch.Tensor], object]) -> None:
    tensor = torch.ones(3, 4)
    known = _known(tensor)
    change(tensor)
    assert known.get(tensor, _EVIDENCE) is None


def test_other_evidence_or_nan_means_a_change() -> None:
    tensor = torch.ones(3, 4)
    nan = float("nan")
    known = _known(tensor)
    assert known.get(tensor, (0.5, 1.5)) is None
    known.put(tensor, (nan,), "fact")
    assert known.get(tensor, (nan,)) is None


def test_fact_goes_with_its_tensor() -> None:
    known = UnchangedTensors[torch.Tensor]()
    tensor, fact = torch.ones(3, 4), torch.zeros(2)
    gone = weakref.ref(fact)
    known.put(tensor, _EVIDENCE, fact)
    del fact
    assert gone() is not None
    del tensor
    assert gone() is None


def test_number_of_a_freed_tensor_proves_nothing() -> None:
    known = UnchangedTensors[str]()
    for _ in range(50):  # the same address comes again
        tensor = torch.ones(3, 4)
        assert known.get(tensor, _EVIDENCE) is None
        known.put(tensor, _EVIDENCE, "fact")
        del tensor


def test_tensors_of_inference_mode_are_not_kept() -> None:
    with torch.inference_mode():
        tensor = torch.ones(3)
        assert _known(tensor).get(tensor, _EVIDENCE) is None
