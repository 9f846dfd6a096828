"""Traces of values and models that no one would expect: none of them ends the model's run."""

import copy
import functools
import inspect
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from test_common.model_debugging_utils import TraceOptions, model_addition_debugger_context


class _Takes(nn.Module):
    """Hands on what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Identity()

    def forward(self, value: Any) -> Any:
        return self.inner(value)


class _RaisingText:
    def __repr__(self) -> str:
        raise ValueError("no text")

    __str__ = __repr__


class _RaisingDict(dict[str, Any]):
    def items(self) -> Any:
        raise ValueError("no items")


class _RaisingList(list[Any]):
    def __iter__(self) -> Iterator[Any]:
        raise ValueError("no iteration")


class _RaisingTensor(torch.Tensor):
    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if func in (torch.Tensor.mean, torch.Tensor.__repr__):
            raise ValueError("no mean")
        return super().__torch_function__(func, types, args, kwargs or {})


class _Key:
    """Has no text of its own but its address."""


def _endless_list() -> list[Any]:
    endless: list[Any] = []
    endless += [endless, endless]
    return endless


def _endless_dict() -> dict[str, Any]:
    endless: dict[str, Any] = {}
    endless |= {"a": endless, "b": endless}
    return endless


VALUES: dict[str, Callable[[], Any]] = {
    "huge integer": lambda: 10**5000,
    "huge integer as a key": lambda: {10**5000: torch.ones(2)},
    "key without a text": lambda: {_RaisingText(): torch.ones(2)},
    "dictionary that raises": lambda: _RaisingDict(a=1),
    "list that raises": lambda: _RaisingList([1]),
    "list twice within itself": _endless_list,
    "dictionary twice within itself": _endless_dict,
    "tensor that raises": lambda: torch.ones(2).as_subclass(_RaisingTensor),
    "nested tensor": lambda: torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(1, 3)]),
    "jagged tensor": lambda: torch.nested.nested_tensor(
        [torch.ones(2, 3), torch.ones(1, 3)], layout=torch.jagged
    ),
    "huge meta tensor": lambda: torch.empty(2**40, 3, device="meta"),
    "compressed": lambda: torch.eye(3).to_sparse_csr(),
    "quantized": lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8),
    "lone surrogate": lambda: {"\ud800": "\udfff"},
}


def _trace(
    folder: Path, model: nn.Module, call: Callable[[nn.Module], Any], *, files: bool, full: bool
) -> Any:
    options = TraceOptions.all() if full else TraceOptions()
    with model_addition_debugger_context(model, folder, use_repr=not files, options=options):
        call(model)
    (path,) = folder.rglob("*_debug_tree_FULL_TENSORS.json")
    return json.loads(path.read_text())


@pytest.mark.parametrize("full", [False, True], ids=["documented", "all options"])
@pytest.mark.parametrize("files", [False, True], ids=["text", "files"])
@pytest.mark.parametrize("kind", VALUES)
def test_no_value_ends_the_run(tmp_path: Path, kind: str, files: bool, full: bool) -> None:
    value = VALUES[kind]()
    tree = _trace(tmp_path, _Takes(), lambda model: model(value), files=files, full=full)
    assert [child["module_path"] for child in tree["children"]] == ["_Takes.inner"]
    assert tree["children"][0]["outputs"] is not None


def test_of_a_tensor_that_raises_the_shape_is_told(tmp_path: Path) -> None:
    value = VALUES["tensor that raises"]()
    tree = _trace(tmp_path, _Takes(), lambda model: model(value), files=False, full=False)
    found = tree["inputs"]["args"][0]
    assert found["shape"] == "torch.Size([2])"
    assert found["value"] == ["<cannot be shown: ValueError: no mean>"]


def test_keys_of_one_text_are_kept_apart(tmp_path: Path) -> None:
    value = {_Key(): "first", _Key(): "second"}
    tree = _trace(tmp_path, _Takes(), lambda model: model(value), files=False, full=False)
    found = tree["inputs"]["args"][0]
    assert list(found.values()) == ["'first'", "'second'"]
    first, second = found
    assert second == f"{first}~2"


@pytest.mark.parametrize(
    ("dtype", "least", "greatest"),
    [
        (torch.uint16, 3, 2**16 - 1),
        (torch.uint32, 3, 2**32 - 1),
        (torch.uint64, 3, 2**64 - 1),
    ],
    ids=str,
)
def test_integers_that_torch_does_not_order_have_both_ends(
    tmp_path: Path, dtype: torch.dtype, least: int, greatest: int
) -> None:
    value = torch.tensor([7, greatest, least], dtype=dtype)
    tree = _trace(tmp_path, _Takes(), lambda model: model(value), files=False, full=True)
    found = tree["inputs"]["args"][0]
    assert found["min"] == f"tensor({least}, dtype={dtype})"
    assert found["max"] == f"tensor({greatest}, dtype={dtype})"


def _under_vmap(model: nn.Module) -> None:
    torch.func.vmap(model)(torch.arange(6).reshape(3, 2))


def _under_fake_tensors(model: nn.Module) -> None:
    with FakeTensorMode():
        model(torch.ones(3, dtype=torch.int64))


def _under_inference_mode(model: nn.Module) -> None:
    with torch.inference_mode():
        model(torch.ones(3))


def _under_autocast(model: nn.Module) -> None:
    with torch.autocast("cpu", torch.bfloat16):
        model(torch.ones(3))


@pytest.mark.parametrize(
    "call", [_under_vmap, _under_fake_tensors, _under_inference_mode, _under_autocast]
)
@pytest.mark.parametrize("files", [False, True], ids=["text", "files"])
def test_no_mode_of_torch_ends_the_run(
    tmp_path: Path, call: Callable[[nn.Module], None], files: bool
) -> None:
    tree = _trace(tmp_path, _Takes(), call, files=files, full=True)
    assert len(tree["children"]) == 1


@pytest.mark.parametrize("name", ["A/../../B", "..", "A" * 300, "模型", ""], ids=lambda n: n[:9])
def test_a_class_of_any_name_is_written_into_the_folder(tmp_path: Path, name: str) -> None:
    model = type(name, (_Takes,), {})()
    folder = tmp_path / "in"
    tree = _trace(folder, model, lambda model: model(torch.ones(2)), files=True, full=False)
    assert tree["module_path"] == name
    assert list(tmp_path.iterdir()) == [folder]
    assert len([path for path in folder.iterdir() if path.suffix == ".json"]) == 2


class _Scales(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.factor = 2.0

    def forward(self, x: torch.Tensor, *, more: int = 0) -> torch.Tensor:
        return x * self.factor + more


def test_a_copy_that_is_made_within_computes_with_its_own_parts(tmp_path: Path) -> None:
    model = nn.Sequential(_Scales())
    with model_addition_debugger_context(model, tmp_path):
        copied = copy.deepcopy(model)
        copied[0].factor = 5.0
        assert copied(torch.ones(1)).item() == 5
        assert not list(tmp_path.iterdir())
    assert copied(torch.ones(1)).item() == 5
    assert model(torch.ones(1)).item() == 2


def _no_change(model: nn.Module) -> None:
    del model


def _own_forward(model: nn.Module) -> None:
    before = model.forward
    model.forward = lambda x, *, more=0: before(x, more=more)  # type: ignore[method-assign]


@pytest.mark.parametrize("change", [_no_change, _own_forward])
def test_the_signature_of_forward_stays(
    tmp_path: Path, change: Callable[[nn.Module], None]
) -> None:
    model = _Scales()
    change(model)
    before = list(inspect.signature(model.forward).parameters)
    with model_addition_debugger_context(model, tmp_path):
        assert list(inspect.signature(model.forward).parameters) == before == ["x", "more"]
        assert model.forward(torch.ones(1), more=3).item() == 5


class _Static(nn.Module):
    @staticmethod
    def forward(x: torch.Tensor) -> torch.Tensor:
        return x + 1


def _given(forward: Any) -> nn.Module:
    model = nn.Identity()
    model.forward = forward  # type: ignore[method-assign]
    return model


@pytest.mark.parametrize(
    "make",
    [
        _Static,
        lambda: _given(torch.neg),
        lambda: _given(functools.partial(torch.add, other=1)),
        lambda: _given(_Scales().forward),
        lambda: nn.Sequential(nn.LazyLinear(3)),
    ],
    ids=["static", "builtin", "partial", "of another", "lazy"],
)
def test_a_forward_of_any_kind_is_traced(tmp_path: Path, make: Callable[[], nn.Module]) -> None:
    model = make()
    before = {name: dict(vars(m)).get("forward") for name, m in model.named_modules()}
    tree = _trace(tmp_path, model, lambda model: model(torch.ones(4)), files=False, full=True)
    assert tree["outputs"]["dtype"] == "torch.float32"
    assert {n: dict(vars(m)).get("forward") for n, m in model.named_modules()} == before


@pytest.mark.parametrize("first_out", [0, 1, 2])
def test_blocks_that_end_in_any_order_leave_the_model_as_it_was(
    tmp_path: Path, first_out: int
) -> None:
    model = nn.Sequential(_Scales())
    folders = [tmp_path / str(number) for number in range(3)]
    blocks = [ExitStack() for _ in folders]
    for block, folder in zip(blocks, folders, strict=True):
        block.enter_context(model_addition_debugger_context(model, folder))
    blocks.pop(first_out).close()
    model(torch.ones(1))
    for block in blocks:
        block.close()
    assert [bool(list(folder.iterdir())) for folder in folders] == [
        number != first_out for number in range(3)
    ]
    assert all("forward" not in vars(module) for module in model.modules())


def test_a_forward_that_is_set_within_stays(tmp_path: Path) -> None:
    model = _Scales()
    with model_addition_debugger_context(model, tmp_path):
        _own_forward(model)
        mine = model.forward
    assert model.forward is mine
    assert model(torch.ones(1)).item() == 2
