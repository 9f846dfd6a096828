"""The documented names are where the documentation puts them, and cost nothing until used."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from comparison.schema.errors import UnknownPipelineError
from oracles.registry import find_oracle
from tools import debugging_utils
from tools.debugging_utils import get_torch_testdata, load_intermediate_tensors


@pytest.mark.parametrize("name", debugging_utils.__all__)
def test_every_name_can_be_had(name: str) -> None:
    assert callable(getattr(debugging_utils, name))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        debugging_utils.nonsense  # noqa: B018  # the access is what is tested


@pytest.mark.parametrize(
    "module",
    [
        "tools.compare_tensors",
        "tools.debug_model",
        "tools.debugging_utils",
        "test_common.torch_print_hook",
    ],
)
def test_importing_pulls_in_no_engine(module: str) -> None:
    code = (
        f"import sys, {module};"
        "print([m for m in ('torch', 'max', 'transformers', 'vllm') if m in sys.modules])"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    result = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"


@pytest.mark.parametrize("as_oracle", [False, True])
def test_tensors_are_loaded_by_name_or_oracle(tmp_path: Path, as_oracle: bool) -> None:
    import torch

    name = "tiny-random/llama"
    model = find_oracle(name) if as_oracle else name
    tensors = load_intermediate_tensors(model, "torch", tmp_path / "dump", encoding_name="float32")
    given, result = get_torch_testdata(model, "model.layers.0.mlp")
    assert torch.equal(tensors["model.model.layers.0.mlp-input_0"], given)
    assert torch.equal(tensors["model.model.layers.0.mlp-output"], result)


def test_an_unknown_pipeline_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(UnknownPipelineError, match="nearest known: tiny-random/llama"):
        load_intermediate_tensors("tiny-random/llamma", "torch", tmp_path)


def test_options_that_no_run_has_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="num_layers"):
        load_intermediate_tensors("tiny-random/llama", "torch", tmp_path, num_layers=2)
