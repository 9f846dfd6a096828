import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from comparison.report.trace_html import trace_page
from comparison.report.trace_json import trace_to_json
from comparison.report.trace_text import trace_lines
from comparison.schema.errors import BadInputError, MissingPathError, NothingComparedError
from comparison.schema.tolerance import Tolerance
from comparison.schema.trace_comparison import CallVerdict, TraceComparison
from comparison.store.max_file import write_max_file
from comparison.store.safetensors_file import read_safetensors_tensor
from comparison.traces.trace_comparison import compare_traces
from tests.comparison.traces.traced_llama import trace_llama

UP_PROJ = "LlamaForCausalLM.model.layers.2.mlp.up_proj"
BETWEEN = "between layer 0 and layer 3: layers 1..2 are absent from"


def compared(reference: Path, candidate: Path, rtol: float = 0.0) -> TraceComparison:
    return compare_traces(reference, candidate, Tolerance(rtol=rtol))


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a good and a faulty model's traces of each form."""
    folder = tmp_path_factory.mktemp("traces")
    for name, fault in (("good", False), ("bad", True)):
        trace_llama(folder / name, fault=fault)
        trace_llama(folder / f"{name}-pruned", fault=fault, prunes=True)
        trace_llama(folder / f"{name}-files", fault=fault, use_repr=False)
    return folder


@pytest.mark.parametrize("reference", ["good", "good-files"])
@pytest.mark.parametrize("candidate", ["good", "good-files", "good-pruned"])
@pytest.mark.parametrize("rtol", [0.0, 1e-3])
def test_equal_runs_agree_whatever_their_traces_hold(
    traces: Path, reference: str, candidate: str, rtol: float
) -> None:
    found = compared(traces / reference, traces / candidate, rtol)
    assert found.exit_code == 0
    assert found.first is None
    assert found.compared > 80


@pytest.mark.parametrize("reference", ["good", "good-files"])
@pytest.mark.parametrize("candidate", ["bad", "bad-files"])
@pytest.mark.parametrize("rtol", [0.0, 1e-3])
def test_the_faulty_module_is_the_first_difference(
    traces: Path, reference: str, candidate: str, rtol: float
) -> None:
    found = compared(traces / reference, traces / candidate, rtol)
    assert found.exit_code == 1
    assert found.first is not None
    assert found.first.path == UP_PROJ
    assert found.first.difference.name == "output"
    assert found.first.gap == ""


def test_a_large_tolerance_allows_the_fault(traces: Path) -> None:
    assert compared(traces / "good-files", traces / "bad-files", 1.0).first is not None
    tolerance = Tolerance(rtol=0.1, atol=0.01)
    assert compare_traces(traces / "good-files", traces / "bad-files", tolerance).first is None


@pytest.mark.parametrize(
    ("reference", "candidate", "where"),
    [
        ("good-pruned", "bad-pruned", "both traces"),
        ("good", "bad-pruned", "the candidate"),
        ("good-pruned", "bad-files", "the reference"),
    ],
)
def test_pruned_layers_before_the_first_difference_are_named(
    traces: Path, reference: str, candidate: str, where: str
) -> None:
    found = compared(traces / reference, traces / candidate)
    assert found.first is not None
    assert found.first.path == "LlamaForCausalLM.model.layers.3"
    assert found.first.difference.name == "input_0"
    assert found.first.gap == f"{BETWEEN} {where}"
    assert f"It lies {BETWEEN} {where}" in list(trace_lines(found))


def test_summaries_are_compared_by_their_statistics(traces: Path) -> None:
    name = "LlamaForCausalLM_debug_tree_SUMMARY.json"
    assert compared(traces / "good" / name, traces / "good" / name).first is None
    found = compared(traces / "good" / name, traces / "bad" / name)
    assert found.first is not None
    assert found.first.path == UP_PROJ
    assert "std " in found.first.difference.what


def test_the_text_has_both_trees_and_folds_what_is_equal(traces: Path) -> None:
    lines = list(trace_lines(compared(traces / "good", traces / "bad")))
    rows = [line.split() for line in lines]
    assert ["layers.1", "=", "layers.1", "(+12", "calls)"] in rows
    assert ["up_proj", "!", "up_proj"] in rows
    assert ["mlp", "|", "mlp"] in rows
    assert not any("layers.1.mlp" in line for line in lines)
    assert lines[-1].startswith(f"First in order of execution: {UP_PROJ}, output: ")


def test_the_page_opens_what_differs(traces: Path) -> None:
    page = trace_page(compared(traces / "good", traces / "bad"))
    assert page.count('<details open><summary class="inside">| layers.2<') == 2
    assert page.count('<details><summary class="not-compared">') == 0
    assert page.count('<details><summary class="equal">= layers.1<') == 2
    assert page.count('<div class="call differs">! up_proj</div>') == 4  # layers 2 and 3, twice
    assert "<script" not in page
    assert "http:" not in page
    assert "https:" not in page


def test_json_holds_the_result(traces: Path) -> None:
    fields = json.loads(trace_to_json(compared(traces / "good", traces / "bad")))
    assert fields["exit_code"] == 1
    assert fields["first"]["path"] == UP_PROJ
    assert fields["root"]["has_difference"] is True


def dumped(traces: Path, folder: Path, rename: Callable[[str], str], *names: str) -> Path:
    folder.mkdir(parents=True)
    for name in names:
        source = traces / f"LlamaForCausalLM.{name}_outputs.safetensors"
        array = np.array(read_safetensors_tensor(source, "data"))
        np.save(folder / f"{rename(name)}-output.npy", array)
    return folder


@pytest.mark.parametrize("root", ["", "model."])
@pytest.mark.parametrize("form", ["good", "good-files"])
def test_a_trace_is_compared_with_a_dump(
    traces: Path, tmp_path: Path, root: str, form: str
) -> None:
    names = ["model.layers.1.mlp.up_proj", "model.layers.2.mlp.up_proj", "model.norm"]
    good = dumped(traces / "good-files", tmp_path / "good", lambda name: root + name, *names)
    bad = dumped(traces / "bad-files", tmp_path / "bad", lambda name: root + name, *names)
    assert compared(traces / form, good).compared == 3
    assert compared(traces / form, good).first is None
    assert compared(good, traces / form).first is None
    for found in (compared(traces / form, bad), compared(bad, traces / form)):
        assert found.first is not None
        assert found.first.path.removeprefix(root) in (UP_PROJ, "model.layers.2.mlp.up_proj")


@pytest.mark.parametrize("form", ["good", "good-files"])
def test_a_trace_is_compared_with_a_dump_of_another_engine(
    traces: Path, tmp_path: Path, form: str
) -> None:
    names = {
        "model.embed_tokens": "model.embed_tokens",
        "model.layers.0.mlp.down_proj": "model.layers.layers.0.mlp_shards.0.down_proj",
        "model.layers.2.mlp.up_proj": "model.layers.layers.2.mlp.up_proj",
        "lm_head": "model.lm_head",
    }
    for kind in ("good", "bad"):
        (tmp_path / kind).mkdir()
        for name, other in names.items():
            source = traces / f"{kind}-files" / f"LlamaForCausalLM.{name}_outputs.safetensors"
            rows = np.array(read_safetensors_tensor(source, "data"))[0]  # of the batch of one
            rows = rows[-1:] if name == "lm_head" else rows  # of the last token alone
            write_max_file(tmp_path / kind / f"{other}-output.max", rows, key=other)
    for found in (
        compared(traces / form, tmp_path / "good"),
        compared(tmp_path / "good", traces / form),
    ):
        assert found.compared == 3
        assert found.first is None
        assert "names are those of another engine" in found.notes[-1]
    found = compared(traces / form, tmp_path / "bad")
    assert found.first is not None
    assert found.first.path == UP_PROJ
    assert "absent" not in found.first.gap


def tensor(mean: float) -> dict[str, Any]:
    return {"shape": "torch.Size([3])", "dtype": "torch.float32", "mean": f"tensor({mean:.4f})"}


def trace(folder: Path, name: str, tree: dict[str, Any]) -> Path:
    path = folder / f"{name}.json"
    path.write_text(json.dumps(tree))
    return path


def test_names_and_texts_of_a_trace_are_escaped(tmp_path: Path) -> None:
    evil = "Net.<script>alert('1')</script>&\x1b[31m\ud800"
    trees = [
        {
            "module_path": f'Net"><script>{mean}',
            "children": [
                {
                    "module_path": evil,
                    "inputs": {"kwargs": {"<b>": f"<img src=x onerror={mean}>"}},
                    "outputs": tensor(mean),
                }
            ],
        }
        for mean in (1.0, 2.0)
    ]
    found = compared(trace(tmp_path, "a", trees[0]), trace(tmp_path, "<i>b", trees[1]))
    page = trace_page(found)
    page.encode()
    for forbidden in ("<script", "<img", "<b>", "<i>", "'1'", "\x1b"):
        assert forbidden not in page
    assert "&lt;script&gt;alert(&#x27;1&#x27;)&lt;/script&gt;&amp;" in page
    text = "\n".join(trace_lines(found))
    text.encode()
    assert "\x1b" not in text


def test_a_call_on_one_side_only_differs(tmp_path: Path) -> None:
    names = ("a", "b", "c")
    calls = [{"module_path": f"Net.{name}", "outputs": tensor(1.0)} for name in names]
    whole = trace(tmp_path, "whole", {"module_path": "Net", "children": calls})
    less = trace(tmp_path, "less", {"module_path": "Other", "children": [calls[0], calls[2]]})
    found = compared(whole, less)
    assert [child.verdict for child in found.root.children] == [
        CallVerdict.EQUAL,
        CallVerdict.REFERENCE_ONLY,
        CallVerdict.EQUAL,
    ]
    assert found.first is not None
    assert found.first.path == "Net.b"
    order = [child.path for child in compared(less, whole).root.children]
    assert order == ["Net.a", "Net.b", "Net.c"]


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"shape": "torch.Size([4])"}, "shape (3,) against (4,)"),
        ({"dtype": "torch.float16"}, "dtype float32 against float16"),
        ({"mean": "tensor(nan)"}, "mean 1 against nan"),
    ],
)
def test_shape_dtype_and_nan_differ_whatever_is_allowed(
    tmp_path: Path, change: dict[str, str], what: str
) -> None:
    left = {"module_path": "Net", "outputs": tensor(1.0)}
    right = {"module_path": "Net", "outputs": tensor(1.0) | change}
    found = compared(trace(tmp_path, "a", left), trace(tmp_path, "b", right), 0.5)
    assert found.first is not None
    assert found.first.difference.what == what


def test_an_exception_and_a_missing_value_differ(tmp_path: Path) -> None:
    inputs = {"args": [tensor(1.0)], "kwargs": {"flag": "True"}}
    left = {"module_path": "Net", "inputs": inputs}
    right = {"module_path": "Net", "inputs": {"args": [tensor(1.0)]}, "raised": "ValueError: x"}
    found = compared(trace(tmp_path, "a", left), trace(tmp_path, "b", right))
    assert [(d.name, d.what) for d in found.root.differences] == [
        ("input_flag", "in the reference only"),
        ("call", "raised nothing against ValueError: x"),
    ]


def test_what_cannot_be_compared_is_refused(traces: Path, tmp_path: Path) -> None:
    with pytest.raises(MissingPathError, match="found nothing at"):
        compared(traces / "good", tmp_path / "none")
    dump = dumped(traces / "good-files", tmp_path / "dump", str.upper, "model.norm")
    with pytest.raises(NothingComparedError, match="no value of"):
        compared(traces / "good", dump)
    with pytest.raises(BadInputError, match="compare_tensors compares two dumps"):
        compared(dump, dump)
