"""test_common.model_debugging_utils at default options, against transformers' own."""

import contextlib
import gc
import inspect
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from transformers.model_debugging_utils import model_addition_debugger_context as documented

from test_common.model_debugging_utils import model_addition_debugger_context
from tests.test_common.traced_models import MODELS, TracedFiles

_CONTEXTS: tuple[Callable[..., Any], ...] = (documented, model_addition_debugger_context)
_MODES = [(True, True), (True, False), (False, True), (False, False)]


@pytest.fixture(autouse=True)
def _own_print_options() -> Iterator[None]:
    before = vars(torch._tensor_str.PRINT_OPTS).copy()
    yield
    vars(torch._tensor_str.PRINT_OPTS).update(before)


def _both(
    folder: Path, call: Callable[[], object], model: nn.Module, **options: bool
) -> tuple[TracedFiles, TracedFiles]:
    """Trace the same call with theirs and ours."""
    found = []
    for number, context in enumerate(_CONTEXTS):
        with context(model, debug_path=str(folder / str(number)), **options):
            call()
        # Theirs leaves its forwards behind.
        for module in model.modules():
            vars(module).pop("forward", None)
        found.append(TracedFiles.read(folder / str(number)))
    return found[0], found[1]


@pytest.mark.parametrize(("prunes", "use_repr"), _MODES, ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_files_equal_those_of_transformers(
    tmp_path: Path, name: str, prunes: bool, use_repr: bool
) -> None:
    model, inputs = MODELS[name]()
    options = {"do_prune_layers": prunes, "use_repr": use_repr}
    theirs, ours = _both(tmp_path, lambda: model.forward(**inputs), model, **options)
    assert len(ours.trees) == 2
    assert ours.trees == theirs.trees
    assert bool(ours.tensors) != use_repr
    # Theirs writes files for the layers that are pruned too, which no JSON mentions.
    wanted = theirs.tensors.keys() if not prunes else ours.tensors.keys()
    assert ours.tensors == {name: theirs.tensors[name] for name in wanted}
    tree = json.dumps(ours.trees)
    # The JSON does not mention what the whole model returns either.
    unsaid = {name for name in ours.tensors if f'"./{name}"' not in tree}
    assert {name.partition("_")[0] for name in unsaid} <= {type(model).__name__}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_files_equal_in_other_dtypes(tmp_path: Path, dtype: torch.dtype) -> None:
    model, inputs = MODELS["llama"]()
    model = model.to(dtype)
    theirs, ours = _both(tmp_path, lambda: model(**inputs), model)
    assert ours.trees == theirs.trees


class _Anything(nn.Module):
    """Takes and returns whatever it is given."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return args[0]


class _Around(nn.Module):
    """A module that passes things on to one inside."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.inner(*args, **kwargs)


class _Numbers(tuple[object, ...]):  # a tuple of another class, as torch.Size is
    pass


_VALUES: dict[str, Any] = {
    "none": None,
    "texts": ["a\nb", "ä", 1.5, True, b"x"],
    "size": torch.Size([1, 2]),
    "subclass": _Numbers((torch.ones(3), 2)),
    "keys": {1: torch.ones(2, 3), None: 2, False: 3, "a b": torch.arange(3)},
    "empty": [(), {}, []],
    "object": nn.Identity(),
    "one": torch.tensor([2.5]),
    "nothing to reduce": torch.zeros(0, 3, dtype=torch.int32),
    "scalar": torch.tensor(-3.0),
    "nan": torch.tensor([float("nan"), 1.0, 2.0]),
    "infinite": torch.tensor([[float("-inf"), 1.0], [2.0, float("inf")]]),
    "negative zero": torch.tensor([-0.0, 0.0, -0.0]),
    "integers": torch.arange(2000).reshape(20, 100),
    "booleans": torch.ones(2, 3, dtype=torch.bool),
    "complex": torch.ones(2, dtype=torch.complex64),
    "float8": torch.ones(3).to(torch.float8_e4m3fn),
    "strided": torch.randn(40, 70, generator=torch.Generator().manual_seed(1)).T[::2],
    "parameter": nn.Parameter(torch.ones(2, 3)),
    "meta": torch.empty(3, device="meta"),
}


@pytest.mark.filterwarnings("ignore:std")
@pytest.mark.parametrize("value", _VALUES.values(), ids=_VALUES)
def test_any_value_is_described_as_by_transformers(tmp_path: Path, value: Any) -> None:
    model = _Around(_Around(_Anything()))
    theirs, ours = _both(tmp_path, lambda: model(value, other=value), model)
    assert ours.trees == theirs.trees


@pytest.mark.parametrize("name", ["texts", "keys", "one", "integers", "strided", "float8"])
def test_any_value_is_stored_as_by_transformers(tmp_path: Path, name: str) -> None:
    model = _Around(_Anything())
    value = _VALUES[name]
    theirs, ours = _both(tmp_path, lambda: model(value, other=value), model, use_repr=False)
    assert ours.trees == theirs.trees
    assert ours.tensors == theirs.tensors


def test_gradients_of_the_inputs_are_told_as_by_transformers(tmp_path: Path) -> None:
    given = torch.ones(2, requires_grad=True)
    model = _Around(_Around(_Anything()))
    theirs, ours = _both(tmp_path, lambda: model(given * 2), model)
    assert ours.trees == theirs.trees
    assert "MeanBackward" in json.dumps(ours.trees)


_SHOWN = ("first.0", "first.0.inner", "first.1", "first.1.inner", "bare.0")


class _Blocks(nn.Module):
    """Blocks in two lists, one of them called twice, blocks inside of blocks, and bare layers."""

    def __init__(self, deep: int) -> None:
        super().__init__()
        self.first = nn.ModuleList([_Around(nn.Linear(3, 3)) for _ in range(4)])
        inner = nn.ModuleList([_Blocks(deep - 1) for _ in range(3)]) if deep else nn.ModuleList()
        self.inner = inner
        self.bare = nn.Sequential(*[nn.Linear(3, 3) for _ in range(4)])
        self.same = self.bare[0]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in (*self.first, *self.inner, self.first[1], self.same):
            x = block(x)
        return self.bare(x)


def test_blocks_are_pruned_as_by_transformers(tmp_path: Path) -> None:
    torch.manual_seed(2)
    model = _Blocks(2)
    theirs, ours = _both(tmp_path, lambda: model(torch.ones(2, 3)), model)
    assert ours.trees == theirs.trees
    flat = _paths(_trace(tmp_path / "flat", _Blocks(0), torch.ones(1, 3)))
    # The last block that is called is the second of the list.
    assert flat[:6] == ["_Blocks", *(f"_Blocks.{path}" for path in _SHOWN)]


class _Weight(nn.Module):
    """Uses its part without calling it."""

    def __init__(self) -> None:
        super().__init__()
        self.part = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(x, self.part.weight)


def test_container_whose_parts_are_not_called_has_null_outputs(tmp_path: Path) -> None:
    model = _Around(_Weight())
    theirs, ours = _both(tmp_path, lambda: model(torch.ones(2, 3)), model)
    assert ours.trees == theirs.trees
    tree = ours.trees["_Around_debug_tree_SUMMARY.json"]
    assert tree["children"][0]["outputs"] is None


def test_signature_is_the_documented_one() -> None:
    ours = inspect.signature(model_addition_debugger_context).parameters
    names = ["model", "debug_path", "do_prune_layers", "use_repr"]
    assert list(ours)[:4] == names
    assert {name: ours[name].default for name in names[1:]} == {
        "debug_path": None,
        "do_prune_layers": True,
        "use_repr": True,
    }
    assert all(p.kind is p.KEYWORD_ONLY for p in list(ours.values())[4:])


def test_without_a_path_files_go_to_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with model_addition_debugger_context(nn.Linear(3, 2), use_repr=False) as model:
        model(torch.ones(2, 3))
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "Linear_debug_tree_FULL_TENSORS.json",
        "Linear_debug_tree_SUMMARY.json",
        "Linear_inputs_args_0.safetensors",
        "Linear_outputs.safetensors",
    ]


def test_calls_run_without_gradients_and_the_block_does_not(tmp_path: Path) -> None:
    model = _Around(nn.Linear(3, 2))
    with model_addition_debugger_context(model, tmp_path):
        assert not model(torch.ones(1, 3)).requires_grad
        assert not model.inner(torch.ones(1, 3)).requires_grad
        assert torch.is_grad_enabled()
    assert model(torch.ones(1, 3)).requires_grad


def test_call_of_a_part_from_outside_writes_nothing(tmp_path: Path) -> None:
    model = _Around(nn.Linear(3, 2))
    with model_addition_debugger_context(model, tmp_path, use_repr=False):
        model.inner(torch.ones(1, 3))
    assert list(tmp_path.iterdir()) == []


class _Fails(nn.Module):
    """Calls a part that fails, catches that, and may fail itself."""

    def __init__(self) -> None:
        super().__init__()
        self.part = nn.Linear(3, 2)

    def forward(self, x: torch.Tensor, *, fails: bool = False) -> torch.Tensor:
        with contextlib.suppress(RuntimeError):
            self.part(torch.ones(1, 5))
        if fails:
            raise ValueError("on purpose")
        return self.part(x)


def _state(model: nn.Module) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    return [(dict(vars(m)), dict(m._forward_hooks)) for m in model.modules()]


def test_everything_is_as_before_after_an_exception(tmp_path: Path) -> None:
    model = _Fails()
    model.part.forward = model.part.forward  # type: ignore[method-assign]  # one of its own
    before = _state(model)
    options = vars(torch._tensor_str.PRINT_OPTS).copy()
    with (
        pytest.raises(ValueError, match="on purpose"),
        model_addition_debugger_context(model, tmp_path),
    ):
        model(torch.ones(1, 3), fails=True)
    assert _state(model) == before
    assert torch.is_grad_enabled()
    assert vars(torch._tensor_str.PRINT_OPTS) == options
    assert list(tmp_path.iterdir()) == []


def test_print_options_and_model_are_as_before_after_a_trace(tmp_path: Path) -> None:
    torch.set_printoptions(sci_mode=False, linewidth=77, precision=3)
    options = vars(torch._tensor_str.PRINT_OPTS).copy()
    model, inputs = MODELS["llama"]()
    before = _state(model)
    with model_addition_debugger_context(model, tmp_path):
        model.forward(**inputs)
        assert vars(torch._tensor_str.PRINT_OPTS) == options
    assert _state(model) == before


def test_exception_that_the_model_catches_does_not_shift_the_tree(tmp_path: Path) -> None:
    tree = _trace(tmp_path, _Fails(), torch.ones(1, 3))
    assert _paths(tree) == ["_Fails", "_Fails.part", "_Fails.part"]
    failed, good = tree["children"]
    assert "mat1 and mat2 shapes cannot be multiplied" in failed["raised"]
    assert "outputs" in good
    assert "raised" not in good


def test_stand_in_that_someone_kept_traces_no_more(tmp_path: Path) -> None:
    model = nn.Linear(3, 2)
    with model_addition_debugger_context(model, tmp_path):
        kept = model.forward
    assert kept(torch.ones(1, 3)).shape == (1, 2)
    assert list(tmp_path.iterdir()) == []


class _InPlace(nn.Module):
    """Changes what a part returned and took, in ways that torch counts and does not count."""

    def __init__(self, *, counted: bool) -> None:
        super().__init__()
        self.first, self.second = nn.ReLU(), nn.ReLU()
        self.counted = counted

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x)
        changed = y if self.counted else y.data
        changed[3, 5] += 40
        return self.second(y)


@pytest.mark.parametrize("counted", [True, False])
@pytest.mark.parametrize("use_repr", [True, False])
def test_tensor_that_changes_is_described_anew(
    tmp_path: Path, counted: bool, use_repr: bool
) -> None:
    model = _InPlace(counted=counted)
    given = torch.randn(50, 60, generator=torch.Generator().manual_seed(3))
    theirs, ours = _both(tmp_path, lambda: model(given), model, use_repr=use_repr)
    assert ours.trees == theirs.trees
    assert ours.tensors == theirs.tensors
    tree = ours.trees["_InPlace_debug_tree_SUMMARY.json"]
    before, after = tree["children"][0]["outputs"], tree["children"][1]["inputs"]["args"][0]
    assert before["max"] != after["max"]


def test_file_that_was_replaced_is_not_linked_to(tmp_path: Path) -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.twice, self.last = nn.ReLU(), nn.ReLU()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            first = self.twice(x)
            self.twice(x + 1)
            return self.last(first)

    model = Twice()
    theirs, ours = _both(tmp_path, lambda: model(torch.ones(3, 5)), model, use_repr=False)
    assert ours.tensors == theirs.tensors


def test_copies_of_layers_that_are_hidden_are_let_go(tmp_path: Path) -> None:
    held = []

    class Counts(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            held.append(sum(type(thing).__name__ == "_Copy" for thing in gc.get_objects()))
            return x + 1

    layers = nn.Sequential(*[nn.Sequential(nn.Linear(3, 3), Counts()) for _ in range(9)])
    with model_addition_debugger_context(layers, tmp_path, use_repr=False):
        layers(torch.ones(2, 3))
    assert held[0] == 0
    assert 0 < max(held) == held[2] <= 10
    assert len(list(tmp_path.glob("*.safetensors"))) == 2 + 2 * 5


def test_tensors_that_are_passed_on_take_no_more_room(tmp_path: Path) -> None:
    with model_addition_debugger_context(
        _Around(_Around(_Anything())), tmp_path, use_repr=False
    ) as model:
        model(torch.ones(30, 50))
    files = list(tmp_path.glob("*.safetensors"))
    assert len(files) == 5
    assert len({path.stat().st_ino for path in files}) == 1


def test_value_is_kept_in_the_summary(tmp_path: Path) -> None:
    # Theirs drops an argument named `value`, such as that of attention, with the tensors' values.
    with model_addition_debugger_context(_Around(_Anything()), tmp_path) as model:
        model(torch.ones(1), key=1, value=torch.ones(2, 3))
    text = (tmp_path / "_Around_debug_tree_SUMMARY.json").read_text()
    tree = json.loads(text)
    assert tree["children"][0]["inputs"]["kwargs"]["value"]["shape"] == "torch.Size([2, 3])"
    assert "tensor([" not in text


def test_addresses_are_masked_wherever_they_stand(tmp_path: Path) -> None:
    tree = _trace(tmp_path, _Around(_Anything()), test_addresses_are_masked_wherever_they_stand)
    assert tree["inputs"]["args"] == [
        "<function test_addresses_are_masked_wherever_they_stand at 0xXXXXXXXX>"
    ]


class _Unprintable:
    def __repr__(self) -> str:
        raise AttributeError("half made")


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (torch.zeros(0, 3), {"shape": "torch.Size([0, 3])", "dtype": "torch.float32"}),
        (torch.eye(2).to_sparse(), {"shape": "torch.Size([2, 2])", "dtype": "torch.float32"}),
        ({(1, 2): 3}, {"(1, 2)": "3"}),
        (_Unprintable(), "<cannot be shown: AttributeError: half made>"),
    ],
    ids=["empty", "sparse", "key", "unprintable"],
)
def test_what_ends_the_run_under_transformers_does_not_here(
    tmp_path: Path, value: Any, found: Any
) -> None:
    tree = _trace(tmp_path, _Around(_Anything()), value)
    got = tree["inputs"]["args"][0]
    assert got == found if not isinstance(found, dict) else found.items() <= got.items()


def test_value_that_holds_itself_ends(tmp_path: Path) -> None:
    endless: list[Any] = []
    endless.append(endless)
    assert _trace(tmp_path, _Anything(), endless)["module_path"] == "_Anything"


def test_names_that_are_no_file_names_stay_in_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    value = {"../out": torch.ones(2), "a/b": torch.ones(3), "x" * 300: torch.ones(4)}
    with model_addition_debugger_context(_Anything(), folder, use_repr=False) as model:
        model(value)
    assert list(tmp_path.iterdir()) == [folder]
    tree = json.loads((folder / "_Anything_debug_tree_FULL_TENSORS.json").read_text())
    for entry in tree["inputs"]["args"][0].values():
        assert (folder / entry["value"]).is_file()


def test_what_cannot_be_stored_says_why(tmp_path: Path) -> None:
    tensor = torch.ones(2, dtype=torch.complex128)
    with model_addition_debugger_context(_Anything(), tmp_path, use_repr=False) as model:
        model([tensor, torch.empty(2, device="meta")])
    tree = json.loads((tmp_path / "_Anything_debug_tree_FULL_TENSORS.json").read_text())
    complex_, meta = tree["inputs"]["args"][0]
    assert complex_["value"] == "not saved: the format has no complex128"
    assert meta["value"].startswith("not saved: a meta or fake tensor")


def test_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    model = nn.Linear(3, 2)
    with (
        pytest.raises(PermissionError, match="is a file: give the path of a folder"),
        model_addition_debugger_context(model, tmp_path / "file"),
    ):
        pass
    assert "forward" not in vars(model)


@pytest.mark.parametrize("model", [3, torch.jit.script(nn.Linear(3, 2))], ids=["3", "script"])
def test_what_is_no_module_is_refused(tmp_path: Path, model: Any) -> None:
    with (
        pytest.raises(TypeError, match=r"expected a torch\.nn\.Module|ScriptModule"),
        model_addition_debugger_context(model, tmp_path),
    ):
        pass


def _trace(folder: Path, model: nn.Module, value: Any) -> Any:
    """Return the whole tree of a call."""
    with model_addition_debugger_context(model, folder):
        model(value)
    return json.loads((folder / f"{type(model).__name__}_debug_tree_FULL_TENSORS.json").read_text())


def _paths(node: Any) -> list[str]:
    """List the modules of a tree."""
    inside = [path for child in node.get("children", ()) for path in _paths(child)]
    return [node["module_path"], *inside]
