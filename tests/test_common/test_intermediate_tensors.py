"""The tensors as a script gets them: names, dtypes, steps, and the module that is asked for."""

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

from comparison.schema.errors import UnwritableOutputError
from oracles.registry import find_oracle
from test_common.intermediate_tensors import (
    UnknownModuleError,
    as_torch,
    get_torch_testdata,
    load_intermediate_tensors,
    tensors_of_module,
)

PIPELINE = "tiny-random/llama"
MLP = "model.model.layers.0.mlp"


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, torch.Tensor]]:
    folder = tmp_path_factory.mktemp("tensors") / "dump"
    oracle = find_oracle(PIPELINE)
    return folder, load_intermediate_tensors(oracle, "torch", folder, "cpu", num_steps=2)


def test_names_and_values_are_those_of_the_dump(dump: tuple[Path, Any]) -> None:
    folder, tensors = dump
    names = (folder / "0" / "tensor_names.txt").read_text().splitlines()
    assert list(tensors)[: len(names)] == names
    saved = torch.load(folder / "0" / f"{MLP}-output.pt", weights_only=True)
    assert torch.equal(tensors[f"{MLP}-output"], saved)
    rows, tokens, _ = saved.shape
    assert rows == 2
    assert tokens > 8


def test_later_steps_have_their_number_in_front(dump: tuple[Path, Any]) -> None:
    folder, tensors = dump
    later = [name for name in tensors if name.startswith("1/")]
    assert later == [
        f"1/{line}" for line in (folder / "1" / "tensor_names.txt").read_text().splitlines()
    ]
    assert tensors[f"1/{MLP}-output"].shape[1] == 1


def test_a_folder_in_use_is_refused(dump: tuple[Path, Any]) -> None:
    folder, _ = dump
    with pytest.raises(UnwritableOutputError, match="is not empty"):
        load_intermediate_tensors(find_oracle(PIPELINE), "torch", folder)


@pytest.mark.parametrize("module", [MLP, MLP.removeprefix("model.")])
def test_a_module_goes_by_both_of_its_names(dump: tuple[Path, Any], module: str) -> None:
    _, tensors = dump
    given, result = tensors_of_module(tensors, module)
    assert torch.equal(given, tensors[f"{MLP}-input_0"])
    assert torch.equal(result, tensors[f"{MLP}-output"])


def test_arguments_by_keyword_and_results_in_a_tuple_are_found(dump: tuple[Path, Any]) -> None:
    _, tensors = dump
    given, result = tensors_of_module(tensors, "model.layers.0.self_attn")
    assert torch.equal(given, tensors["model.model.layers.0.self_attn-input_hidden_states"])
    assert torch.equal(result, tensors["model.model.layers.0.self_attn-output_0"])


@pytest.mark.parametrize(
    ("module", "nearest"),
    [
        ("model.layers.0.mpl", "nearest: model.model.layers.0.mlp, "),
        ("model.model.layers.0.self_atn", "nearest: model.model.layers.0.self_attn, "),
        ("model.layers.3.mlp", "by default one hidden layer is run"),
        ("?" * 40, "there are model, model.model, "),
    ],
)
def test_an_unknown_module_names_the_nearest(
    dump: tuple[Path, Any], module: str, nearest: str
) -> None:
    with pytest.raises(UnknownModuleError, match="no module") as caught:
        tensors_of_module(dump[1], module)
    assert nearest in str(caught.value)


def test_a_module_without_an_input_is_told() -> None:
    tensors = {"model.table-output": torch.ones(2), "1/model.table-input_0": torch.ones(2)}
    with pytest.raises(UnknownModuleError, match=r"no input tensor; it has model\.table-output"):
        tensors_of_module(tensors, "table")


def test_testdata_rebuilds_the_module_it_came_from() -> None:
    from safetensors.torch import load_file
    from torch.nn import functional

    oracle = find_oracle(PIPELINE)
    given, result = get_torch_testdata(oracle, "lm_head", encoding_name="float32")
    weights = load_file(Path(str(oracle.model_path)) / "model.safetensors")
    torch.testing.assert_close(result, functional.linear(given, weights["lm_head.weight"]))


def test_testdata_leaves_a_dump_only_where_it_is_asked_to(tmp_path: Path) -> None:
    oracle = find_oracle(PIPELINE)
    given, _ = get_torch_testdata(oracle, MLP, tmp_path / "kept", encoding_name="bfloat16")
    assert given.dtype is torch.bfloat16
    assert (tmp_path / "kept" / "manifest.json").is_file()


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (np.arange(6, dtype=np.float32).reshape(2, 3), torch.float32),
        (np.array(True), torch.bool),
        (np.array([1, 2], dtype=np.uint16), torch.uint16),
        (np.array([1, 2], dtype=">i4"), torch.int32),
        (np.array([1.5, -2], dtype=ml_dtypes.bfloat16), torch.bfloat16),
        (np.array([1.5, -2], dtype=ml_dtypes.float8_e4m3fn), torch.float8_e4m3fn),
        (np.array([1.5, -2], dtype=ml_dtypes.float4_e2m1fn), torch.float32),
        (np.zeros((0, 3), dtype=ml_dtypes.bfloat16), torch.bfloat16),
        (np.arange(6)[::-2], torch.int64),
    ],
)
def test_dtypes_and_values_survive(array: np.ndarray[Any, Any], expected: torch.dtype) -> None:
    before = array.copy()
    tensor = as_torch(array)
    assert tensor.dtype is expected
    assert tuple(tensor.shape) == array.shape
    assert tensor.double().tolist() == before.astype(np.float64).tolist()
    tensor.zero_()  # a copy of its own: a dump stays mapped and must not change
    assert array.tolist() == before.tolist()
