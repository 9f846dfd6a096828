"""What test_common.model_debugging_utils writes beyond the documented form."""

import json
from collections import deque, namedtuple
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from transformers import T5Config, T5ForConditionalGeneration
from transformers.modeling_outputs import BaseModelOutput

from comparison.store.safetensors_file import read_safetensors_tensor
from test_common.model_debugging_utils import TraceOptions, model_addition_debugger_context
from test_common.print_hook import CaptureWarning
from tests.test_common.traced_models import MODELS

_Pair = namedtuple("_Pair", ["left", "right"])  # as third-party models have them


@dataclass
class _State:
    hidden: Any
    step: int


class _Returns(nn.Module):
    """Returns a fixed value."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value

    def forward(self, x: torch.Tensor) -> Any:
        return self.value


class _Around(nn.Module):
    def __init__(self, inner: nn.Module, times: int = 1) -> None:
        super().__init__()
        self.inner, self.times = inner, times

    def forward(self, x: Any) -> Any:
        for _ in range(self.times):
            x = self.inner(x)
        return x


def _trace(
    folder: Path, model: nn.Module, *args: Any, use_repr: bool = True, **options: Any
) -> Any:
    """Trace one call and return its tree."""
    with model_addition_debugger_context(
        model, folder, options=TraceOptions(**options), use_repr=use_repr
    ):
        model(*args)
    return _tree(folder, model)


def _tree(folder: Path, model: nn.Module) -> Any:
    return json.loads((folder / f"{type(model).__name__}_debug_tree_FULL_TENSORS.json").read_text())


def test_outputs_of_containers_are_kept(tmp_path: Path) -> None:
    model, inputs = MODELS["llama"]()
    with model_addition_debugger_context(
        model, tmp_path, options=TraceOptions(container_outputs=True)
    ):
        output = model(**inputs)
    tree = _tree(tmp_path, model)
    assert tree["outputs"]["logits"]["shape"] == repr(output.logits.shape)
    assert tree["outputs"]["logits"]["max"] == f"tensor({output.logits.max():.4e})"
    assert all("outputs" in node for node in _nodes(tree))


def test_calls_do_not_overwrite_one_another(tmp_path: Path) -> None:
    model = _Around(nn.ReLU(), times=2)
    for _ in range(2):
        with model_addition_debugger_context(
            model, tmp_path, use_repr=False, options=TraceOptions(every_call=True)
        ):
            model(torch.ones(1, 3))
            model(torch.ones(1, 5))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1", "2", "3"]
    assert [_tree(tmp_path / str(i), model)["inputs"]["args"][0]["shape"] for i in range(4)] == [
        "torch.Size([1, 3])",
        "torch.Size([1, 5])",
    ] * 2


def test_later_calls_of_a_module_have_their_number(tmp_path: Path) -> None:
    class Adds(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + 1

    model = _Around(Adds(), times=3)
    _trace_in = tmp_path / "0"
    with model_addition_debugger_context(
        model, tmp_path, use_repr=False, options=TraceOptions(every_call=True)
    ):
        model(torch.zeros(2))
    tree = _tree(_trace_in, model)
    assert [child.get("call", 1) for child in tree["children"]] == [1, 2, 3]
    files = [child["outputs"]["value"] for child in tree["children"]]
    assert files[1] == "./_Around.inner(2)_outputs.safetensors"
    found = [read_safetensors_tensor(_trace_in / file, "data")[0] for file in files]
    assert found == [1, 2, 3]


def test_names_that_meet_do_not_overwrite_one_another(tmp_path: Path) -> None:
    value = {1: torch.zeros(2), "1": torch.ones(2)}
    with model_addition_debugger_context(
        _Around(nn.Identity()), tmp_path, use_repr=False, options=TraceOptions(every_call=True)
    ) as model:
        model(value)
    names = {path.name for path in (tmp_path / "0").glob("*args_0*")}
    assert "_Around_inputs_args_0_1.safetensors" in names
    assert "_Around_inputs_args_0_1~2.safetensors" in names


def test_generation_is_traced_step_by_step(tmp_path: Path) -> None:
    model, inputs = MODELS["llama"]()
    steps = 4
    with model_addition_debugger_context(model, tmp_path, options=TraceOptions(every_call=True)):
        traced = model.generate(**inputs, max_new_tokens=steps, do_sample=False)
    plain = model.generate(**inputs, max_new_tokens=steps, do_sample=False)
    assert traced.tolist() == plain.tolist()
    assert sorted(path.name for path in tmp_path.iterdir()) == [str(i) for i in range(steps)]
    shapes = [
        _tree(tmp_path / str(i), model)["inputs"]["kwargs"]["input_ids"]["shape"]
        for i in range(steps)
    ]
    assert shapes == ["torch.Size([2, 13])", *["torch.Size([2, 1])"] * (steps - 1)]


def test_encoder_that_generation_calls_by_itself_has_a_tree(tmp_path: Path) -> None:
    torch.manual_seed(4)
    config = T5Config(
        d_model=24, d_kv=6, d_ff=40, num_layers=2, num_heads=3, vocab_size=50, pad_token_id=0,
        decoder_start_token_id=0, eos_token_id=None,
    )  # fmt: skip
    model = T5ForConditionalGeneration(config).eval()
    ids = torch.tensor([[5, 6, 7, 8, 9, 11, 3, 2, 17]])
    with model_addition_debugger_context(model, tmp_path, options=TraceOptions(every_call=True)):
        model.generate(input_ids=ids, max_new_tokens=3, do_sample=False)
    paths = [_tree(tmp_path / str(i), model)["module_path"] for i in range(4)]
    name = "T5ForConditionalGeneration"
    assert paths == [f"{name}.encoder", name, name, name]


@pytest.mark.parametrize(
    ("tensor", "found"),
    [
        (torch.tensor([1, 4]), ("2.5000e+00", "2.1213e+00", "tensor(1)", "tensor(4)")),
        (
            torch.tensor([True, False]),
            ("5.0000e-01", "7.0711e-01", "tensor(False)", "tensor(True)"),
        ),
        (torch.tensor([1.0, 4.0], dtype=torch.float64), ("2.5000e+00", "2.1213e+00", "1.", "4.")),
        (torch.tensor([1.0, 4.0]).to(torch.float8_e5m2), ("2.5000e+00", "2.1213e+00", "1.", "4.")),
        (torch.tensor([7]), ("7.0000e+00", "nan", "tensor(7)", "tensor(7)")),
    ],
    ids=lambda value: str(getattr(value, "dtype", "")),
)
def test_every_dtype_has_statistics(
    tmp_path: Path, tensor: torch.Tensor, found: tuple[str, ...]
) -> None:
    entry = _trace(tmp_path, nn.Identity(), tensor, every_dtype=True)["inputs"]["args"][0]
    got = [entry[name] for name in ("mean", "std", "min", "max")]
    assert all(part in text for part, text in zip(found, got, strict=True)), got


def test_complex_numbers_have_a_mean_and_no_order(tmp_path: Path) -> None:
    tensor = torch.tensor([1 + 2j, 3 + 4j])
    entry = _trace(tmp_path, nn.Identity(), tensor, every_dtype=True)["inputs"]["args"][0]
    assert entry["mean"] == "tensor(2.0000e+00+3.0000e+00j)"
    assert {"std"} <= entry.keys()
    assert not {"min", "max"} & entry.keys()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.bool], ids=str)
def test_empty_tensors_have_no_statistics(tmp_path: Path, dtype: torch.dtype) -> None:
    tensor = torch.zeros(0, 3, dtype=dtype)
    entry = _trace(tmp_path, nn.Identity(), tensor, every_dtype=True)["inputs"]["args"][0]
    assert entry.keys() == {"shape", "dtype", "value"}
    assert "size=(0, 3)" in entry["value"][0]


@pytest.mark.parametrize(
    ("value", "keys"),
    [
        (_State(hidden=torch.ones(2), step=3), ["hidden", "step"]),
        (_Pair(torch.ones(2), 5), ["left", "right"]),
        (BaseModelOutput(last_hidden_state=torch.ones(2)), ["last_hidden_state"]),
    ],
    ids=["dataclass", "namedtuple", "ModelOutput"],
)
def test_structures_are_described_by_field(tmp_path: Path, value: Any, keys: list[str]) -> None:
    tree = _trace(tmp_path, _Around(_Returns(value)), torch.ones(1), structure=True)
    outputs = tree["children"][0]["outputs"]
    assert list(outputs) == keys
    assert outputs[keys[0]]["mean"] == "tensor(1.0000e+00)"


def test_deques_are_described_as_lists(tmp_path: Path) -> None:
    value = deque([torch.ones(2), _State(hidden=torch.zeros(1), step=1)])
    tree = _trace(tmp_path, _Around(_Returns(value)), torch.ones(1), structure=True)
    first, second = tree["children"][0]["outputs"]
    assert first["shape"] == "torch.Size([2])"
    assert second["hidden"]["shape"] == "torch.Size([1])"


def test_tensors_in_structures_are_stored(tmp_path: Path) -> None:
    model = _Around(_Returns(_State(hidden=torch.full((2,), 7.0), step=3)))
    _trace(tmp_path, model, torch.ones(1), use_repr=False, structure=True)
    file = tmp_path / "_Around.inner_outputs_hidden.safetensors"
    assert read_safetensors_tensor(file, "data").tolist() == [7, 7]


def test_pruned_trace_says_what_is_absent(tmp_path: Path) -> None:
    model, inputs = MODELS["vit"]()
    with model_addition_debugger_context(model, tmp_path, options=TraceOptions(names_pruned=True)):
        model(**inputs)
    tree = _tree(tmp_path, model)
    listed = [node["pruned"] for node in _nodes(tree) if "pruned" in node]
    shown = {node["module_path"] for node in _nodes(tree)}
    assert len(listed) == 1
    blocks = [path.rpartition(".")[2] for path in listed[0]]
    assert blocks == ["1", "2"]
    assert not set(listed[0]) & shown
    assert {path[:-1] + end for path in listed[0] for end in "03"} <= shown


def test_whole_trace_lists_nothing_as_absent(tmp_path: Path) -> None:
    model, inputs = MODELS["vit"]()
    options = TraceOptions(names_pruned=True)
    with model_addition_debugger_context(model, tmp_path, do_prune_layers=False, options=options):
        model(**inputs)
    assert not any("pruned" in node for node in _nodes(_tree(tmp_path, model)))


def test_call_that_failed_is_written_with_the_exception(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(3, 5), _Around(nn.Linear(7, 2)))
    with (
        pytest.raises(RuntimeError, match="cannot be multiplied"),
        model_addition_debugger_context(model, tmp_path, options=TraceOptions(failed_calls=True)),
    ):
        model(torch.ones(1, 3))
    nodes = list(_nodes(_tree(tmp_path, model)))
    assert [(node["module_path"], "raised" in node) for node in nodes] == [
        ("Sequential", True),
        ("Sequential.0", False),
        ("Sequential.1", True),
        ("Sequential.1.inner", True),
    ]
    assert "1x5 and 7x2" in nodes[3]["raised"]
    assert nodes[3]["inputs"]["args"][0]["shape"] == "torch.Size([1, 5])"


def test_all_options_together_and_a_model_that_is_as_before(tmp_path: Path) -> None:
    model, inputs = MODELS["gemma3"]()
    plain = model(**inputs).logits
    with model_addition_debugger_context(
        model, tmp_path, use_repr=False, options=TraceOptions.all()
    ):
        traced = model(**inputs).logits
    assert torch.equal(plain, traced)
    for node in _nodes(_tree(tmp_path / "0", model)):
        assert "outputs" in node
        for entry in _tensors(node["inputs"]), _tensors(node["outputs"]):
            for tensor in entry:
                assert (tmp_path / "0" / tensor["value"]).is_file()
                assert "mean" in tensor


def test_compiled_parts_are_named(tmp_path: Path) -> None:
    model = _Around(nn.Linear(3, 3))
    model.inner.compile(backend="eager")
    with (
        pytest.warns(CaptureWarning, match=r"torch\.compile runs them: _Around\.inner"),
        model_addition_debugger_context(model, tmp_path),
    ):
        model(torch.ones(1, 3))


@pytest.fixture
def _process_group() -> Any:
    from torch import distributed

    store = distributed.HashStore()
    distributed.init_process_group("gloo", rank=0, world_size=1, store=store)
    yield
    distributed.destroy_process_group()


@pytest.mark.usefixtures("_process_group")
def test_of_a_distributed_tensor_the_local_part_is_told(tmp_path: Path) -> None:
    from torch.distributed.device_mesh import init_device_mesh

    whole = torch.arange(6.0).reshape(3, 2)
    tensor = distribute_tensor(whole, init_device_mesh("cpu", (1,)), [Shard(0)])
    assert isinstance(tensor, DTensor)
    entry = _trace(tmp_path, nn.Identity(), tensor)["inputs"]["args"][0]
    assert entry["value"][0] == "tensor([[0.0000e+00, 1.0000e+00],"
    assert entry["mean"] == "tensor(2.5000e+00)"


@pytest.mark.usefixtures("_process_group")
def test_other_ranks_write_nothing_and_run_without_gradients(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 1)
    folder = tmp_path / "trace"
    with model_addition_debugger_context(_Around(nn.Linear(3, 2)), folder) as model:
        assert not model(torch.ones(1, 3)).requires_grad
    assert not folder.exists()


def _nodes(tree: Any) -> list[Any]:
    return [tree, *(node for child in tree.get("children", ()) for node in _nodes(child))]


def _tensors(value: Any) -> list[Any]:
    if isinstance(value, list):
        return [found for child in value for found in _tensors(child)]
    if not isinstance(value, dict):
        return []
    if "shape" in value:
        return [value]
    return [found for child in value.values() for found in _tensors(child)]
