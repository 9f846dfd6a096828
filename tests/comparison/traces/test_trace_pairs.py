"""Which traces and dumps are read as pairs, and which are refused."""

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from comparison.schema.errors import BadInputError, MissingPathError
from comparison.schema.trace_comparison import ValueDifference
from comparison.store.manifest_file import write_manifest
from comparison.traces.call_order import merge_calls
from comparison.traces.first_difference import CallEvents, find_first
from comparison.traces.trace_pairs import read_pairs
from comparison.traces.trace_tree import PairedCall, pair_traces, pair_with_dump
from comparison.traces.traced_call import TraceCall
from tests.comparison.dumps import make_manifest, write_step

ONE = np.ones((1, 3), np.float32)
TENSOR = {"shape": "torch.Size([1, 3])", "dtype": "torch.float32", "value": ["tensor([1.])"]}


def trace(folder: Path, name: str = "Net") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    child = {"module_path": f"{name}.mlp", "outputs": TENSOR}
    path = folder / f"{name}_debug_tree_SUMMARY.json"
    path.write_text(json.dumps({"module_path": name, "children": [child]}))
    return path


def test_two_traces_in_one_folder_ask_for_one(tmp_path: Path) -> None:
    trace(tmp_path / "a")
    trace(tmp_path / "a", "Other")
    with pytest.raises(BadInputError, match=r"found 2: Net_.*, Other_.*; name one of the files$"):
        read_pairs(tmp_path / "a", trace(tmp_path / "b"))


def test_nothing_there_and_what_the_system_refuses(tmp_path: Path) -> None:
    good = trace(tmp_path)
    with pytest.raises(MissingPathError, match="expected a trace or a dump, found nothing at"):
        read_pairs(good, tmp_path / "nowhere")
    with pytest.raises(BadInputError, match=r"^cannot read .*: File name too long$"):
        read_pairs(tmp_path / ("x" * 300), good)


def test_two_dumps_are_for_another_command(tmp_path: Path) -> None:
    for side in ("a", "b"):
        write_step(tmp_path / side, {"model-output": ONE})
    with pytest.raises(BadInputError, match="found none; compare_tensors compares two dumps"):
        read_pairs(tmp_path / "a", tmp_path / "b")


def test_a_dump_of_several_ranks_is_refused(tmp_path: Path) -> None:
    for rank in range(2):
        write_step(tmp_path / "dump" / f"rank{rank}" / "0", {"model.mlp-output": ONE})
    with pytest.raises(
        BadInputError, match=r"expected a dump of one rank, found several in .*dump"
    ):
        read_pairs(trace(tmp_path / "trace"), tmp_path / "dump")


def test_of_a_dump_the_first_steps_modules_count(tmp_path: Path) -> None:
    tensors = {"model.mlp-output": ONE, "model.mlp@001.mul": ONE, "by hand": ONE}
    write_step(tmp_path / "dump" / "2", tensors)
    write_step(tmp_path / "dump" / "3", {"model.mlp-output": ONE * 2})
    found = read_pairs(trace(tmp_path / "trace"), tmp_path / "dump")
    (child,) = found.calls[0].children
    assert child.both is not None
    assert list(child.both[1].outputs) == ["output"]
    assert not found.is_whole
    assert found.notes[-1].endswith("only step 2 is compared")


def test_operations_of_another_engines_dump_are_no_calls(tmp_path: Path) -> None:
    tensors = {"language_model.mlp-output": ONE, "language_model.mlp@001.mul": ONE, "by hand": ONE}
    write_step(tmp_path / "dump" / "0", tensors)
    write_manifest(tmp_path / "dump" / "manifest.json", make_manifest("max"))
    found = read_pairs(trace(tmp_path / "trace"), tmp_path / "dump")
    (child,) = found.calls[0].children
    assert child.both is not None
    assert child.both[1].path == "language_model.mlp"
    assert "those of another engine" in found.notes[-1]


def call(path: str, *children: TraceCall, **values: Any) -> TraceCall:
    given = {"inputs": {}, "outputs": {}} | values
    return TraceCall(path=path, number=1, children=children, **given)


def test_calls_in_another_order_are_paired_all_the_same() -> None:
    left, right = [call("N.a"), call("N.b")], [call("N.b"), call("N.x"), call("N.a")]
    merged = [(own and own.path, other and other.path) for own, other in merge_calls(left, right)]
    assert merged == [(None, "N.x"), ("N.a", "N.a"), ("N.b", "N.b")]


def test_many_calls_of_one_module_are_held_against_a_dump_in_one_pass() -> None:
    calls = tuple(replace(call("N.a"), number=number) for number in range(1, 40_001))
    dump = {("a", 40_005): call("N.a"), ("a", 1): call("N.a")}
    begin = time.process_time()
    found = pair_with_dump(call("N", *calls), dump, trace_is_reference=True)
    assert time.process_time() - begin < 3  # with each call over all calls it was 20
    assert [pair.both is not None for pair in found.children] == [True, *[False] * 39_999]


def _events(paths: list[str], wrong: str) -> list[CallEvents]:
    events = []
    for path in paths:
        pair: PairedCall = pair_traces(call(path), call(path))
        difference = ValueDifference(name="input_0", what="1 against 2")
        differences = [difference] if path == wrong else []
        events.append(CallEvents(pair=pair, is_end=False, compared=0, differences=differences))
    return events


@pytest.mark.parametrize(
    ("paths", "gap"),
    [
        (["N.layers.0", "N.layers.1"], ""),  # the layer before is there, though it shows nothing
        (["N.layers.1"], ""),  # there is none to compare with
        (["N.layers.0", "N.layers.2"], "between layer 0 and layer 2: layer 1 is absent from both"),
        (
            ["N.layers.0", "N.layers.3.experts.0"],
            "between layer 0 and layer 3: layers 1..2 are absent from both",
        ),
        (["N.0.mlp", "N.2.mlp"], "between layer 0 and layer 2: layer 1 is absent from both"),
        (
            ["N.a.0.b.0", "N.a.0.b.1", "N.a.3.b.4"],
            "between layer 0 and layer 3: layers 1..2 are absent from both",
        ),
        (
            ["N.a.0.b.0", "N.a.3.b.0", "N.a.3.b.1", "N.a.3.b.4"],
            "between layer 1 and layer 4: layers 2..3 are absent from both",
        ),
        (["N.a.x1.b", "N.a.x4.b"], ""),  # no layers
        (["N.a.5", "N.a.2"], ""),
    ],
)
def test_layers_that_are_missing_before_the_first_difference(paths: list[str], gap: str) -> None:
    found = find_first(_events(paths, paths[-1]))
    assert found is not None
    assert found.path == paths[-1]
    assert found.gap == (f"{gap} traces" if gap else "")


def test_no_difference_is_none() -> None:
    assert find_first(_events(["N.layers.0"], "")) is None
