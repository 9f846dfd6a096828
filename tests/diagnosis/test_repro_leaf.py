"""Formulas of single modules for a repro, and the words of its report."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from comparison.schema.diagnosis import (
    Cause,
    Coverage,
    Culprit,
    Diagnosis,
    Guilty,
    Judgement,
    Operation,
    Spot,
)
from comparison.schema.outcome import Side
from diagnosis.repro import leaf, module
from diagnosis.repro.case import Case, Kept, NoReproError, require_small
from diagnosis.repro.leaf import case_of_leaf
from diagnosis.repro.report import report_of, title_of, versions_of
from tests.comparison.dumps import make_manifest
from tests.diagnosis.causes.made_region import check_of

T = 6
GIVEN = torch.linspace(-2, 2, T * 8, dtype=torch.float64).reshape(1, T, 8).sin()


def case(one: nn.Module, given: torch.Tensor = GIVEN, *, channel: int = 2) -> Case:
    """Make the case of a module whose output is wrong in one channel of all tokens."""
    one = one.double()
    with torch.no_grad():
        exact = one(given).reshape(T, -1).numpy()
    target = exact.copy()
    target[:, channel] += 1
    check = check_of("model.mlp-output", exact, target, lengths=(T,))
    return case_of_leaf(one, given, Kept(check=check, index=(1, 3, 4)))


class Norm(nn.Module):
    """An RMS norm that multiplies by one plus its weight."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.linspace(0, 1, 8)), 1e-3

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        size = (x.pow(2).mean(-1, keepdim=True) + self.eps).sqrt()
        found: torch.Tensor = x / size * (1 + self.weight)
        return found


class Activation(nn.Module):
    """A function without weights."""

    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


@pytest.mark.parametrize(
    ("one", "formula"),
    [
        (nn.Linear(8, 5), {"name": "linear"}),
        (nn.Linear(8, 5, bias=False), {"name": "linear"}),
        (Norm(), {"name": "norm", "centred": False, "eps": 1e-3, "offset": 1.0}),
        (nn.LayerNorm(8, eps=1e-4), {"name": "norm", "centred": True, "eps": 1e-4, "offset": 0.0}),
        (nn.SiLU(), {"name": "silu"}),
        (nn.GELU(approximate="tanh"), {"name": "gelu_tanh"}),
        (Activation(lambda x: torch.relu(x) ** 2), {"name": "relu2"}),
        (Activation(lambda x: x * torch.sigmoid(1.702 * x)), {"name": "quick_gelu"}),
    ],
)
def test_formulas(one: nn.Module, formula: dict[str, Any]) -> None:
    found = case(one)
    assert found.case["formula"] == formula
    assert found.case["places"] == [[0, 1], [0, 3], [0, 4]]
    torch.testing.assert_close(found.tensors["input"].double(), GIVEN[0, [1, 3, 4]])
    assert (found.notes, found.case["channels"]) == ((), None)


def test_an_embedding_may_be_scaled() -> None:
    table = nn.Embedding(20, 8)
    table.embed_scale = 1.5  # type: ignore[assignment]  # a plain number, as Gemma's
    table.forward = lambda ids: nn.functional.embedding(ids, table.weight) * 1.5  # type: ignore[method-assign]  # as Gemma's
    ids = torch.tensor([[3, 1, 7, 7, 2, 19]])
    found = case(table, ids)
    assert found.case["formula"] == {"name": "embedding", "scale": 1.5}
    assert found.tensors["input"].tolist() == [1, 7, 2]


@pytest.mark.parametrize("given", [GIVEN[0], GIVEN.movedim(1, 2)])
def test_tokens_on_another_axis(given: torch.Tensor) -> None:
    class Anywhere(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            axis = next(axis for axis in range(x.ndim) if x.shape[axis] == T)
            return torch.tanh(x.movedim(axis, 0)).reshape(T, 8)

    assert case(Anywhere(), given).case["formula"] == {"name": "tanh"}


@pytest.mark.parametrize("one", [Activation(torch.sin), nn.Sequential(nn.Linear(8, 8), nn.ReLU())])
def test_what_is_no_formula(one: nn.Module) -> None:
    with pytest.raises(NoReproError, match="is no formula that is known"):
        case(one)


def test_weights_that_are_too_large_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaf, "_LARGEST", 100)
    layer = nn.Linear(8, 90)
    found = case(layer, channel=77)
    assert found.notes == ("of the 90 outputs, only 64 are there, the wrong ones first",)
    assert 77 in found.case["channels"]
    kept = found.case["channels"]
    torch.testing.assert_close(found.tensors["weight"].double(), layer.weight[kept].double())
    ids = torch.tensor([[3, 1, 7, 7, 2, 19]])
    table = nn.Embedding(20, 8)
    looked_up = case(table, ids)
    assert looked_up.notes == (
        "of the weight, only the rows of tokens [1, 2, 7] are there, renumbered",
    )
    assert looked_up.tensors["input"].tolist() == [0, 2, 1]
    assert looked_up.tensors["weight"].shape == (3, 8)
    assert case(nn.LayerNorm(8)).notes == ()  # nothing to cut


def test_cases_larger_than_a_report_may_be_are_refused() -> None:
    small = Case(case={}, tensors={"a": torch.zeros(10)})
    assert require_small(small) is small
    large = Case(case={}, tensors={"a": torch.zeros(30_000_000 // 4)})
    with pytest.raises(NoReproError, match="its tensors take 30 MB, and a repro has at most 20 MB"):
        require_small(large)


CULPRIT = Culprit(
    side=Side.CANDIDATE,
    engine="max",
    module="model.layers.1.mlp",
    candidate_module="model.h.1.ffn",
    tensor="model.layers.1.mlp-output",
    between=("a-output", "b-output"),
    spot=Spot(step=0, row=0, position=3),
)
GUILTY = Guilty(
    module="model.layers.1.mlp",
    candidate_module="model.h.1.ffn",
    tensor="model.layers.1.mlp-output",
    candidate_tensor="model.h.1.ffn-output",
    between=None,
    spot=CULPRIT.spot,
    local_error=0.5,
    bound=1e-6,
    excess=9,
    where=("only head 3",),
)
CAUSE = Cause(
    id="rope_layout",
    evidence="rotates halves",
    expected="it rotates pairs",
    residual=0.5,
    unexplained=420.0,
    confidence=0.9,
    alternatives=("scale: it doubles",),
)
OPERATION = Operation(
    name="model.mlp@003.mul",
    op="aten.mul",
    inputs=(),
    source="model.py:7",
    last="model.mlp@003.mul",
    step=0,
    is_missing=False,
    reference="",
    reference_op="aten.add",
    reference_inputs=(),
    reference_source="",
    local_error=None,
    bound=None,
    operations=1,
    paired=1,
)
ROW = {"absolute": 0.5, "relative": 0.25, "times_rounding": 400.0}
WORST = {**ROW, "position": 3, "row": 0, "channel": 7, "got": 1.5, "expected": 1.0}
MEASURED = {"script": ROW, "reference": ROW, "candidate": WORST}
CASE = Case(
    case={"dtype": "bfloat16", "parts": ["q_proj"]}, tensors={}, needs=("transformers",),
    notes=("only 64 channels",),
)  # fmt: skip


def diagnosis(**changes: Any) -> Diagnosis:
    told: dict[str, Any] = {"culprit": CULPRIT, "cause": CAUSE, "guilty": (GUILTY,), **changes}
    return Diagnosis(
        verdict=Judgement.DIVERGE,
        sentence="max is wrong.",
        reference_engine=told.pop("reference_engine", "torch"),
        candidate_engine="max",
        coverage=Coverage(paired=1, unpaired=0, replayed=1, modules=1, modules_checked=1),
        **told,
    )


def report(**changes: Any) -> str:
    versions = {"reference": {}, "candidate": {"engine": "max"}}
    return report_of(diagnosis(**changes), CASE, MEASURED, versions)


def section(text: str, title: str) -> list[str]:
    inside = text.split(f"## {title}\n", 1)[1].split("\n\n## ")[0]
    return [line for line in inside.splitlines() if line]


def test_what_is_wrong() -> None:
    assert section(report(operation=OPERATION), "What is wrong") == [
        "- Module: `model.layers.1.mlp`, by the names of torch",
        "- max calls it `model.h.1.ffn`",
        "- Shown by: `model.layers.1.mlp-output`",
        "- Between: `a-output` and `b-output`",
        "- Where in it: only head 3",
        "- Expected: it rotates pairs",
        "- Done instead: it rotates halves",
        "- Operation: `aten.mul`, in model.py:7",
        "- In its place the reference has: `aten.add`",
    ]


def test_what_is_wrong_with_less_to_say() -> None:
    culprit = replace(CULPRIT, candidate_module=None, between=None, side=Side.REFERENCE)
    bare = replace(OPERATION, source="", reference_op="")
    found = section(
        report(culprit=culprit, cause=Cause(), guilty=(), operation=bare), "What is wrong"
    )
    assert found[:3] == [
        "- Module: `model.layers.1.mlp`, by the names of torch",
        "- Shown by: `model.layers.1.mlp-output`",
        "- Operation: `aten.mul`",
    ]
    assert found[3].startswith("- All candidates differ from the reference by this same error")
    assert len(found) == 4


@pytest.mark.parametrize(
    ("cause", "lines"),
    [
        (
            CAUSE,
            [
                "The same was done to the reference: what is left over then is 0.5 times rounding, "
                "against 420 times without it.",
                "Of causes that were said with such evidence, 90% were right in the benchmark of "
                "planted faults.",
                "As well possible: scale: it doubles.",
            ],
        ),
        (
            Cause(id="mask", evidence="hides keys"),
            ["The cause is told by signs, and was not tried on the reference."],
        ),
        (None, ["That the output is wrong is measured. Why it is wrong is not known."]),
        (
            Cause(evidence="is odd"),
            [
                "That the output is wrong is measured. Why it is wrong is not known.",
                "What was found: it is odd.",
            ],
        ),
    ],
)
def test_how_sure(cause: Cause | None, lines: list[str]) -> None:
    assert section(report(cause=cause), "How sure") == lines


def test_numbers_limits_and_versions() -> None:
    text = report()
    assert section(text, "Numbers")[-1].endswith(
        "The first wrong token is token 3 of row 0: its value number 7 is 1.5, and 1 is expected."
    )
    assert (
        section(text, "How to run it")[0] == "    pip install torch numpy safetensors transformers"
    )
    assert section(text, "What it does not show") == [
        "- max does not run in the script: this module does not stand alone there. Its recorded "
        "output is compared.",
        "- These parts are not run, and give what the candidate gave: `q_proj`.",
        "- The model is not in here: only tokens of one row, and weights of this one module.",
        "- Cut: only 64 channels.",
    ]
    assert section(text, "Versions") == [
        "- reference: a module at hand, in the environment below",
        "- candidate: engine max",
    ]


@pytest.mark.parametrize(
    ("changes", "title"),
    [
        ({}, "max computes something else than torch in model.layers.1.mlp (rope layout)"),
        ({"cause": Cause()}, "max computes something else than torch in model.layers.1.mlp"),
        (
            {"reference_engine": "max", "cause": None},
            "max computes something else than the reference in model.layers.1.mlp",
        ),
    ],
)
def test_titles(changes: dict[str, Any], title: str) -> None:
    assert title_of(diagnosis(**changes)) == title


def test_versions() -> None:
    found = versions_of(None, make_manifest("max"))
    assert found["reference"] == {}
    assert found["candidate"] == {"engine": "max", "encoding": "float32", "device": "cpu"}
    assert found["where the repro was made"]["numpy"] == np.__version__


class Plain(nn.Module):
    """Keeps what it was made with."""

    def __init__(self, size: int, kinds: tuple[str, ...], bias: bool = True) -> None:
        super().__init__()
        self.size, self.kinds = size, kinds
        self.bias = nn.Parameter(torch.zeros(size)) if bias else None


class Lossy(nn.Module):
    """Does not keep what it was made with."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(size))


class OfConfig(nn.Module):
    """Is made with a configuration."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config


def test_arguments_that_a_module_was_made_with() -> None:
    model = nn.Module()
    assert module._arguments(model, Plain(3, ("a",))) == {"size": 3, "kinds": ("a",), "bias": True}
    assert module._arguments(model, Plain(3, ("a",), bias=False))["bias"] is False  # type: ignore[index]  # not None
    assert module._arguments(model, Plain(3, (nn.ReLU(),))) is None  # type: ignore[arg-type]  # no plain values
    assert module._arguments(model, Lossy(3)) is None
    assert module._arguments(model, OfConfig(None)) is None  # of no configuration that is known


def test_configurations_are_named_by_their_place() -> None:
    from transformers import LlamaConfig

    model = nn.Module()
    model.config = LlamaConfig(num_hidden_layers=3)  # type: ignore[assignment]  # as models have it
    found = module._arguments(model, OfConfig(LlamaConfig(num_hidden_layers=3)))
    assert found is not None
    assert found["config"]["@config"]["part"] == []
    assert found["config"]["@config"]["class"].endswith(".LlamaConfig")
    assert module._arguments(model, OfConfig(LlamaConfig(num_hidden_layers=2))) is None


def test_classes_of_other_packages_are_not_named() -> None:
    with pytest.raises(NoReproError, match=f"Plain is defined in {__name__}, which is no part of"):
        module._class_of(Plain(3, ()))
    assert module._class_of(nn.Linear(2, 2)) == "torch.nn.modules.linear.Linear"


def test_a_layer_that_max_has_may_be_run_there() -> None:
    on_max = replace(CASE, case={"dtype": "float32", "formula": {"name": "linear"}})
    text = report_of(diagnosis(), on_max, MEASURED, {})
    assert "`python repro.py --engine max` runs MAX's own layer" in text
    assert section(text, "What it does not show")[0] == (
        "- What the model's own code gives to the layer in MAX, such as another epsilon."
    )
    elsewhere = report_of(replace(diagnosis(), candidate_engine="vllm"), on_max, MEASURED, {})
    assert "--engine max" not in elsewhere
