"""A module that raises while a side runs."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch

from comparison.schema.errors import BadInputError, EngineError
from diagnosis.diff_models import DiffOptions, diff_models
from diagnosis.side_errors import side_errors
from tests.test_common.tiny_models import ROWS, tiny_llama

UP = "model.model.layers.1.mlp.up_proj"


class _Broken(torch.nn.Linear):
    message = "no kernel for this\nshape [3, 5]"

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        raise LookupError(self.message)


def broken(model: Any) -> Any:
    other = copy.deepcopy(model)
    up = other.model.layers[1].mlp.up_proj
    other.model.layers[1].mlp.up_proj = _Broken(up.in_features, up.out_features, bias=False)
    return other


def test_a_candidate_that_raises_is_named_with_its_module(tmp_path: Path) -> None:
    model = tiny_llama()
    with pytest.raises(EngineError) as error:
        diff_models(model, broken(model), ROWS, options=DiffOptions(output=tmp_path / "out"))
    assert str(error.value) == f"the candidate, in {UP}: LookupError: shape [3, 5]"
    assert isinstance(error.value.__cause__, LookupError)


def test_a_reference_that_raises_is_named_with_its_module() -> None:
    model = tiny_llama()
    with pytest.raises(EngineError) as error:
        diff_models(broken(model), model, ROWS)
    assert str(error.value) == f"the replay of the reference, in {UP}: LookupError: shape [3, 5]"


def test_a_candidate_that_leaves_python_is_no_agreement() -> None:
    model = tiny_llama()
    other = copy.deepcopy(model)

    def forward(given: torch.Tensor) -> torch.Tensor:
        raise SystemExit(0)

    other.model.layers[1].mlp.up_proj.forward = forward
    with pytest.raises(EngineError) as error:
        diff_models(model, other, ROWS)
    assert str(error.value) == f"the candidate, in {UP}: SystemExit: 0"


def _run_by_an_oracle(module: torch.nn.Module) -> None:
    with side_errors("side"):
        try:
            module(torch.ones(2))
        except LookupError as error:
            raise EngineError("oracle x: failed") from error


def test_what_an_error_of_ours_quotes_is_looked_through() -> None:
    module = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Sequential(_Broken(2, 3)))
    with pytest.raises(EngineError, match=r"^side, in model\.1\.0: oracle x: failed$"):
        _run_by_an_oracle(module)


def test_bad_input_and_what_no_module_raised_are_told_apart() -> None:
    with pytest.raises(BadInputError, match=r"^give another$"), side_errors("side"):
        raise BadInputError("give another")
    with (
        pytest.raises(EngineError, match=r"^side: StopIteration: no message$"),
        side_errors("side"),
    ):
        raise StopIteration
    with pytest.raises(KeyboardInterrupt), side_errors("side"):
        raise KeyboardInterrupt


@pytest.mark.timeout(20)
def test_an_error_that_is_its_own_cause_is_looked_through_once() -> None:
    error = EngineError("torch cannot load it")
    with pytest.raises(EngineError, match=r"^side: torch cannot load it$"), side_errors("side"):
        raise error from error
