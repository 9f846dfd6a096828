"""test_common.call_tree: what is told of calls, whoever writes it down."""

import threading
from typing import Any

import pytest
import torch
from torch import nn

from comparison.schema.errors import UnwritableOutputError
from test_common.call_tree import CallNode, CallTreeCapture, CallTreeScope
from test_common.call_tree_json import TreeForm, tree_as_json
from test_common.value_description import ValueDescriber


class _Doubles(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.part = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.part(x) * 2


class _Meets(_Doubles):
    """Ends no call before all threads are inside of theirs."""

    def __init__(self, together: threading.Barrier) -> None:
        super().__init__()
        self._together = together

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self._together.wait(timeout=60)
        return super().forward(x)


def _capture(model: nn.Module, trees: list[CallNode], **scope: bool) -> CallTreeCapture:
    capture = CallTreeCapture(
        model, lambda: ValueDescriber(files=None), trees.append, scope=CallTreeScope(**scope)
    )
    capture.attach()
    return capture


def test_a_call_and_the_calls_in_it() -> None:
    trees: list[CallNode] = []
    capture = _capture(_Doubles(), trees)
    capture._model(torch.ones(1, 3))
    (root,) = trees
    assert (root.path, root.is_root, root.is_leaf) == ("_Doubles", True, False)
    assert [(c.path, c.is_root, c.is_leaf) for c in root.children] == [
        ("_Doubles.part", False, True)
    ]
    capture.detach()
    capture._model(torch.ones(1, 3))
    assert len(trees) == 1


def test_parts_called_from_outside_are_told_where_asked_for() -> None:
    for wanted in (True, False):
        trees: list[CallNode] = []
        model = _Doubles()
        capture = _capture(model, trees, outer_calls=wanted)
        model.part.forward(torch.ones(1, 3))
        assert [tree.path for tree in trees] == ["_Doubles.part"] * wanted
        capture.detach()


def test_calls_of_several_threads_do_not_mix() -> None:
    trees: list[CallNode] = []
    model = _Meets(threading.Barrier(4))
    capture = _capture(model, trees)

    def run() -> None:
        for _ in range(5):
            model(torch.ones(1, 3))

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    capture.detach()
    assert len(trees) == 20
    assert all([c.path for c in tree.children] == ["_Meets.part"] for tree in trees)


class _FullDisk:
    """Takes so many values, and then no more."""

    def __init__(self, takes: int) -> None:
        self.takes = takes

    def describe(self, value: Any, name: str, *, later: bool) -> str:
        del value, later
        if self.takes == 0:
            raise UnwritableOutputError(f"cannot write {name}: no space left")
        self.takes -= 1
        return name


@pytest.mark.parametrize("takes", [0, 1, 2, 3])
def test_full_disk_ends_the_run_and_leaves_nothing_behind(takes: int) -> None:
    trees: list[CallNode] = []
    model, disk = _Doubles(), _FullDisk(takes)
    capture = CallTreeCapture(
        model,
        lambda: disk,  # type: ignore[return-value,arg-type]  # stands in for a describer
        trees.append,
        scope=CallTreeScope(),
    )
    capture.attach()
    with pytest.raises(PermissionError, match="no space left"):
        model(torch.ones(1, 3))
    assert torch.is_grad_enabled()
    disk.takes = 9
    model(torch.ones(1, 3))
    assert trees[-1].children[0].outputs == "_Doubles.part_outputs"
    assert not trees[-1].raised
    capture.detach()
    assert not any("forward" in vars(module) for module in model.modules())


def test_grad_mode_of_the_caller_comes_back() -> None:
    capture = _capture(_Doubles(), [])
    for mode in (True, False):
        with torch.set_grad_enabled(mode):
            capture._model(torch.ones(1, 3))
            assert torch.is_grad_enabled() == mode
    capture.detach()


def _node(path: str, *children: CallNode, prunes: bool = True) -> CallNode:
    node = CallNode(path=path, number=1, is_root="." not in path, is_leaf=not children, inputs={})
    for child in children:
        node.add(child, prunes_layers=prunes)
    return node


def _layers(count: int) -> list[CallNode]:
    return [_node(f"M.layers.{i}", _node(f"M.layers.{i}.mlp")) for i in range(count)]


def test_layers_between_the_first_and_the_last_are_left_out() -> None:
    bare = [_node(f"M.acts.{i}") for i in range(4)]
    root = _node("M", _node("M.embed"), *_layers(4), *bare)
    tree = tree_as_json(root, TreeForm(names_pruned=True), full=True)
    shown = [child["module_path"] for child in tree["children"]]
    assert shown == ["M.embed", "M.layers.0", "M.layers.3", *(f"M.acts.{i}" for i in range(4))]
    assert tree["pruned"] == ["M.layers.1", "M.layers.2"]
    root = _node("M", _node("M.embed"), *_layers(4), *bare, prunes=False)
    whole = tree_as_json(root, TreeForm(names_pruned=True), full=True)
    assert len(whole["children"]) == 9
    assert "pruned" not in whole


def test_two_layers_are_both_shown() -> None:
    assert len(tree_as_json(_node("M", *_layers(2)), TreeForm(), full=False)["children"]) == 2
