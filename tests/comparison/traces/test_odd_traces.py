"""Traces with shared modules, repeated layers, several calls, and numbers at the ends."""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from comparison.report.trace_html import trace_page
from comparison.report.trace_text import trace_lines
from comparison.schema.errors import BadInputError, CorruptFileError
from comparison.schema.tolerance import Tolerance
from comparison.schema.trace_comparison import CallVerdict, TraceComparison
from comparison.traces.trace_comparison import compare_traces
from comparison.traces.trace_file import read_trace
from test_common.model_debugging_utils import TraceOptions, model_addition_debugger_context
from test_common.safetensors_folder import SafetensorsFolder

SUMMARY = "Net_debug_tree_SUMMARY.json"


def compared(reference: Path, candidate: Path, rtol: float = 0.0) -> TraceComparison:
    return compare_traces(reference, candidate, Tolerance(rtol=rtol))


def written(folder: Path, tree: dict[str, Any] | str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / SUMMARY
    path.write_text(tree if isinstance(tree, str) else json.dumps(tree))
    return path


def tensor(mean: str = "1.", **more: str) -> dict[str, Any]:
    found = {"shape": "torch.Size([3])", "dtype": "torch.float32", "mean": f"tensor({mean})"}
    return {**found, **{name: f"tensor({text})" for name, text in more.items()}}


def node(path: str, *children: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"module_path": path, "children": list(children), **fields}


class _Block(nn.Module):
    def __init__(self, act: nn.Module, fault: float) -> None:
        super().__init__()
        self.lift, self.drop, self.act = nn.Linear(5, 7), nn.Linear(7, 5), act
        self.fault = fault

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden: torch.Tensor = self.act(self.lift(x))
        return x + self.fault + self.drop(hidden)


class _Net(nn.Module):
    """Blocks in a list, all with one activation."""

    def __init__(self, faults: Sequence[float] = (0.0, 0.0, 0.0, 0.0)) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.act = nn.Tanh()
        self.blocks = nn.ModuleList(_Block(self.act, fault) for fault in faults)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return x


class _Repeating(_Net):
    """Calls one block again and again."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(5):
            x = self.blocks[0](x)
        return x


def traced(folder: Path, model: nn.Module, *, prunes: bool, full: bool, calls: int = 1) -> Path:
    options = TraceOptions.all() if full else TraceOptions()
    with model_addition_debugger_context(model, folder, prunes, options=options):
        for number in range(calls):
            model(torch.linspace(-1, 1, 10).reshape(2, 5) + number)
    return folder


@pytest.mark.parametrize("full", [(False, False), (False, True), (True, False), (True, True)])
@pytest.mark.parametrize("kind", [_Net, _Repeating, lambda: nn.Sequential(*_Net().blocks)])
def test_a_pruned_trace_agrees_with_a_whole_one(
    tmp_path: Path, kind: Any, full: tuple[bool, bool]
) -> None:
    whole = traced(tmp_path / "whole", kind(), prunes=False, full=full[0])
    pruned = traced(tmp_path / "pruned", kind(), prunes=True, full=full[1])
    for found in (compared(whole, pruned), compared(pruned, whole)):
        assert found.first is None
        absent = [c for c in found.root.walk() if c.verdict is CallVerdict.ABSENT]
        assert absent
        assert found.compared > 10


@pytest.mark.parametrize("full", [False, True])
def test_a_shared_module_after_pruned_layers_is_no_first_difference(
    tmp_path: Path, full: bool
) -> None:
    whole = traced(tmp_path / "whole", _Net(), prunes=False, full=full)
    bad = traced(tmp_path / "bad", _Net((0, 0, 0.1, 0)), prunes=True, full=full)
    found = compared(whole, bad)
    assert found.first is not None
    assert found.first.path == "_Net.blocks.3"
    assert found.first.gap == (
        "between layer 0 and layer 3: layers 1..2 are absent from the candidate"
    )


def test_of_a_dump_only_calls_that_are_surely_the_same_are_compared(tmp_path: Path) -> None:
    pruned = traced(tmp_path / "pruned", _Net(), prunes=True, full=False)
    whole = traced(tmp_path / "whole", _Net(), prunes=False, full=False)
    text = read_trace(whole / "_Net_debug_tree_FULL_TENSORS.json")
    dump = tmp_path / "dump"
    dump.mkdir()
    model = _Net()
    seen = []
    model.act.register_forward_hook(lambda _m, _i, output: seen.append(output.detach().numpy()))
    model(torch.linspace(-1, 1, 10).reshape(2, 5))
    for number, array in enumerate(seen, 1):
        call = f"({number})" if number > 1 else ""
        np.save(dump / f"act{call}-output.npy", array)
    assert len(seen) == 4
    assert text.path == "_Net"
    found = compared(whole, dump)
    assert (found.compared, found.first) == (4, None)
    found = compared(pruned, dump)  # its second call of act is really the fourth
    assert (found.compared, found.first) == (1, None)


def test_calls_of_a_model_are_compared_one_by_one(tmp_path: Path) -> None:
    good = traced(tmp_path / "good", _Net(), prunes=False, full=True, calls=12)
    model = _Net()
    bad = tmp_path / "bad"
    with model_addition_debugger_context(model, bad, False, options=TraceOptions.all()):
        for number in range(12):
            model.blocks[1].fault = 0.25 * (number == 10)
            model(torch.linspace(-1, 1, 10).reshape(2, 5) + number)
    found = compared(good, good)
    assert found.first is None
    assert len(found.root.children) == 12
    found = compared(good, bad)
    assert found.first is not None
    assert found.first.path == "call 10: _Net.blocks.1"
    assert found.first.difference.name == "output"
    assert [child.has_difference for child in found.root.children] == [n == 10 for n in range(12)]
    rows = [line.split() for line in trace_lines(found)]
    assert ["_Net(11)", "!", "_Net(11)"] in rows
    assert ["blocks.1", "!", "blocks.1"] in rows
    assert trace_page(found).count("! _Net(11)<") == 2


def test_a_pruned_layer_of_a_later_call_is_not_taken_for_seen(tmp_path: Path) -> None:
    good = traced(tmp_path / "good", _Net(), prunes=False, full=True, calls=2)
    model, bad = _Net(), tmp_path / "bad"
    with model_addition_debugger_context(model, bad, True, options=TraceOptions.all()):
        for fault in (0.0, 0.5):
            model.blocks[2].fault = fault
            model(torch.linspace(-1, 1, 10).reshape(2, 5) + (fault > 0))
    found = compared(good, bad)
    assert found.first is not None
    assert found.first.path == "call 1: _Net.blocks.3"
    assert found.first.gap.startswith("between layer 0 and layer 3: layers 1..2 are absent")


def test_a_call_that_one_trace_lacks_differs(tmp_path: Path) -> None:
    longer = traced(tmp_path / "longer", _Net(), prunes=False, full=True, calls=3)
    shorter = traced(tmp_path / "shorter", _Net(), prunes=False, full=True, calls=2)
    found = compared(longer, shorter)
    assert found.first is not None
    assert found.first.path == "call 2: _Net(3)"
    assert [child.verdict for child in found.root.children][2] is CallVerdict.REFERENCE_ONLY


def test_several_calls_against_one_ask_for_files(tmp_path: Path) -> None:
    several = traced(tmp_path / "several", _Net(), prunes=False, full=True, calls=2)
    one = traced(tmp_path / "one", _Net(), prunes=False, full=False)
    with pytest.raises(BadInputError, match=r"found 2 and 1: .*name one file of each"):
        compared(several, one)
    (tmp_path / "dump").mkdir()
    np.save(tmp_path / "dump" / "act-output.npy", np.ones(3))
    with pytest.raises(BadInputError, match="name one of the files"):
        compared(several, tmp_path / "dump")


def test_what_a_key_holds_twice_is_compared_twice(tmp_path: Path) -> None:
    text = '{"module_path": "Net", "inputs": {"args": [{"1": %s, "1": %s}]}}'
    sides = [
        written(tmp_path / mean, text % (json.dumps(tensor(mean)), json.dumps(tensor("7."))))
        for mean in ("1.", "2.")
    ]
    found = compared(*sides)
    assert found.compared == 2
    assert [d.what for d in found.root.differences] == ["mean 1 against 2"]


def test_values_of_one_name_are_kept_apart(tmp_path: Path) -> None:
    sides = [
        written(
            tmp_path / mean,
            node("Net", inputs={"args": [tensor(mean)], "kwargs": {"0": tensor("7.")}}),
        )
        for mean in ("1.", "2.")
    ]
    assert [d.name for d in compared(*sides).root.differences] == ["input_0"]


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        (node("Net", node("Net.a", call=2), node("Net.a", call=2)), "one call 2 of 'Net.a'"),
        ('{"module_path": "Net", "module_path": "Other"}', "one module_path of 'Net'"),
        ('{"module_path": "Net", "outputs": null, "outputs": null}', "one outputs of 'Net'"),
        (
            '{"module_path": "N", "outputs": {"shape": "torch.Size([])", "dtype": "a", '
            '"dtype": "b"}}',
            "one dtype of output",
        ),
        (node("N" * 4097), "at most 4096 characters as module_path"),
        (node("Net", outputs={"a" * 4097: "1"}), "names of at most 4096 characters"),
    ],
)
def test_what_no_trace_has_is_refused(tmp_path: Path, tree: Any, message: str) -> None:
    with pytest.raises(CorruptFileError, match="expected") as error:
        read_trace(written(tmp_path, tree))
    assert message in str(error.value)


def test_a_path_of_many_dots_takes_no_time(tmp_path: Path) -> None:
    path = "Net" + ".0" * 2040
    calls = [node(f"{path}.a{n}", outputs=tensor("1.")) for n in range(200)]
    last = node(path + ".b", inputs={"args": [tensor("1.")]}, outputs=tensor("1."))
    other = node(path + ".b", inputs={"args": [tensor("2.")]}, outputs=tensor("1."))
    found = compared(
        written(tmp_path / "a", node("Net", *calls, last)),
        written(tmp_path / "b", node("Net", *calls, other)),
    )
    assert found.first is not None
    assert found.first.difference.name == "input_0"


def test_layers_within_layers_take_no_time(tmp_path: Path) -> None:
    deep = ".".join(["1"] * 2000)
    calls = [node(f"Net.{n % 10}.{n // 10}.{deep}", outputs=tensor("1.")) for n in range(40)]
    last = f"Net.99.{deep}"
    begin = time.process_time()
    found = compared(
        *(
            written(tmp_path / mean, node("Net", *calls, node(last, inputs={"args": [value]})))
            for mean, value in (("1.", tensor("1.")), ("2.", tensor("2.")))
        )
    )
    assert time.process_time() - begin < 10  # by levels squared times calls it was minutes
    assert found.first is not None
    assert (
        found.first.gap == "between layer 9 and layer 99: layers 10..98 are absent from both traces"
    )


@pytest.mark.parametrize(
    ("values", "mean", "differs"),
    [
        # float32 cannot tell a mean of 1e-9 from one of 2e-9 beside numbers of 1
        ([1.0, -1.0, 3e-9], "1.0000e-09", False),
        ([1.0, -1.0, 3e-9], "2.0000e-09", False),
        ([1.0, -1.0, 3e-9], "1.0000e-04", True),
        # a mask: its mean is infinite in float32, and not computed here
        ([-3.4e38, -3.4e38, 0.0], "-inf", False),
        ([np.inf, 1.0, 2.0], "inf", False),
        ([np.nan, 1.0, 2.0], "nan", False),
        ([1.0, 1.0, 2.0], "nan", True),
        ([1.0, 1.0, 2.0], "inf", True),
    ],
)
def test_statistics_against_a_whole_tensor(
    tmp_path: Path, values: list[float], mean: str, differs: bool
) -> None:
    files = tmp_path / "files"
    files.mkdir()
    value = SafetensorsFolder(files).save("x", torch.tensor(values))
    whole = node("Net", outputs={**tensor(mean), "value": value})
    found = compared(
        written(files, whole), written(tmp_path / "summary", node("Net", outputs=tensor(mean)))
    )
    assert (found.first is not None) == differs


@pytest.mark.parametrize(
    ("left", "right", "rtol", "differs"),
    [
        ("inf", "-inf", 0.5, True),
        ("inf", "inf", 0.0, False),
        ("nan", "nan", 0.0, False),
        ("1.0000e-40", "2.0000e-40", 0.0, True),
        # a mean beside numbers of 1 is allowed what these are allowed
        ("1.0000e-40", "2.0000e-40", 1e-6, False),
        ("1e999", "inf", 0.0, False),
    ],
)
def test_statistics_at_the_ends_of_numbers(
    tmp_path: Path, left: str, right: str, rtol: float, differs: bool
) -> None:
    sides = [
        written(tmp_path / name, node("Net", outputs=tensor(mean, min="-1.", max="1.")))
        for name, mean in (("left", left), ("right", right))
    ]
    assert (compared(*sides, rtol).first is not None) == differs


def test_a_mask_that_only_the_dump_has_is_noted_and_not_compared(tmp_path: Path) -> None:
    none = node("Net.a", inputs={"kwargs": {"attention_mask": "None", "scale": "None"}})
    trace = written(tmp_path / "trace", node("Net", none))
    dump = tmp_path / "dump"
    dump.mkdir()
    np.save(dump / "a-input_attention_mask.npy", np.ones((2, 2), np.float32))
    np.save(dump / "a-input_scale.npy", np.ones(1, np.float32))
    found = compared(trace, dump)
    assert "input_scale: None against a tensor [1] of float32" in "\n".join(trace_lines(found))
    assert any(
        note.startswith("input_attention_mask: a tensor on one side") for note in found.notes
    )
    (dump / "a-input_scale.npy").unlink()
    with pytest.raises(BadInputError, match="no value of"):
        compared(trace, dump)
