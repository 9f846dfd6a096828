import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from comparison.schema.errors import BadInputError, CorruptFileError, MissingPathError
from comparison.store.safetensors_file import write_safetensors
from comparison.traces import trace_file, trace_value_reader
from comparison.traces.trace_file import read_trace
from comparison.traces.trace_folder import find_trace
from comparison.traces.traced_call import TracedTensor

TENSOR = {"shape": "torch.Size([2, 3])", "dtype": "torch.float64"}


def written(folder: Path, tree: object) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "Net_debug_tree_FULL_TENSORS.json"
    path.write_text(json.dumps(tree))
    return path


def node(**fields: Any) -> dict[str, Any]:
    return {"module_path": "Net", "inputs": {"args": [], "kwargs": {}}, **fields}


def test_values_are_named_as_in_dumps(tmp_path: Path) -> None:
    inputs = {"args": [TENSOR, ["1", TENSOR]], "kwargs": {"mask": "None"}}
    call = read_trace(written(tmp_path, node(inputs=inputs, outputs={"logits": TENSOR})))
    assert list(call.inputs) == ["input_0", "input_1_0", "input_1_1", "input_mask"]
    assert list(call.outputs) == ["output_logits"]
    tensor = call.outputs["output_logits"]
    assert isinstance(tensor, TracedTensor)
    assert (tensor.shape, tensor.dtype) == ((2, 3), "float64")


def test_later_calls_are_numbered_by_the_trace_or_by_their_order(tmp_path: Path) -> None:
    children = [node(module_path="Net.a"), node(module_path="Net.a"), node(module_path="Net.b")]
    children.append(node(module_path="Net.b", call=3))
    call = read_trace(written(tmp_path, node(children=children)))
    assert [child.key for child in call.children] == [("a", 1), ("a", 2), ("b", 1), ("b", 3)]


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ([], "expected an object for the outermost call, found list"),
        ({}, "expected a text as module_path of the outermost call, found nothing"),
        (node(module_path=7), "expected a text as module_path"),
        (node(children={}), "expected a list as children of 'Net', found dict"),
        (node(children=[3]), "expected an object for a call inside of 'Net', found int 3"),
        (node(inputs=[]), "expected args and kwargs as inputs of 'Net', found list"),
        (node(inputs={"args": {}}), "expected a list as args"),
        (node(outputs=4.5), "expected a tensor, text, list or object as output of 'Net'"),
        (node(call=0), "expected a number from 1 on as call"),
        (node(call=True), "expected a number from 1 on as call"),
        (node(pruned=[1]), "expected texts as pruned"),
        (node(raised=[]), "expected a text as raised"),
        (node(outputs={**TENSOR, "shape": "torch.Size([x])"}), "as shape of output of 'Net'"),
        (node(outputs={**TENSOR, "shape": f"torch.Size([{'1' * 5000}x])"}), "as shape of output"),
        (node(outputs={**TENSOR, "mean": 1.5}), "expected a text as mean of output"),
        (node(outputs={**TENSOR, "value": [1]}), "expected lines or the path of a file"),
    ],
)
def test_wrong_types_are_refused_with_what_was_expected(
    tmp_path: Path, tree: object, message: str
) -> None:
    path = written(tmp_path, tree)
    with pytest.raises(CorruptFileError) as error:
        read_trace(path)
    assert message in str(error.value)
    assert str(path) in str(error.value)


@pytest.mark.parametrize("levels", [150, 200_000])
def test_deep_calls_are_refused(tmp_path: Path, levels: int) -> None:
    path = tmp_path / "deep.json"
    begin = '{"module_path": "N", "children": ['
    path.write_text(begin * levels + "]}" * levels)
    with pytest.raises(CorruptFileError, match="at most 100 calls within each other"):
        read_trace(path)


def test_deep_values_are_refused(tmp_path: Path) -> None:
    value: Any = "1"
    for _ in range(150):
        value = [value]
    with pytest.raises(CorruptFileError, match="at most 100 containers within each other"):
        read_trace(written(tmp_path, node(outputs=value)))


def test_names_that_one_key_makes_long_are_refused_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values: list[Any] = [[]] * 50_000  # none of which has a value, so that no name is kept
    path = written(tmp_path, node(outputs={"k" * 4000: values}))
    with pytest.raises(CorruptFileError, match="at most 134217728 characters in the names of all"):
        read_trace(path)
    children = [node(module_path=f"Net.{n}", outputs={"k" * 50: ["1", "2"]}) for n in range(4)]
    path = written(tmp_path, node(children=children))
    assert len(read_trace(path).children) == 4
    monkeypatch.setattr(trace_value_reader, "MOST_CHARACTERS_OF_NAMES", 500)
    with pytest.raises(CorruptFileError, match="at most 500 characters in the names of all values"):
        read_trace(path)


def test_large_files_and_many_calls_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path, node(children=[node(module_path="Net.a")] * 5))
    monkeypatch.setattr(trace_file, "MOST_CALLS", 5)
    with pytest.raises(CorruptFileError, match="at most 5 calls"):
        read_trace(path)
    monkeypatch.setattr(trace_file, "MOST_BYTES", 50)
    with pytest.raises(BadInputError, match="at most 50 bytes"):
        read_trace(path)


@pytest.mark.parametrize("text", ["", "{", '{"a": 1', "\xff", '{"a": ' + "9" * 5000 + "}"])
def test_what_is_no_json_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(CorruptFileError, match="expected JSON"):
        read_trace(path)


def with_file(name: str) -> dict[str, Any]:
    return node(outputs={**TENSOR, "value": name})


@pytest.mark.parametrize("kind", ["parent", "absolute", "link"])
def test_a_file_outside_of_the_folder_is_refused(tmp_path: Path, kind: str) -> None:
    outside = tmp_path / "secret.safetensors"
    write_safetensors(outside, {"data": np.zeros((2, 3))}, metadata={})
    folder = tmp_path / "trace"
    folder.mkdir()
    os.symlink(outside, folder / "link.safetensors")
    names = {
        "parent": "../secret.safetensors",
        "absolute": str(outside),
        "link": "./link.safetensors",
    }
    with pytest.raises(CorruptFileError, match="expected a file in the folder of the trace"):
        read_trace(written(folder, with_file(names[kind])))


def test_a_file_inside_is_read_when_it_is_asked_for(tmp_path: Path) -> None:
    write_safetensors(
        tmp_path / "x.safetensors", {"data": np.arange(6.0).reshape(2, 3)}, metadata={}
    )
    tensor = read_trace(written(tmp_path, with_file("./x.safetensors"))).outputs["output"]
    assert isinstance(tensor, TracedTensor)
    assert tensor.load is not None
    assert tensor.load().tolist() == [[0, 1, 2], [3, 4, 5]]


def test_a_file_that_is_not_there_or_of_another_shape_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MissingPathError, match=r"found nothing at './x\.safetensors'"):
        read_trace(written(tmp_path, with_file("./x.safetensors")))
    with pytest.raises(BadInputError, match="expected the path of a file"):
        read_trace(written(tmp_path, with_file("a\0.safetensors")))
    write_safetensors(tmp_path / "x.safetensors", {"data": np.zeros((3, 2))}, metadata={})
    tensor = read_trace(written(tmp_path, with_file("./x.safetensors"))).outputs["output"]
    assert isinstance(tensor, TracedTensor)
    assert tensor.load is not None
    with pytest.raises(CorruptFileError, match=r"expected shape \(2, 3\), as its trace says"):
        tensor.load()


def test_the_whole_trace_is_found_before_its_summary(tmp_path: Path) -> None:
    summary = tmp_path / "Net_debug_tree_SUMMARY.json"
    summary.write_text("{}")
    assert find_trace(tmp_path) == summary
    whole = written(tmp_path, node())
    assert find_trace(tmp_path) == whole
    written(tmp_path / "0", node())
    assert find_trace(tmp_path) == whole


def test_a_folder_of_several_calls_asks_for_one(tmp_path: Path) -> None:
    first = written(tmp_path / "0", node())
    assert find_trace(tmp_path) == first
    written(tmp_path / "1", node())
    with pytest.raises(BadInputError, match=r"found 2: 0/Net_.*name one of the files"):
        find_trace(tmp_path)
    assert find_trace(first) == first


def test_no_file_and_a_link_in_a_circle(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    with pytest.raises(MissingPathError, match="expected the JSON file of a trace, found nothing"):
        read_trace(path)
    path.symlink_to(path)
    with pytest.raises(BadInputError, match=r"cannot read .*: Too many levels of symbolic links$"):
        read_trace(path)


def test_what_is_told_in_place_of_a_file_is_no_value(tmp_path: Path) -> None:
    for value in ("not written: the disk is full", None):
        tensor = read_trace(written(tmp_path, node(outputs={**TENSOR, "value": value}))).outputs
        assert isinstance(tensor["output"], TracedTensor)
        assert (tensor["output"].text, tensor["output"].load) == (None, None)


def test_statistics_of_complex_numbers_are_left_out(tmp_path: Path) -> None:
    told = {**TENSOR, "mean": "tensor(1.+2.j)", "min": "tensor(3.)", "max": "tensor([1., 2.])"}
    tensor = read_trace(written(tmp_path, node(outputs=told))).outputs["output"]
    assert isinstance(tensor, TracedTensor)
    assert {name: number.value for name, number in tensor.statistics.items()} == {"min": 3.0}


def test_a_file_that_is_gone_when_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    write_safetensors(path, {"data": np.zeros((2, 3))}, metadata={})
    tensor = read_trace(written(tmp_path, with_file("./x.safetensors"))).outputs["output"]
    path.unlink()
    assert isinstance(tensor, TracedTensor)
    assert tensor.load is not None
    with pytest.raises(BadInputError, match=r"^cannot read .*x\.safetensors: No such file"):
        tensor.load()
